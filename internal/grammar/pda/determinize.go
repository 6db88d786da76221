package pda

import (
	"encoding/binary"
	"maps"
	"slices"
)

// dfa is one rule after determinization, with calls as symbols beside the bytes. A
// rule whose subsets become too many is kept as it was, without empty edges: then
// states have several targets for one byte or call.
type dfa struct {
	states []dfaState // 0 is the start
}

type dfaState struct {
	bytes  []nfaEdge // sorted and disjoint if deterministic
	calls  []nfaCall
	accept bool
}

// determinizer works on one rule after the other and shares the budget.
type determinizer struct {
	n        *nfa
	work     int     // left for subsets
	most     int     // steps beyond that for rules that stay as they are
	minimize int     // left for minimization
	mark     []int32 // per state: the round that visited it
	at       int32
}

// closure returns the states that matter which are reachable from set by empty
// edges: those with other edges, and the rule's end. It is sorted.
func (d *determinizer) closure(set []int32, end int32) []int32 {
	d.at++
	var out []int32
	stack := slices.Clone(set)
	for len(stack) > 0 {
		s := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		if d.mark[s] == d.at {
			continue
		}
		d.mark[s] = d.at
		d.work--
		st := &d.n.states[s]
		if len(st.bytes) > 0 || len(st.calls) > 0 || s == end {
			out = append(out, s)
		}
		stack = append(stack, st.eps...)
	}
	slices.Sort(out)
	return out
}

func setKey(set []int32) string {
	b := make([]byte, 0, 4*len(set))
	for _, s := range set {
		b = binary.LittleEndian.AppendUint32(b, uint32(s))
	}
	return string(b)
}

// rule determinizes one rule, or returns it without empty edges when that takes too
// many states or the budget is spent. It returns nil when that takes too long too.
func (d *determinizer) rule(r nfaRule) *dfa {
	if out := d.subsets(r); out != nil {
		return out.minimize(&d.minimize)
	}
	return d.plain(r)
}

func (d *determinizer) subsets(r nfaRule) *dfa {
	limit := 4*int(r.n) + 1024
	out := &dfa{}
	numbers := map[string]int32{}
	var sets [][]int32
	number := func(set []int32) int32 {
		key := setKey(set)
		n, ok := numbers[key]
		if !ok {
			n = int32(len(sets))
			numbers[key] = n
			sets = append(sets, set)
		}
		return n
	}
	number(d.closure([]int32{r.start}, r.end))
	for i := 0; i < len(sets); i++ {
		if d.work < 0 || len(sets) > limit {
			return nil
		}
		st := dfaState{accept: slices.Contains(sets[i], r.end)}
		for _, p := range d.parts(sets[i]) {
			st.bytes = append(st.bytes, nfaEdge{p.byteRange, number(d.closure(p.to, r.end))})
		}
		st.bytes = joinEdges(st.bytes)
		callees := map[int32][]int32{}
		for _, s := range sets[i] {
			for _, c := range d.n.states[s].calls {
				callees[c.rule] = append(callees[c.rule], c.to)
			}
		}
		for _, rule := range slices.Sorted(maps.Keys(callees)) {
			st.calls = append(st.calls, nfaCall{rule, number(d.closure(callees[rule], r.end))})
		}
		out.states = append(out.states, st)
	}
	return out
}

type part struct {
	byteRange
	to []int32
}

// parts cuts the byte edges of a set of states into disjoint ranges.
func (d *determinizer) parts(set []int32) []part {
	var edges []nfaEdge
	for _, s := range set {
		edges = append(edges, d.n.states[s].bytes...)
	}
	d.work -= len(edges)
	if len(edges) == 0 {
		return nil
	}
	var starts [257]bool // a part begins here
	for _, e := range edges {
		starts[e.lo], starts[int(e.hi)+1] = true, true
	}
	var index [256]int16 // of the part that a byte is in
	var parts []part
	for b := range 256 {
		if starts[b] || b == 0 {
			parts = append(parts, part{byteRange: byteRange{byte(b), byte(b)}})
		}
		parts[len(parts)-1].hi = byte(b)
		index[b] = int16(len(parts) - 1)
	}
	for _, e := range edges {
		for i := index[e.lo]; i <= index[e.hi]; i++ {
			parts[i].to = append(parts[i].to, e.to)
			d.work--
		}
	}
	return slices.DeleteFunc(parts, func(p part) bool { return len(p.to) == 0 })
}

// joinEdges joins neighboring ranges with the same target.
func joinEdges(edges []nfaEdge) []nfaEdge {
	out := edges[:0]
	for _, e := range edges {
		if n := len(out); n > 0 && out[n-1].to == e.to && int(out[n-1].hi)+1 == int(e.lo) {
			out[n-1].hi = e.hi
		} else {
			out = append(out, e)
		}
	}
	return out
}

// plain removes empty edges only.
func (d *determinizer) plain(r nfaRule) *dfa {
	out := &dfa{}
	numbers := map[int32]int32{}
	var order []int32
	number := func(s int32) int32 {
		n, ok := numbers[s]
		if !ok {
			n = int32(len(order))
			numbers[s] = n
			order = append(order, s)
		}
		return n
	}
	number(r.start)
	for i := 0; i < len(order); i++ {
		if d.work < -d.most {
			return nil
		}
		var st dfaState
		for _, s := range d.closure(order[i:i+1], r.end) {
			st.accept = st.accept || s == r.end
			for _, e := range d.n.states[s].bytes {
				st.bytes = append(st.bytes, nfaEdge{e.byteRange, number(e.to)})
				d.work--
			}
			for _, c := range d.n.states[s].calls {
				st.calls = append(st.calls, nfaCall{c.rule, number(c.to)})
				d.work--
			}
		}
		out.states = append(out.states, st)
	}
	return out
}
