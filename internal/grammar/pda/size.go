package pda

// inlineSize is the size up to which a rule is copied into its callers: that saves
// frames and lets it be determinized with what is around it.
const inlineSize = 12

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
