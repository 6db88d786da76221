package pattern

import (
	"fmt"
	"regexp/syntax"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// maxBounded bounds the states of a pattern that counts characters.
const maxBounded = 20_000

// SearchBounded is Search for texts of at least least and at most most characters; a
// negative most is no limit. It takes a state for each count at each place of the
// pattern. The error is an *Error.
func (p *Pattern) SearchBounded(chars Chars, least, most int) (pda.Expr, error) {
	prog, err := syntax.Compile(p.re.Simplify())
	if err != nil {
		return nil, &Error{0, err.Error()}
	}
	b := &bounded{
		p: p, prog: prog, chars: chars, least: least, most: most,
		graph: pda.NewGraph(), numbers: map[place]int{},
		any: chars([]pda.Range{{Lo: 0, Hi: utf8.MaxRune}}),
	}
	b.graph.Edge(0, b.number(place{phase: before}), pda.Empty())
	for i := 0; i < len(b.queue); i++ {
		if i >= maxBounded {
			return nil, &Error{0, fmt.Sprintf("counting up to %d characters takes more than %d states", max(least, most), maxBounded)}
		}
		if err := b.follow(b.queue[i]); err != nil {
			return nil, err
		}
	}
	return b.graph, nil
}

// bounded builds the product of a pattern's program and a count of characters.
type bounded struct {
	p           *Pattern
	prog        *syntax.Prog
	chars       Chars
	any         pda.Expr
	least, most int
	graph       *pda.Graph
	numbers     map[place]int
	queue       []place
}

// place is a state: where in the text relative to the match, where in the program,
// and how many characters were read. Without an upper bound the count stops where
// it no longer matters.
type place struct {
	phase phase
	pc    uint32
	count int
	end   bool // the pattern wants the text to end here
}

type phase uint8

const (
	before phase = iota
	inside
	after
)

func (b *bounded) number(s place) int {
	n, ok := b.numbers[s]
	if !ok {
		n = b.graph.State()
		b.numbers[s] = n
		b.queue = append(b.queue, s)
	}
	return n
}

// read adds an edge for one character, if the count allows another.
func (b *bounded) read(from, to place, e pda.Expr) {
	switch {
	case from.end || b.most >= 0 && from.count >= b.most:
		return
	case b.most >= 0:
		to.count = from.count + 1
	default:
		to.count = min(from.count+1, max(b.least, 1)) // 0 must stay apart for ^
	}
	b.graph.Edge(b.numbers[from], b.number(to), e)
}

func (b *bounded) skip(from, to place) {
	b.graph.Edge(b.numbers[from], b.number(to), pda.Empty())
}

func (b *bounded) follow(s place) error {
	switch s.phase {
	case before:
		b.read(s, s, b.any)
		b.skip(s, place{phase: inside, pc: uint32(b.prog.Start), count: s.count})
		return nil
	case after:
		if s.count >= b.least {
			b.graph.Accept(b.numbers[s])
		}
		b.read(s, s, b.any)
		return nil
	}
	inst := &b.prog.Inst[s.pc]
	next := s
	next.pc = inst.Out
	switch inst.Op {
	case syntax.InstFail:
	case syntax.InstAlt, syntax.InstAltMatch:
		b.skip(s, next)
		next.pc = inst.Arg
		b.skip(s, next)
	case syntax.InstCapture, syntax.InstNop:
		b.skip(s, next)
	case syntax.InstMatch:
		b.skip(s, place{phase: after, count: s.count, end: s.end})
	case syntax.InstEmptyWidth:
		switch op := syntax.EmptyOp(inst.Arg); {
		case op&^(syntax.EmptyBeginText|syntax.EmptyEndText) != 0:
			return b.p.fail("", "word and line boundaries are not supported")
		case op&syntax.EmptyBeginText != 0 && s.count > 0:
		default:
			next.end = s.end || op&syntax.EmptyEndText != 0
			b.skip(s, next)
		}
	default:
		b.read(s, next, b.chars(runes(inst)))
	}
	return nil
}

// runes are the characters that an instruction reads.
func runes(inst *syntax.Inst) []pda.Range {
	switch {
	case inst.Op == syntax.InstRuneAny:
		return []pda.Range{{Lo: 0, Hi: utf8.MaxRune}}
	case inst.Op == syntax.InstRuneAnyNotNL:
		return []pda.Range{{Lo: 0, Hi: '\n' - 1}, {Lo: '\n' + 1, Hi: utf8.MaxRune}}
	case len(inst.Rune) == 1:
		return literal(inst.Rune[0], syntax.Flags(inst.Arg)&syntax.FoldCase != 0)
	}
	var set []pda.Range
	for i := 0; i+1 < len(inst.Rune); i += 2 {
		set = append(set, pda.Range{Lo: inst.Rune[i], Hi: inst.Rune[i+1]})
	}
	return set
}
