package gbnf

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/grammar/pda"
)

// Error is returned when a grammar is malformed.
type Error struct {
	Line, Column int // from 1; columns count bytes
	Reason       string
}

func (e *Error) Error() string {
	return fmt.Sprintf("grammar, line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

const maxDepth = 200 // of groups

// parser reads one grammar. Parsing functions leave the position at the next thing
// that is neither white space nor a comment.
type parser struct {
	text  string
	at    int
	depth int
	rules *pda.Rules
	names map[string]*definition
	order []*definition
}

type definition struct {
	id      pda.RuleID
	name    string
	defined bool
	used    int // where the name stands first
}

// Compile reads a grammar. The error is an *Error.
func Compile(text string) (*pda.Rules, pda.RuleID, error) {
	p := &parser{text: text, rules: &pda.Rules{}, names: map[string]*definition{}}
	if at := invalid(text); at >= 0 {
		return nil, 0, p.fail(at, "the text is not UTF-8")
	}
	p.space()
	for p.at < len(p.text) {
		if err := p.rule(); err != nil {
			return nil, 0, err
		}
	}
	root, ok := p.names["root"]
	if !ok || !root.defined {
		return nil, 0, p.fail(len(text), "there is no rule root; name the rule to start with root")
	}
	for _, d := range p.order {
		if !d.defined {
			return nil, 0, p.fail(d.used, fmt.Sprintf("rule %s is not defined", d.name))
		}
	}
	return p.rules, root.id, nil
}

func invalid(s string) int {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && n == 1 {
			return i
		}
		i += n
	}
	return -1
}

func (p *parser) fail(at int, reason string) *Error {
	before := p.text[:at]
	line := strings.Count(before, "\n")
	return &Error{line + 1, at - strings.LastIndexByte(before, '\n'), reason}
}

func (p *parser) here(reason string) *Error { return p.fail(p.at, reason) }

// space skips white space and comments.
func (p *parser) space() {
	for p.at < len(p.text) {
		switch p.text[p.at] {
		case ' ', '\t', '\r', '\n':
			p.at++
		case '#':
			end := strings.IndexByte(p.text[p.at:], '\n')
			if end < 0 {
				p.at = len(p.text)
				return
			}
			p.at += end
		default:
			return
		}
	}
}

func (p *parser) peek() byte {
	if p.at < len(p.text) {
		return p.text[p.at]
	}
	return 0
}

// take skips s and the space after it, if it comes next.
func (p *parser) take(s string) bool {
	if !strings.HasPrefix(p.text[p.at:], s) {
		return false
	}
	p.at += len(s)
	p.space()
	return true
}

func isNameByte(b byte) bool {
	return 'a' <= b && b <= 'z' || 'A' <= b && b <= 'Z' || '0' <= b && b <= '9' || b == '-' || b == '_'
}

// name reads a name and the space after it.
func (p *parser) name() string {
	start := p.at
	for isNameByte(p.peek()) {
		p.at++
	}
	name := p.text[start:p.at]
	p.space()
	return name
}

func (p *parser) lookup(name string, at int) *definition {
	d, ok := p.names[name]
	if !ok {
		d = &definition{id: p.rules.Declare(), name: name, used: at}
		p.names[name] = d
		p.order = append(p.order, d)
	}
	return d
}

func (p *parser) rule() error {
	at := p.at
	name := p.name()
	if name == "" {
		return p.here("a rule must begin with its name")
	}
	if !p.take("::=") {
		return p.here("::= is missing after the name of a rule")
	}
	d := p.lookup(name, at)
	if d.defined {
		return p.fail(at, fmt.Sprintf("rule %s is defined a second time", name))
	}
	d.defined = true
	e, err := p.alternatives()
	if err != nil {
		return err
	}
	p.rules.Define(d.id, e)
	if p.at < len(p.text) && !isNameByte(p.peek()) {
		return p.here(fmt.Sprintf("unexpected %q", p.rune()))
	}
	return nil
}

func (p *parser) rune() rune {
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return r
}

func (p *parser) alternatives() (pda.Expr, error) {
	if p.depth++; p.depth > maxDepth {
		return nil, p.here(fmt.Sprintf("groups are nested more than %d deep", maxDepth))
	}
	defer func() { p.depth-- }()
	var all []pda.Expr
	for {
		e, err := p.sequence()
		if err != nil {
			return nil, err
		}
		all = append(all, e)
		if !p.take("|") {
			return pda.Alt(all...), nil
		}
	}
}

func (p *parser) sequence() (pda.Expr, error) {
	var parts []pda.Expr
	for {
		e, err := p.item()
		if err != nil {
			return nil, err
		}
		depth := 0
		if e == nil {
			return pda.Seq(parts...), nil
		}
		for {
			more, err := p.repeated(e)
			if err != nil {
				return nil, err
			}
			if more == nil {
				break
			}
			if e, depth = more, depth+1; depth > maxDepth {
				return nil, p.here(fmt.Sprintf("repetitions are nested more than %d deep", maxDepth))
			}
		}
		parts = append(parts, e)
	}
}

// item reads one element without what repeats it; nil is none.
func (p *parser) item() (pda.Expr, error) {
	switch b := p.peek(); {
	case b == '"':
		return p.literal()
	case b == '[':
		return p.class()
	case p.take("."):
		return pda.Any(), nil
	case b == '(':
		at := p.at
		p.take("(")
		e, err := p.alternatives()
		if err != nil {
			return nil, err
		}
		if !p.take(")") {
			return nil, p.fail(at, "this group is not closed with )")
		}
		return e, nil
	case isNameByte(b):
		at := p.at
		name := p.name()
		if strings.HasPrefix(p.text[p.at:], "::=") { // the next rule
			p.at = at
			return nil, nil
		}
		return pda.Ref(p.lookup(name, at).id), nil
	}
	return nil, nil
}
