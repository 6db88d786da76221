package cpu

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// ErrClosed is returned when a device or backend is used after its Close.
var ErrClosed = errors.New("closed")

// Decode-only steps go before steps with prefill chunks, because a reader waits for each
// of their tokens. So that prefill steps still finish, time spent on decode steps while a
// prefill step waited is credited to it, and it may use that time before it yields again.
// If both have work, each gets half of the device. A smaller share for prefill would make
// tokens a little faster, but the wait for first tokens many times longer.
const (
	// minSlice is the credit from which a prefill step goes first. For less, switching
	// would cost more than the slice gains.
	minSlice = time.Millisecond
)

// turns gives the device to one step at a time.
type turns struct {
	mu      sync.Mutex
	holder  *turn
	since   time.Time // when the holder got the device, or its time was last accounted
	decode  []*turn   // waiting, in order of arrival
	prefill []*turn
	owed    time.Duration // earned by waiting prefill steps
	closed  bool
	idle    chan struct{} // made by close, closed when the last holder leaves

	// Whether the queues have turns, for the holder to poll.
	decodeWaits, prefillWaits atomic.Bool
}

// turn is a backend's place in the queue; each of its steps reuses it.
type turn struct {
	granted chan struct{} // capacity 1
	prefill bool
	until   time.Time // a prefill step does not yield before
}

func newTurn() *turn { return &turn{granted: make(chan struct{}, 1)} }

// acquire waits until the device is free for t. front is for prefill steps that were
// interrupted.
func (s *turns) acquire(ctx context.Context, t *turn, front bool) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return ErrClosed
	}
	switch {
	case !t.prefill:
		s.decode = append(s.decode, t)
	case front:
		s.prefill = slices.Insert(s.prefill, 0, t)
	default:
		s.prefill = append(s.prefill, t)
	}
	s.grantNextLocked()
	s.mu.Unlock()

	select {
	case <-t.granted:
	case <-ctx.Done():
		if !s.leave(t) {
			<-t.granted // it was granted at the same moment
			s.release(t)
		}
		return context.Cause(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != t { // woken by close
		return ErrClosed
	}
	return nil
}

// release gives the device to the next step. It does nothing if t does not hold it.
func (s *turns) release(t *turn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holder != t {
		return
	}
	s.accountLocked(time.Now())
	s.holder = nil
	s.grantNextLocked()
}

// mustYield reports whether t, a prefill step that holds the device, should let
// waiting decode steps go first.
func (s *turns) mustYield(t *turn) bool {
	return t.prefill && s.decodeWaits.Load() && !time.Now().Before(t.until)
}

// leave takes t out of its queue. It returns false if t is not queued.
func (s *turns) leave(t *turn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, queue := range []*[]*turn{&s.decode, &s.prefill} {
		if i := slices.Index(*queue, t); i >= 0 {
			*queue = slices.Delete(*queue, i, i+1)
			s.tellWaitingLocked()
			return true
		}
	}
	return false
}

// tellWaitingLocked shows the holder whether others wait.
func (s *turns) tellWaitingLocked() {
	s.decodeWaits.Store(len(s.decode) > 0)
	s.prefillWaits.Store(len(s.prefill) > 0)
}

// grantNextLocked gives a free device to the next step.
func (s *turns) grantNextLocked() {
	defer s.tellWaitingLocked()
	if s.holder != nil {
		return
	}
	queue := &s.decode
	if len(s.decode) == 0 || len(s.prefill) > 0 && s.owed >= minSlice {
		queue = &s.prefill
	}
	if len(*queue) == 0 {
		if s.idle != nil {
			close(s.idle)
			s.idle = nil
		}
		return
	}
	t := (*queue)[0]
	*queue = slices.Delete(*queue, 0, 1)
	s.holder, s.since = t, time.Now()
	t.until = s.since.Add(s.owed)
	t.granted <- struct{}{}
}

// accountLocked accounts the holder's time.
func (s *turns) accountLocked(now time.Time) {
	used := now.Sub(s.since)
	switch {
	case s.holder.prefill:
		s.owed = max(0, s.owed-used)
	case len(s.prefill) > 0:
		s.owed += used
	}
}

// close refuses waiting steps with ErrClosed and waits for the running one.
func (s *turns) close() {
	s.mu.Lock()
	s.closed = true
	for _, t := range append(s.decode, s.prefill...) {
		t.granted <- struct{}{}
	}
	s.decode, s.prefill = nil, nil
	s.tellWaitingLocked()
	if s.holder == nil {
		s.mu.Unlock()
		return
	}
	if s.idle == nil {
		s.idle = make(chan struct{})
	}
	idle := s.idle
	s.mu.Unlock()
	<-idle
}
