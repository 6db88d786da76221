package pattern

import (
	"regexp/syntax"
	"unicode"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Chars makes the expression for one character of a set, so that a pattern can be
// about characters that are written in another way, such as in a JSON string.
type Chars func(set []pda.Range) pda.Expr

// Whole is the expression for a text that the whole pattern matches. The error is
// an *Error.
func (p *Pattern) Whole(chars Chars) (pda.Expr, error) {
	variants, err := p.variants(p.re, chars)
	if err != nil {
		return nil, err
	}
	var all []pda.Expr
	for _, v := range variants {
		all = append(all, v.e)
	}
	return pda.Alt(all...), nil
}

// Search is the expression for a text that the pattern matches somewhere. The error
// is an *Error.
func (p *Pattern) Search(chars Chars) (pda.Expr, error) {
	variants, err := p.variants(p.re, chars)
	if err != nil {
		return nil, err
	}
	rest := pda.Repeat(chars([]pda.Range{{Lo: 0, Hi: utf8.MaxRune}}), 0, -1)
	var all []pda.Expr
	for _, v := range variants {
		e := v.e
		if !v.begin {
			e = pda.Seq(rest, e)
		}
		if !v.end {
			e = pda.Seq(e, rest)
		}
		all = append(all, e)
	}
	return pda.Alt(all...), nil
}

// Length is the number of characters of the shortest and the longest text that a
// search can match as a whole; most is negative if there is no limit.
func (p *Pattern) Length() (least, most int) {
	count := func([]pda.Range) pda.Expr { return pda.Empty() }
	variants, err := p.variants(p.re, count)
	if err != nil {
		return 0, -1
	}
	least, most = length(p.re)
	for _, v := range variants {
		if !v.begin || !v.end {
			most = -1
		}
	}
	return least, most
}

// variant is a way to match that needs the text to begin or end at its ends.
type variant struct {
	begin, end bool
	empty      bool // nothing but anchors
	e          pda.Expr
}

// group joins the variants that differ in their expressions only.
func group(in []variant) []variant {
	var out []variant
next:
	for _, v := range in {
		for i, have := range out {
			if have.begin == v.begin && have.end == v.end && have.empty == v.empty {
				if !v.empty {
					out[i].e = pda.Alt(have.e, v.e)
				}
				continue next
			}
		}
		out = append(out, v)
	}
	return out
}

// variants splits an expression by the anchors at its ends.
func (p *Pattern) variants(re *syntax.Regexp, chars Chars) ([]variant, error) {
	switch re.Op {
	case syntax.OpBeginText:
		return []variant{{begin: true, empty: true, e: pda.Empty()}}, nil
	case syntax.OpEndText:
		return []variant{{end: true, empty: true, e: pda.Empty()}}, nil
	case syntax.OpCapture:
		return p.variants(re.Sub[0], chars)
	case syntax.OpAlternate:
		var all []variant
		for _, sub := range re.Sub {
			v, err := p.variants(sub, chars)
			if err != nil {
				return nil, err
			}
			all = append(all, v...)
		}
		return group(all), nil
	case syntax.OpConcat:
		return p.concat(re.Sub, chars)
	case syntax.OpQuest:
		v, err := p.variants(re.Sub[0], chars)
		return group(append(v, variant{empty: true, e: pda.Empty()})), err
	}
	e, err := p.build(re, chars)
	return []variant{{empty: re.Op == syntax.OpEmptyMatch, e: e}}, err
}

func (p *Pattern) concat(subs []*syntax.Regexp, chars Chars) ([]variant, error) {
	all := []variant{{empty: true, e: pda.Empty()}}
	for _, sub := range subs {
		right, err := p.variants(sub, chars)
		if err != nil {
			return nil, err
		}
		var next []variant
		for _, l := range all {
			for _, r := range right {
				if r.begin && !l.empty {
					return nil, p.fail("^", "^ after other characters is not supported")
				}
				if l.end && !r.empty {
					return nil, p.fail("$", "$ before other characters is not supported")
				}
				next = append(next, join(l, r))
			}
		}
		all = group(next)
	}
	return all, nil
}

func join(l, r variant) variant {
	v := variant{begin: l.begin || r.begin, end: l.end || r.end, empty: l.empty && r.empty}
	switch {
	case l.empty:
		v.e = r.e
	case r.empty:
		v.e = l.e
	default:
		v.e = pda.Seq(l.e, r.e)
	}
	return v
}

// build converts what has no anchors.
func (p *Pattern) build(re *syntax.Regexp, chars Chars) (pda.Expr, error) {
	switch re.Op {
	case syntax.OpNoMatch:
		return pda.Nothing(), nil
	case syntax.OpEmptyMatch:
		return pda.Empty(), nil
	case syntax.OpLiteral:
		parts := make([]pda.Expr, len(re.Rune))
		for i, r := range re.Rune {
			parts[i] = chars(literal(r, re.Flags&syntax.FoldCase != 0))
		}
		return pda.Seq(parts...), nil
	case syntax.OpCharClass:
		var set []pda.Range
		for i := 0; i+1 < len(re.Rune); i += 2 {
			set = append(set, pda.Range{Lo: re.Rune[i], Hi: re.Rune[i+1]})
		}
		return chars(set), nil
	case syntax.OpAnyCharNotNL:
		return chars([]pda.Range{{Lo: 0, Hi: '\n' - 1}, {Lo: '\n' + 1, Hi: utf8.MaxRune}}), nil
	case syntax.OpAnyChar:
		return chars([]pda.Range{{Lo: 0, Hi: utf8.MaxRune}}), nil
	case syntax.OpStar:
		return p.repeated(re, 0, -1, chars)
	case syntax.OpPlus:
		return p.repeated(re, 1, -1, chars)
	case syntax.OpQuest:
		return p.repeated(re, 0, 1, chars)
	case syntax.OpRepeat:
		return p.repeated(re, re.Min, re.Max, chars)
	case syntax.OpCapture:
		return p.build(re.Sub[0], chars)
	case syntax.OpConcat, syntax.OpAlternate:
		parts := make([]pda.Expr, len(re.Sub))
		for i, sub := range re.Sub {
			e, err := p.build(sub, chars)
			if err != nil {
				return nil, err
			}
			parts[i] = e
		}
		if re.Op == syntax.OpConcat {
			return pda.Seq(parts...), nil
		}
		return pda.Alt(parts...), nil
	case syntax.OpBeginText:
		return nil, p.fail("^", "^ inside a repetition is not supported")
	case syntax.OpEndText:
		return nil, p.fail("$", "$ inside a repetition is not supported")
	case syntax.OpWordBoundary, syntax.OpNoWordBoundary:
		return nil, p.fail(re.String(), "word boundaries are not supported")
	case syntax.OpBeginLine, syntax.OpEndLine:
		return nil, p.fail("m", "line boundaries, the flag m, are not supported")
	}
	return nil, &Error{0, "unsupported: " + re.String()}
}

func (p *Pattern) repeated(re *syntax.Regexp, least, most int, chars Chars) (pda.Expr, error) {
	e, err := p.build(re.Sub[0], chars)
	if err != nil {
		return nil, err
	}
	return pda.Repeat(e, least, most), nil
}

// literal is a character, with fold its other cases too.
func literal(r rune, fold bool) []pda.Range {
	set := []pda.Range{{Lo: r, Hi: r}}
	if fold {
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			set = append(set, pda.Range{Lo: f, Hi: f})
		}
	}
	return set
}

// length is the least and the greatest number of characters; most < 0: no limit.
func length(re *syntax.Regexp) (least, most int) {
	times := func(low, high int) (int, int) {
		l, m := length(re.Sub[0])
		switch {
		case m == 0 || high == 0:
			m = 0
		case m < 0 || high < 0:
			m = -1
		default:
			m *= high
		}
		return l * low, m
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpCapture:
		return length(re.Sub[0])
	case syntax.OpStar:
		return times(0, -1)
	case syntax.OpPlus:
		return times(1, -1)
	case syntax.OpQuest:
		return times(0, 1)
	case syntax.OpRepeat:
		return times(re.Min, re.Max)
	case syntax.OpConcat:
		for _, sub := range re.Sub {
			l, m := length(sub)
			least += l
			if most >= 0 && m >= 0 {
				most += m
			} else {
				most = -1
			}
		}
		return least, most
	case syntax.OpAlternate:
		for i, sub := range re.Sub {
			l, m := length(sub)
			if i == 0 {
				least, most = l, m
				continue
			}
			least = min(least, l)
			if m < 0 || most < 0 {
				most = -1
			} else {
				most = max(most, m)
			}
		}
		return least, most
	}
	return 0, 0
}
