package gbnf

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// literal reads a text in quotes.
func (p *parser) literal() (pda.Expr, error) {
	at := p.at
	p.at++
	var text strings.Builder
	for {
		switch {
		case p.at >= len(p.text) || p.peek() == '\n':
			return nil, p.fail(at, `this text is not closed with "`)
		case p.peek() == '"':
			p.at++
			p.space()
			return pda.Text(text.String()), nil
		}
		r, err := p.char()
		if err != nil {
			return nil, err
		}
		text.WriteRune(r)
	}
}

// class reads characters in brackets.
func (p *parser) class() (pda.Expr, error) {
	at := p.at
	p.at++
	negated := p.peek() == '^'
	if negated {
		p.at++
	}
	var set []pda.Range
	for {
		switch {
		case p.at >= len(p.text) || p.peek() == '\n':
			return nil, p.fail(at, "this class is not closed with ]")
		case p.peek() == ']':
			p.at++
			p.space()
			if negated {
				return pda.Except(set...), nil
			}
			return pda.Set(set...), nil
		}
		start := p.at
		lo, err := p.char()
		if err != nil {
			return nil, err
		}
		hi := lo
		if p.peek() == '-' && p.at+1 < len(p.text) && p.text[p.at+1] != ']' {
			p.at++
			if hi, err = p.char(); err != nil {
				return nil, err
			}
			if hi < lo {
				return nil, p.fail(start, fmt.Sprintf("range from %q down to %q", lo, hi))
			}
		}
		set = append(set, pda.Range{Lo: lo, Hi: hi})
	}
}

// char reads one character, which may be escaped.
func (p *parser) char() (rune, error) {
	r, n := utf8.DecodeRuneInString(p.text[p.at:])
	if n == 0 {
		return 0, p.here("the text ends where a character should follow")
	}
	if r != '\\' {
		p.at += n
		return r, nil
	}
	at := p.at
	p.at++
	e := p.peek()
	p.at++
	digits := 0
	switch e {
	case 'n':
		return '\n', nil
	case 'r':
		return '\r', nil
	case 't':
		return '\t', nil
	case '\\', '"', '[', ']', '-', '^':
		return rune(e), nil
	case 'x':
		digits = 2
	case 'u':
		digits = 4
	case 'U':
		digits = 8
	default:
		return 0, p.fail(at, "unknown escape")
	}
	if p.at+digits > len(p.text) {
		return 0, p.fail(at, fmt.Sprintf("this escape needs %d digits", digits))
	}
	v, err := strconv.ParseUint(p.text[p.at:p.at+digits], 16, 32)
	if err != nil {
		return 0, p.fail(at, fmt.Sprintf("this escape needs %d digits", digits))
	}
	if v > utf8.MaxRune || !utf8.ValidRune(rune(v)) {
		return 0, p.fail(at, "this escape is no Unicode character")
	}
	p.at += digits
	return rune(v), nil
}
