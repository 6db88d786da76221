package kvindex

import "sync/atomic"

// epochs tell when no lookup can still know a number that was given back: the scheme is
// epoch-based reclamation (Fraser, "Practical lock-freedom", 2004). A lookup is in the
// epoch in which it began. The writer begins the next one when no lookup is left in the
// one before the present; what was given back two epochs ago is unknown to all then.
// Nobody waits: while a lookup takes long, the writer takes new numbers.
type epochs struct {
	now    atomic.Uint32
	active [3]atomic.Int64 // lookups, by epoch modulo 3
}

// enter begins a lookup and returns its epoch.
func (e *epochs) enter() uint32 {
	for {
		n := e.now.Load()
		e.active[n%3].Add(1)
		if e.now.Load() == n {
			return n
		}
		e.active[n%3].Add(-1)
	}
}

func (e *epochs) leave(n uint32) { e.active[n%3].Add(-1) }

// advance begins the next epoch if it may. Only the writer calls it.
func (e *epochs) advance() {
	if n := e.now.Load(); e.active[(n+2)%3].Load() == 0 {
		e.now.Store(n + 1)
	}
}

// recycler hands out numbers, and those that were given back once no lookup knows them.
type recycler struct {
	next  uint32
	free  []uint32
	limbo [3]struct { // given back, by epoch modulo 3
		epoch   uint32
		numbers []uint32
	}
}

func (r *recycler) take() uint32 {
	if n := len(r.free); n > 0 {
		last := r.free[n-1]
		r.free = r.free[:n-1]
		return last
	}
	r.next++
	return r.next - 1
}

func (r *recycler) give(n uint32, e *epochs) {
	e.advance()
	now := e.now.Load()
	for i := range r.limbo {
		if l := &r.limbo[i]; len(l.numbers) > 0 && now-l.epoch >= 2 {
			r.free = append(r.free, l.numbers...)
			l.numbers = l.numbers[:0]
		}
	}
	l := &r.limbo[now%3]
	l.epoch = now
	l.numbers = append(l.numbers, n)
}
