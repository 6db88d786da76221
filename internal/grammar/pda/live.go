package pda

import "slices"

// each calls edge for every edge out of s; rule is -1 unless it is a call.
func (n *nfa) each(s int32, edge func(to int32, rule int32)) {
	st := &n.states[s]
	for _, to := range st.eps {
		edge(to, -1)
	}
	for _, e := range st.bytes {
		edge(e.to, -1)
	}
	for _, c := range st.calls {
		edge(c.to, c.rule)
	}
}

// backward finds, from the ends of all rules, the states for which a path to their
// rule's end exists. Calls count once the called rule's start is found; with
// emptyOnly, bytes do not count, which gives the states that can end at once.
func (n *nfa) backward(emptyOnly bool) []bool {
	type incoming struct{ from, rule int32 }
	in := make([][]incoming, len(n.states))
	for s := range n.states {
		if emptyOnly {
			for _, to := range n.states[s].eps {
				in[to] = append(in[to], incoming{int32(s), -1})
			}
			for _, c := range n.states[s].calls {
				in[c.to] = append(in[c.to], incoming{int32(s), c.rule})
			}
			continue
		}
		n.each(int32(s), func(to, rule int32) { in[to] = append(in[to], incoming{int32(s), rule}) })
	}
	found := make([]bool, len(n.states))
	waiting := make([][]int32, len(n.rules)) // callers whose rule is not yet found
	starts := make(map[int32]int32, len(n.rules))
	var work []int32
	mark := func(s int32) {
		if !found[s] {
			found[s] = true
			work = append(work, s)
		}
	}
	for i, r := range n.rules {
		starts[r.start] = int32(i)
		mark(r.end)
	}
	for len(work) > 0 {
		s := work[len(work)-1]
		work = work[:len(work)-1]
		for _, e := range in[s] {
			if e.rule >= 0 && !found[n.rules[e.rule].start] {
				waiting[e.rule] = append(waiting[e.rule], e.from)
				continue
			}
			mark(e.from)
		}
		if r, ok := starts[s]; ok {
			for _, from := range waiting[r] {
				mark(from)
			}
			waiting[r] = nil
		}
	}
	return found
}

// prune removes everything that leads to no end.
func (n *nfa) prune(live []bool) {
	for s := range n.states {
		st := &n.states[s]
		st.eps = slices.DeleteFunc(st.eps, func(to int32) bool { return !live[to] })
		st.bytes = slices.DeleteFunc(st.bytes, func(e nfaEdge) bool { return !live[e.to] })
		st.calls = slices.DeleteFunc(st.calls, func(c nfaCall) bool {
			return !live[c.to] || !live[n.rules[c.rule].start]
		})
	}
}
