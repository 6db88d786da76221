package frontend

import "sync"

// gate counts the requests in flight. Once closed it admits no more.
type gate struct {
	mu     sync.Mutex
	n      int
	closed bool
	idle   chan struct{} // closed when the gate is closed and n is 0
}

func newGate() *gate { return &gate{idle: make(chan struct{})} }

// enter counts a request, which must call leave. It returns false if the gate is closed.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		g.n++
	}
	return !g.closed
}

func (g *gate) leave() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.n--; g.closed && g.n == 0 {
		close(g.idle)
	}
}

// close closes the gate and returns a channel that is closed when no request is in
// flight. It may be called again.
func (g *gate) close() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.closed {
		if g.closed = true; g.n == 0 {
			close(g.idle)
		}
	}
	return g.idle
}

func (g *gate) isClosed() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) inFlight() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}
