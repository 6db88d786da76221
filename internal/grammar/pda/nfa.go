package pda

import "slices"

// nfa holds the automata of all rules before determinization. States are numbered
// across rules.
type nfa struct {
	states []nfaState
	edges  int
	rules  []nfaRule
}

type nfaState struct {
	eps   []int32
	bytes []nfaEdge
	calls []nfaCall
}

type nfaEdge struct {
	byteRange
	to int32
}

type nfaCall struct{ rule, to int32 }

// nfaRule is a rule that the root reaches; its number is its place in nfa.rules.
type nfaRule struct {
	start, end int32
	first, n   int32 // its states
}

// builder makes an nfa of the rules that the root reaches.
type builder struct {
	nfa
	src       *Rules
	lim       Limits
	spellable []Range // nil: all
	number    map[RuleID]int32
	queue     []RuleID
	sizes     map[RuleID]int
	err       error
}

func buildNFA(src *Rules, root RuleID, spellable []Range, lim Limits) (*nfa, error) {
	b := &builder{src: src, lim: lim, spellable: spellable, number: map[RuleID]int32{}, sizes: map[RuleID]int{}}
	b.rule(root)
	for i := 0; i < len(b.queue) && b.err == nil; i++ {
		first := int32(len(b.states))
		start, end := b.state(), b.state()
		b.build(src.exprs[b.queue[i]], start, end)
		b.rules[i] = nfaRule{start, end, first, int32(len(b.states)) - first}
	}
	return &b.nfa, b.err
}

// rule numbers a rule and sees to it that it is built.
func (b *builder) rule(id RuleID) int32 {
	if n, ok := b.number[id]; ok {
		return n
	}
	n := int32(len(b.queue))
	b.number[id] = n
	b.queue = append(b.queue, id)
	b.rules = append(b.rules, nfaRule{})
	if len(b.queue) > b.lim.Rules {
		b.err = tooLarge("rules", b.lim.Rules)
	}
	return n
}

func (b *builder) state() int32 {
	if len(b.states) >= b.lim.States && b.err == nil {
		b.err = tooLarge("states", b.lim.States)
	}
	b.states = append(b.states, nfaState{})
	return int32(len(b.states) - 1)
}

func (b *builder) eps(from, to int32) {
	if b.edges++; b.edges > b.lim.Edges && b.err == nil {
		b.err = tooLarge("edges", b.lim.Edges)
	}
	b.states[from].eps = append(b.states[from].eps, to)
}

func (b *builder) edge(from int32, r byteRange, to int32) {
	if b.edges++; b.edges > b.lim.Edges && b.err == nil {
		b.err = tooLarge("edges", b.lim.Edges)
	}
	b.states[from].bytes = append(b.states[from].bytes, nfaEdge{r, to})
}

// build connects two states by e. It adds no edge into from and none out of to, so
// fragments can share their ends.
func (b *builder) build(e Expr, from, to int32) {
	if b.err != nil {
		return
	}
	switch e := e.(type) {
	case literal:
		b.text(string(e), from, to)
	case runeSet:
		b.set(e, from, to)
	case seq:
		if len(e) == 0 {
			b.eps(from, to)
		}
		for i, part := range e {
			next := to
			if i < len(e)-1 {
				next = b.state()
			}
			b.build(part, from, next)
			from = next
		}
	case alt:
		for _, a := range e {
			b.build(a, from, to)
		}
	case *repeat:
		b.repeat(e, from, to)
	case ref:
		b.call(RuleID(e), from, to)
	case *Graph:
		b.graph(e, from, to)
	}
}

// inlineSize is the size up to which a rule is copied into its callers: that saves
// frames and lets it be determinized with what is around it.
const inlineSize = 12

func (b *builder) call(id RuleID, from, to int32) {
	if e := b.src.exprs[id]; b.size(ref(id), 0) <= inlineSize {
		b.build(e, from, to)
		return
	}
	n := b.rule(id)
	b.states[from].calls = append(b.states[from].calls, nfaCall{n, to})
}

func (b *builder) text(s string, from, to int32) {
	if s == "" {
		b.eps(from, to)
		return
	}
	runes := []rune(s)
	for i, r := range runes {
		next := to
		if i < len(runes)-1 {
			next = b.state()
		}
		b.set(runeSet{{r, r}}, from, next)
		from = next
	}
}

// set adds the UTF-8 forms of a set; sequences that end alike share states.
func (b *builder) set(s runeSet, from, to int32) {
	if b.spellable != nil {
		s = Intersect(s, b.spellable)
	}
	type suffix struct {
		r  byteRange
		to int32
	}
	var shared map[suffix]int32
	for _, r := range s {
		utf8Sequences(r, func(seq []byteRange) {
			next := to
			for i := len(seq) - 1; i > 0 && b.err == nil; i-- {
				key := suffix{seq[i], next}
				at, ok := shared[key]
				if !ok {
					if shared == nil {
						shared = map[suffix]int32{}
					}
					at = b.state()
					b.edge(at, seq[i], next)
					shared[key] = at
				}
				next = at
			}
			b.edge(from, seq[0], next)
		})
		if b.err != nil {
			return
		}
	}
}

func (b *builder) graph(g *Graph, from, to int32) {
	at := make([]int32, g.states)
	for i := range at {
		at[i] = b.state()
		if b.err != nil {
			return
		}
	}
	b.eps(from, at[0])
	for _, e := range g.edges {
		b.build(e.e, at[e.from], at[e.to])
	}
	for _, s := range g.accept {
		b.eps(at[s], to)
	}
}

// size estimates how many states e takes. References count as calls unless the rule
// is small enough to be copied; beyond a depth they always do, which also ends
// recursion.
func (b *builder) size(e Expr, depth int) int {
	const large = 1 << 20
	switch e := e.(type) {
	case literal:
		return max(len(e), 1)
	case runeSet:
		if n := len(e); n == 0 || e[n-1].Hi < 0x80 {
			return 1
		}
		return 4 + len(e)
	case seq:
		n := 1
		for _, p := range e {
			n = min(n+b.size(p, depth), large)
		}
		return n
	case alt:
		n := 1
		for _, p := range e {
			n = min(n+b.size(p, depth), large)
		}
		return n
	case *repeat:
		n := max(e.max, e.min+1)
		if one := b.size(e.e, depth); one*n < large {
			return one*n + 1
		}
		return large
	case ref:
		return b.refSize(RuleID(e), depth)
	case *Graph:
		n := e.states
		for _, edge := range e.edges {
			n = min(n+b.size(edge.e, depth), large)
		}
		return n
	}
	return 1
}

// refSize is the size of a rule's body if it can be copied, else inlineSize+1, the
// price of a call that must never look copyable itself.
func (b *builder) refSize(id RuleID, depth int) int {
	if n, ok := b.sizes[id]; ok {
		return n
	}
	const deepest = 4
	if depth >= deepest {
		return inlineSize + 1
	}
	b.sizes[id] = inlineSize + 1 // while it is being looked at: recursion is no copy
	n := min(b.size(b.src.exprs[id], depth+1), inlineSize+1)
	b.sizes[id] = n
	return n
}

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
