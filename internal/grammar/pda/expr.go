package pda

import "unicode/utf8"

// Expr is a part of a rule. Make one with the functions of this package.
type Expr interface{ isExpr() }

type (
	literal string
	runeSet []Range
	seq     []Expr
	alt     []Expr
	repeat  struct {
		e        Expr
		min, max int // max < 0: no limit
	}
	ref RuleID
)

func (literal) isExpr() {}
func (runeSet) isExpr() {}
func (seq) isExpr()     {}
func (alt) isExpr()     {}
func (*repeat) isExpr() {}
func (ref) isExpr()     {}
func (*Graph) isExpr()  {}

// Range is the code points Lo to Hi, both included.
type Range struct{ Lo, Hi rune }

// Text matches s itself. Parts that are not UTF-8 count as U+FFFD.
func Text(s string) Expr { return literal(s) }

// Set matches one code point of the ranges, which may overlap; surrogates and
// values above U+10FFFF are left out. An empty set matches nothing.
func Set(ranges ...Range) Expr { return runeSet(normalize(ranges)) }

// Except matches one code point outside the ranges.
func Except(ranges ...Range) Expr { return runeSet(complement(normalize(ranges))) }

// Any matches every code point.
func Any() Expr { return Except() }

// Empty matches the empty text.
func Empty() Expr { return seq(nil) }

// Nothing matches no text at all.
func Nothing() Expr { return alt(nil) }

// Seq matches the parts one after the other.
func Seq(parts ...Expr) Expr { return seq(parts) }

// Alt matches what any of the alternatives matches.
func Alt(alternatives ...Expr) Expr { return alt(alternatives) }

// Repeat matches e from least to most times; a negative most is no limit.
func Repeat(e Expr, least, most int) Expr { return &repeat{e, least, most} }

// Optional matches e or the empty text.
func Optional(e Expr) Expr { return Repeat(e, 0, 1) }

// Ref matches what the rule matches.
func Ref(r RuleID) Expr { return ref(r) }

// Graph is an automaton whose edges are expressions, for what is awkward to say
// with the other expressions: counting in digits, optional members between commas.
type Graph struct {
	states int
	edges  []graphEdge
	accept []int
}

type graphEdge struct {
	from, to int
	e        Expr
}

// NewGraph returns a graph of one state, the start, which is 0.
func NewGraph() *Graph { return &Graph{states: 1} }

// State adds a state and returns it.
func (g *Graph) State() int {
	g.states++
	return g.states - 1
}

// Edge goes from one state to another by matching e.
func (g *Graph) Edge(from, to int, e Expr) { g.edges = append(g.edges, graphEdge{from, to, e}) }

// Accept lets the graph end in a state.
func (g *Graph) Accept(state int) { g.accept = append(g.accept, state) }

// RuleID names a rule of one Rules.
type RuleID int32

// Rules is a grammar under construction. The zero value is empty and ready.
type Rules struct{ exprs []Expr }

// Declare adds a rule that matches nothing until it is defined, so that rules may
// refer to each other in any order.
func (r *Rules) Declare() RuleID {
	r.exprs = append(r.exprs, Nothing())
	return RuleID(len(r.exprs) - 1)
}

// Define says what a declared rule matches.
func (r *Rules) Define(id RuleID, e Expr) { r.exprs[id] = e }

// Add declares and defines a rule.
func (r *Rules) Add(e Expr) RuleID {
	id := r.Declare()
	r.Define(id, e)
	return id
}

// Sorted returns the ranges in order, joined where they touch or overlap.
func Sorted(ranges []Range) []Range { return normalize(ranges) }

// normalize sorts and joins ranges and takes surrogates out.
func normalize(ranges []Range) []Range {
	var out []Range
	add := func(lo, hi rune) {
		if lo = max(lo, 0); lo <= hi {
			out = append(out, Range{lo, hi})
		}
	}
	for _, r := range ranges {
		add(r.Lo, min(r.Hi, 0xD7FF))
		add(max(r.Lo, 0xE000), min(r.Hi, utf8.MaxRune))
	}
	return joinRanges(out)
}
