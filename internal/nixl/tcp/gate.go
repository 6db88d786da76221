package tcp

import "sync"

// gate stands between a connection and registered memory: memory is touched only
// between enter and leave, and never again after shut. It is what makes a revoked
// ticket final.
type gate struct {
	interrupt func() // makes the system call between enter and leave return; must not block
	quiet     func() // called once, when the memory will not be touched any more

	mu     sync.Mutex
	busy   bool
	closed bool
}

// enter reports whether the memory may be touched now.
func (g *gate) enter() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.busy = true
	return true
}

// leave ends what enter began.
func (g *gate) leave() {
	g.mu.Lock()
	g.busy = false
	closed := g.closed
	g.mu.Unlock()
	if closed {
		g.quiet()
	}
}

// shut forbids to touch the memory. If it is being touched, that is interrupted
// and leave calls quiet; else shut does. It reports whether this call closed the
// gate.
func (g *gate) shut() bool {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		return false
	}
	g.closed = true
	busy := g.busy
	if busy {
		// Under the lock: after leave an interrupt would hit another system call.
		g.interrupt()
	}
	g.mu.Unlock()
	if !busy {
		g.quiet()
	}
	return true
}

// refuse makes a gate that was never open.
func (g *gate) refuse() { g.closed = true }

func (g *gate) isShut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}
