package pda

import (
	"fmt"
	"strconv"
)

const (
	flatRepeat  = 512 // states up to which a repetition is written out
	repeatBase  = 16  // copies per level beyond that
	repeatLarge = 64  // size from which the repeated part becomes a rule of its own
)

// repeat adds a repetition. Small ones are written out. Large counts are written
// with digits: level k is a rule that matches repeatBase^k copies, so a count takes
// states by its logarithm, and all its positions share the states of level one.
// That also keeps the number of distinct token masks small.
func (b *builder) repeat(r *repeat, from, to int32) {
	least, most := r.min, r.max
	if most >= 0 && most < least {
		return
	}
	copies := max(most, least+1)
	size := b.size(r.e, 0)
	if copies <= 1 || size*copies <= flatRepeat {
		b.flat(r.e, least, most, from, to)
		return
	}
	l := b.levels(r.e, size)
	rest := Expr(&repeat{l.exact[0], 0, -1})
	if most >= 0 {
		rest = l.atMost(most - least)
	}
	b.build(seq{l.exactly(least), rest}, from, to)
}

func (b *builder) flat(e Expr, least, most int, from, to int32) {
	if most < 0 && least == 0 {
		loop := b.state()
		b.eps(from, loop)
		b.build(e, loop, loop)
		b.eps(loop, to)
		return
	}
	for i := range least {
		if most < 0 && i == least-1 { // the last required copy is also the loop
			loop := b.state()
			b.eps(from, loop)
			from = loop
		}
		next := b.state()
		b.build(e, from, next)
		if most < 0 && i == least-1 {
			b.eps(next, from)
			b.eps(next, to)
			return
		}
		from = next
	}
	for range most - least {
		b.eps(from, to)
		next := b.state()
		b.build(e, from, next)
		from = next
	}
	b.eps(from, to)
}

// levels returns the rules for repeating e. Repetitions of equal expressions share
// them, whatever their counts: their states have the same token masks.
func (b *builder) levels(e Expr, size int) *levels {
	key := ""
	if size <= repeatLarge {
		key = string(appendKey(nil, e))
		if l, ok := b.repeats[key]; ok {
			return l
		}
	}
	l := &levels{b: b, exact: []Expr{e}, below: []Expr{Empty()}}
	if size > repeatLarge {
		l.exact[0] = Ref(b.src.Add(e))
		return l
	}
	b.repeats[key] = l
	return l
}

// appendKey writes an expression so that equal text is the same expression.
func appendKey(b []byte, e Expr) []byte {
	list := func(open byte, parts []Expr) {
		b = append(b, open)
		for _, p := range parts {
			b = appendKey(b, p)
		}
		b = append(b, ')')
	}
	switch e := e.(type) {
	case literal:
		b = strconv.AppendQuote(b, string(e))
	case runeSet:
		b = append(b, '[')
		for _, r := range e {
			b = fmt.Appendf(b, "%x-%x,", r.Lo, r.Hi)
		}
	case seq:
		list('(', e)
	case alt:
		list('|', e)
	case *repeat:
		b = appendKey(fmt.Appendf(b, "{%d,%d", e.min, e.max), e.e)
	case ref:
		b = fmt.Appendf(b, "R%d,", e)
	case *Graph:
		b = fmt.Appendf(b, "G%d,%v", e.states, e.accept)
		for _, edge := range e.edges {
			b = appendKey(fmt.Appendf(b, "%d>%d", edge.from, edge.to), edge.e)
		}
		b = append(b, ';')
	}
	return b
}

// levels holds the rules of one repeated expression.
type levels struct {
	b     *builder
	exact []Expr // exact[k] matches repeatBase^k copies
	below []Expr // below[k] matches fewer than repeatBase^k copies
}

func (l *levels) reach(k int) {
	for len(l.exact) <= k {
		n := len(l.exact)
		x := l.exact[n-1]
		l.exact = append(l.exact, Ref(l.b.src.Add(chain(x, repeatBase, repeatBase))))
		l.below = append(l.below, Ref(l.b.src.Add(seq{chain(x, 0, repeatBase-1), l.below[n-1]})))
	}
}

// chain is a repetition that is always written out.
func chain(e Expr, least, most int) Expr {
	g := NewGraph()
	at := 0
	for i := range most {
		if i >= least {
			g.Accept(at)
		}
		next := g.State()
		g.Edge(at, next, e)
		at = next
	}
	g.Accept(at)
	return g
}

// digit is the highest digit of n and its value: n = d*base^k + rest.
func digit(n int) (k, d, rest int) {
	value := 1
	for n/value >= repeatBase {
		value *= repeatBase
		k++
	}
	return k, n / value, n % value
}

func (l *levels) exactly(n int) Expr {
	var parts seq
	for n > 0 {
		k, d, rest := digit(n)
		l.reach(k)
		parts = append(parts, chain(l.exact[k], d, d))
		n = rest
	}
	return parts
}

func (l *levels) atMost(n int) Expr {
	if n == 0 {
		return Empty()
	}
	k, d, rest := digit(n)
	l.reach(k)
	if k == 0 {
		return chain(l.exact[0], 0, d)
	}
	return alt{
		seq{chain(l.exact[k], 0, d-1), l.below[k]},
		seq{chain(l.exact[k], d, d), l.atMost(rest)},
	}
}
