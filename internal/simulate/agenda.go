package simulate

import "time"

// event is something that happens at a time. Events of the same time happen in the order in
// which they were planned.
type event struct {
	at    time.Duration
	order uint64
	do    func() error
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.order < o.order }

// agenda is a heap of events, the next one first.
type agenda struct {
	heap  []event
	order uint64
}

func (a *agenda) add(at time.Duration, do func() error) {
	a.order++
	a.heap = append(a.heap, event{at, a.order, do})
	h := a.heap
	for i := len(h) - 1; i > 0; {
		up := (i - 1) / 2
		if !h[i].before(&h[up]) {
			break
		}
		h[i], h[up] = h[up], h[i]
		i = up
	}
}

// next returns the time of the next event; ok is false if there is none.
func (a *agenda) next() (at time.Duration, ok bool) {
	if len(a.heap) == 0 {
		return 0, false
	}
	return a.heap[0].at, true
}

func (a *agenda) take() event {
	h := a.heap
	first, n := h[0], len(h)-1
	h[0] = h[n]
	h[n] = event{} // nothing is kept alive
	a.heap = h[:n]
	h = a.heap
	for i := 0; ; {
		down := 2*i + 1
		if down >= n {
			break
		}
		if r := down + 1; r < n && h[r].before(&h[down]) {
			down = r
		}
		if !h[down].before(&h[i]) {
			break
		}
		h[i], h[down] = h[down], h[i]
		i = down
	}
	return first
}
