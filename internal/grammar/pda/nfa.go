package pda

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
	repeats   map[string]*levels // by what is repeated
	err       error
}

func buildNFA(src *Rules, root RuleID, spellable []Range, lim Limits) (*nfa, error) {
	b := &builder{src: src, lim: lim, spellable: spellable, number: map[RuleID]int32{}, sizes: map[RuleID]int{}, repeats: map[string]*levels{}}
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
