package gbnf

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

const maxCount = 100_000 // of repetitions

// repeated reads one repetition of e; nil is none.
func (p *parser) repeated(e pda.Expr) (pda.Expr, error) {
	switch {
	case p.take("*"):
		return pda.Repeat(e, 0, -1), nil
	case p.take("+"):
		return pda.Repeat(e, 1, -1), nil
	case p.take("?"):
		return pda.Optional(e), nil
	case p.peek() != '{':
		return nil, nil
	}
	at := p.at
	p.take("{")
	least, given, err := p.count()
	if err != nil {
		return nil, err
	}
	most := least
	if p.take(",") {
		var limited bool
		if most, limited, err = p.count(); err != nil {
			return nil, err
		}
		if !limited {
			most = -1
		}
		given = given || limited
	}
	switch {
	case !p.take("}"):
		return nil, p.fail(at, "this repetition is not closed with }")
	case !given:
		return nil, p.fail(at, "a repetition needs a count")
	case most >= 0 && most < least:
		return nil, p.fail(at, fmt.Sprintf("repetition of at least %d and at most %d times", least, most))
	}
	return pda.Repeat(e, least, most), nil
}

func (p *parser) count() (n int, given bool, err error) {
	start := p.at
	for '0' <= p.peek() && p.peek() <= '9' {
		p.at++
	}
	digits := p.text[start:p.at]
	p.space()
	if digits == "" {
		return 0, false, nil
	}
	n, convErr := strconv.Atoi(digits)
	if convErr != nil || n > maxCount {
		return 0, false, p.fail(start, fmt.Sprintf("repetition counts end at %d", maxCount))
	}
	return n, true, nil
}
