package prefill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Limits of rooms.
const (
	// maxRooms bounds how many rooms a prefill worker remembers.
	maxRooms = 4096
	// aloneTimeout is the time a decode worker waits in a room that no prefill has
	// entered: the frontend sends both at the same time.
	aloneTimeout = 5 * time.Second
)

// Errors of rooms.
var (
	errRoomFull   = errors.New("too many bootstrap rooms")
	errRoomTaken  = errors.New("bootstrap room is taken")
	errRoomClosed = errors.New("bootstrap room is closed")
	errRoomAlone  = errors.New("no prefill worker joined the bootstrap room")
)

// rooms lets decode workers hand their reservations to running prefills. Either side may come
// first. A room lets in one prefill and one decode worker. It stays recorded as closed until
// its deadline, so that a late worker does not wait.
type rooms struct {
	mu   sync.Mutex
	byID map[uint64]*room
}

// room is one rendezvous. The goroutine of the prefill owns what is written.
type room struct {
	joins   chan *joining // capacity 1
	entered chan struct{} // closed when the prefill is there
	closed  chan struct{} // closed when the prefill has left
	err     error         // why it left; for readers of closed

	// Guarded by rooms.mu.
	until        time.Time
	taken, asked bool // a prefill, a decode worker is or was there
}

// joining is a decode worker in a room. The prefill answers once.
type joining struct {
	// onLeave has f called when the decode worker leaves, unless that is taken back.
	onLeave func(f func()) (takeBack func() bool)
	req     protocol.RemotePrefillRequest
	answer  chan protocol.PrefillNotice // capacity 1
}

func newRooms() *rooms { return &rooms{byID: map[uint64]*room{}} }

// get returns a room, made if nobody was there before. Guarded by rs.mu.
func (rs *rooms) get(id uint64, until time.Time) (*room, error) {
	if r := rs.byID[id]; r != nil {
		return r, nil
	}
	if len(rs.byID) >= maxRooms {
		now := time.Now()
		maps.DeleteFunc(rs.byID, func(_ uint64, r *room) bool { return now.After(r.until) })
	}
	if len(rs.byID) >= maxRooms {
		return nil, fmt.Errorf("%w: %d", errRoomFull, maxRooms)
	}
	r := &room{joins: make(chan *joining, 1), entered: make(chan struct{}), closed: make(chan struct{}), until: until}
	rs.byID[id] = r
	return r, nil
}

// enter is for the prefill, which must call leave.
func (rs *rooms) enter(id uint64, until time.Time) (*room, error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	r, err := rs.get(id, until)
	if err != nil {
		return nil, err
	}
	if r.taken {
		return nil, fmt.Errorf("%w: %d", errRoomTaken, id)
	}
	r.taken, r.until = true, until
	close(r.entered)
	return r, nil
}

// leave closes a room. With an error, a decode worker that waits or comes late is told.
func (rs *rooms) leave(id uint64, r *room, err error) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if err == nil {
		delete(rs.byID, id) // nobody else will come
		err = errRoomClosed
	}
	r.err = err
	close(r.closed)
}

// join has a decode worker wait in a room until the prefill there has answered.
func (rs *rooms) join(ctx context.Context, id uint64, req protocol.RemotePrefillRequest) (protocol.PrefillNotice, error) {
	ctx, cancel := context.WithDeadlineCause(ctx, req.Deadline, errHoldExpired)
	defer cancel()
	rs.mu.Lock()
	r, err := rs.get(id, req.Deadline)
	if err == nil && r.asked {
		err = fmt.Errorf("%w: %d", errRoomTaken, id)
	}
	if err == nil {
		r.asked = true
	}
	rs.mu.Unlock()
	if err != nil {
		return protocol.PrefillNotice{}, err
	}
	j := &joining{
		onLeave: func(f func()) func() bool { return context.AfterFunc(ctx, f) },
		req:     req, answer: make(chan protocol.PrefillNotice, 1),
	}
	r.joins <- j // the only one
	alone := time.NewTimer(aloneTimeout)
	defer alone.Stop()
	entered := r.entered
	for {
		select {
		case n := <-j.answer:
			return n, nil
		case <-r.closed:
			select {
			case n := <-j.answer: // both at once
				return n, nil
			default:
				return protocol.PrefillNotice{}, r.err
			}
		case <-entered:
			entered = nil
			alone.Stop()
		case <-alone.C:
			rs.abandon(id, r)
			return protocol.PrefillNotice{}, fmt.Errorf("%w after %s", errRoomAlone, aloneTimeout)
		case <-ctx.Done():
			rs.abandon(id, r)
			return protocol.PrefillNotice{}, context.Cause(ctx)
		}
	}
}

// abandon forgets a room that no prefill has entered.
func (rs *rooms) abandon(id uint64, r *room) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if !r.taken {
		delete(rs.byID, id)
	}
}
