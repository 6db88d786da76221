package wire

import (
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/nixl"
)

// Sessions holds a transport's sessions with attached peers, by generation. The
// zero value is ready.
type Sessions[S any] struct {
	mu     sync.Mutex
	closed bool
	of     map[uint64]S
}

// Attach adds the session of a peer; false after Close.
func (ss *Sessions[S]) Attach(r nixl.Remote, s S) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.closed {
		return false
	}
	if ss.of == nil {
		ss.of = map[uint64]S{}
	}
	ss.of[r.Generation] = s
	return true
}

// Use returns the session of an attached peer after it has called use, if there is one,
// with it. Close waits for use, so that the closer sees everything that use started or counted.
func (ss *Sessions[S]) Use(r nixl.Remote, use func(S)) (s S, err error) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s, found := ss.of[r.Generation]
	switch {
	case ss.closed:
		return s, fmt.Errorf("transport is closed: %w", nixl.ErrCanceled)
	case !found:
		return s, fmt.Errorf("peer %q was invalidated or lost: %w", r.Name, nixl.ErrNotFound)
	}
	use(s)
	return s, nil
}

// Forget takes out the session of a peer; false if there is none.
func (ss *Sessions[S]) Forget(r nixl.Remote) (s S, found bool) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s, found = ss.of[r.Generation]
	delete(ss.of, r.Generation)
	return s, found
}

// Close refuses everything from now on, and returns the sessions that there were.
func (ss *Sessions[S]) Close() []S {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	all := make([]S, 0, len(ss.of))
	for _, s := range ss.of {
		all = append(all, s)
	}
	ss.closed, ss.of = true, nil
	return all
}
