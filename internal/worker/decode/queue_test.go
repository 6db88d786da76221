package decode

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// fickleBus is connected or not.
type fickleBus struct {
	events.Bus
	gone       atomic.Bool
	reconnects atomic.Uint64
}

func (b *fickleBus) Connected() bool { return !b.gone.Load() }

func (b *fickleBus) Stats() events.Stats { return events.Stats{Reconnects: b.reconnects.Load()} }

// A request in the queue waits for its notice; not for the deadline when the queue is out
// of reach at two looks in a row, except that somebody fetched it before.
func TestAwaitPrefill(t *testing.T) {
	errLost := errors.New("lost")
	notice := func(phase protocol.PrefillPhase, tokens int) protocol.PrefillNotice {
		return protocol.PrefillNotice{Phase: phase, Tokens: tokens}
	}
	for _, tc := range []struct {
		what string
		do   func(b *fickleBus, wt *waiter)
		want error
		at   time.Duration
	}{
		{"done", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillDone, 40) }, nil, 0},
		{"done with less", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillDone, 39) }, errPrefillFailed, 0},
		{"failed", func(_ *fickleBus, wt *waiter) { wt.notices <- notice(protocol.PrefillFailed, 40) }, errPrefillFailed, 0},
		{"lost", func(_ *fickleBus, wt *waiter) { wt.lost <- errLost }, errLost, 0},
		{"nobody answers", func(*fickleBus, *waiter) {}, errRemoteTimeout, time.Minute},
		{"out of reach", func(b *fickleBus, _ *waiter) { b.gone.Store(true) }, errQueueLost, 2 * queueLookEvery},
		{"out of reach at one look of two", func(b *fickleBus, _ *waiter) {
			go func() {
				time.Sleep(queueLookEvery / 2)
				for i := range 40 {
					b.gone.Store(i%2 == 0)
					time.Sleep(queueLookEvery)
				}
			}()
		}, errRemoteTimeout, time.Minute},
		{"out of reach after somebody fetched it", func(b *fickleBus, wt *waiter) {
			wt.notices <- notice(protocol.PrefillStarted, 0)
			b.gone.Store(true)
		}, errRemoteTimeout, time.Minute},
	} {
		t.Run(tc.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bus, begin := &fickleBus{}, time.Now()
				f := &filling{w: &Role{Term: &role.Term{Bus: bus}, waiters: newWaiters()}}
				wt := f.w.waiters.add("ticket", nil)
				ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errRemoteTimeout)
				defer cancel()
				tc.do(bus, wt)
				_, err := f.awaitPrefill(ctx, protocol.RemotePrefillRequest{TokenIDs: make([]uint32, 40)}, wt, queued{})
				if !errors.Is(err, tc.want) || time.Since(begin) != tc.at {
					t.Errorf("%v after %s, want %v after %s", err, time.Since(begin), tc.want, tc.at)
				}
			})
		})
	}
}

// A request whose server was away, however shortly, is enqueued again until the queue takes
// it, unless somebody fetched it before.
func TestEnqueueAgain(t *testing.T) {
	for _, started := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			bus := &fickleBus{}
			f := &filling{w: &Role{Term: &role.Term{Bus: bus}, waiters: newWaiters()}}
			wt := f.w.waiters.add("ticket", nil)
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Minute, errRemoteTimeout)
			defer cancel()
			bus.reconnects.Store(3)
			go func() {
				if started {
					wt.notices <- protocol.PrefillNotice{Phase: protocol.PrefillStarted}
				}
				time.Sleep(10 * queueLookEvery)
				bus.reconnects.Store(4)
			}()
			tries := 0
			q := queued{reconnects: 3, again: func() error {
				if tries++; tries < 3 {
					return events.ErrUnavailable
				}
				return nil
			}}
			if _, err := f.awaitPrefill(ctx, protocol.RemotePrefillRequest{}, wt, q); !errors.Is(err, errRemoteTimeout) {
				t.Error(err)
			}
			if want := map[bool]int{false: 3}[started]; tries != want {
				t.Errorf("started %t: enqueued again %d times, want %d", started, tries, want)
			}
		})
	}
}
