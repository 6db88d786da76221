package kvindex

import "testing"

// A number comes again, but not while a lookup runs that may know it.
func TestRecycler(t *testing.T) {
	var e epochs
	var r recycler
	kept := r.take()
	lookup := e.enter()
	r.give(kept, &e)
	for i := range 100 {
		if n := r.take(); n == kept {
			t.Fatalf("given back while a lookup knows it: handed out after %d others", i)
		} else if i%2 == 0 {
			r.give(n, &e)
		}
	}
	e.leave(lookup)
	last := r.next
	for range 5 {
		r.give(r.take(), &e)
	}
	again := false
	for range 100 {
		again = again || r.take() == kept
	}
	if !again || r.next > last+100 {
		t.Errorf("handed out again: %t; %d numbers", again, r.next)
	}
}

// Numbers that come and go do not become more.
func TestRecyclerIsBounded(t *testing.T) {
	var e epochs
	var r recycler
	for range 10_000 {
		l := e.enter()
		a, b := r.take(), r.take()
		r.give(a, &e)
		e.leave(l)
		r.give(b, &e)
	}
	if r.next > 20 {
		t.Errorf("%d numbers for two at a time", r.next)
	}
}
