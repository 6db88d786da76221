package prefill

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// errGone is why a prefill leaves its room.
var errGone = errors.New("gone")

// has reports whether somebody is in a room.
func (rs *rooms) has(id uint64) bool {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	return rs.byID[id] != nil
}

// Rooms end in time whoever is missing.
func TestRooms(t *testing.T) {
	req := func(until time.Duration) protocol.RemotePrefillRequest {
		return protocol.RemotePrefillRequest{Deadline: time.Now().Add(until)}
	}
	t.Run("nobody prefills", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rs, begin := newRooms(), time.Now()
			if _, err := rs.join(t.Context(), 1, req(time.Minute)); !errors.Is(err, errRoomAlone) || time.Since(begin) != aloneTimeout {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
			if rs.has(1) {
				t.Error("the room is still there")
			}
		})
	})
	t.Run("deadline", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rs, begin := newRooms(), time.Now()
			if _, err := rs.enter(1, time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			if _, err := rs.join(t.Context(), 1, req(20*time.Second)); !errors.Is(err, errHoldExpired) || time.Since(begin) != 20*time.Second {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
		})
	})
	t.Run("taken", func(t *testing.T) {
		rs := newRooms()
		r, err := rs.enter(1, time.Now().Add(time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := rs.enter(1, time.Now().Add(time.Minute)); !errors.Is(err, errRoomTaken) {
			t.Errorf("second prefill: %v", err)
		}
		answers := make(chan error, 1)
		go func() { _, err := rs.join(t.Context(), 1, req(time.Minute)); answers <- err }()
		j := <-r.joins
		if _, err := rs.join(t.Context(), 1, req(time.Minute)); !errors.Is(err, errRoomTaken) {
			t.Errorf("second decode worker: %v", err)
		}
		j.answer <- protocol.PrefillNotice{Phase: protocol.PrefillDone}
		rs.leave(1, r, nil)
		if err := <-answers; err != nil {
			t.Errorf("the answer was lost: %v", err)
		}
		if rs.has(1) {
			t.Error("the room is still there")
		}
	})
	t.Run("late", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rs, begin := newRooms(), time.Now()
			r, err := rs.enter(1, time.Now().Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			rs.leave(1, r, errGone)
			if _, err := rs.join(t.Context(), 1, req(time.Minute)); !errors.Is(err, errGone) || time.Since(begin) > 0 {
				t.Errorf("%v after %s", err, time.Since(begin))
			}
		})
	})
	t.Run("many", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			rs := newRooms()
			for id := range uint64(maxRooms) {
				r, err := rs.enter(id, time.Now().Add(time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				rs.leave(id, r, errGone)
			}
			if _, err := rs.enter(maxRooms, time.Now()); !errors.Is(err, errRoomFull) {
				t.Errorf("one more: %v", err)
			}
			time.Sleep(2 * time.Minute)
			if _, err := rs.enter(maxRooms, time.Now()); err != nil || len(rs.byID) != 1 {
				t.Errorf("after their deadline: %v, %d rooms", err, len(rs.byID))
			}
		})
	})
}

// Who waits in a room that the prefill leaves without an answer is told, in success, too.
func TestRoomIsLeft(t *testing.T) {
	for _, tc := range []struct{ why, want error }{{nil, errRoomClosed}, {errGone, errGone}} {
		synctest.Test(t, func(t *testing.T) {
			rs := newRooms()
			r, err := rs.enter(1, time.Now().Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			got := make(chan error, 1)
			go func() {
				_, err := rs.join(t.Context(), 1, protocol.RemotePrefillRequest{Deadline: time.Now().Add(time.Minute)})
				got <- err
			}()
			synctest.Wait()
			rs.leave(1, r, tc.why)
			if err := <-got; !errors.Is(err, tc.want) {
				t.Errorf("left with %v: %v, want %v", tc.why, err, tc.want)
			}
		})
	}
}
