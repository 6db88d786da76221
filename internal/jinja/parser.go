package jinja

import (
	"fmt"
	"slices"
	"strings"
)

// maxNesting bounds how deep tags and brackets may nest (a bracket takes two or
// three levels), maxChain how many operators of one precedence may follow each
// other: both are recursion depth of everything that walks the tree.
const (
	maxNesting = 200
	maxChain   = 400
)

// parser turns tokens into statements. Its methods return the first error by
// panicking with a *SyntaxError, which parse recovers: nothing escapes.
type parser struct {
	name   string
	tokens []token
	at     int
	depth  int
	tags   []string   // open tags, innermost last
	ends   [][]string // end tags looked for, innermost last
	loops  int        // enclosing loops of the current function
	// loopStores counts assignments to the name loop, which a for body must not
	// contain.
	loopStores int
}

func (p *parser) parse() (body []stmt, err error) {
	defer func() {
		if e := recover(); e != nil {
			se, ok := e.(*SyntaxError)
			if !ok {
				panic(e)
			}
			err = se
		}
	}()
	return p.subparse(nil), nil
}

func (p *parser) fail(line int, format string, args ...any) {
	panic(&SyntaxError{Template: p.name, Line: line, Msg: fmt.Sprintf(format, args...)})
}

func (p *parser) cur() token { return p.tokens[p.at] }

func (p *parser) look() token {
	if p.at+1 < len(p.tokens) {
		return p.tokens[p.at+1]
	}
	return p.tokens[len(p.tokens)-1]
}

func (p *parser) next() token {
	t := p.tokens[p.at]
	if t.kind != tokEOF {
		p.at++
	}
	return t
}

func (p *parser) skipOp(op string) bool {
	if p.cur().isOp(op) {
		p.next()
		return true
	}
	return false
}

func (p *parser) skipName(name string) bool {
	if p.cur().isName(name) {
		p.next()
		return true
	}
	return false
}

func (p *parser) expected(want string) {
	t := p.cur()
	if t.kind == tokEOF {
		p.fail(t.line, "unexpected end of template, expected '%s'.", want)
	}
	p.fail(t.line, "expected token '%s', got '%s'", want, t.describe())
}

func (p *parser) expect(kind tokenKind) token {
	if p.cur().kind != kind {
		want := token{kind: kind}
		if kind == tokName {
			want.val = "name"
		}
		p.expected(want.describe())
	}
	return p.next()
}

func (p *parser) expectOp(op string) token {
	if !p.cur().isOp(op) {
		p.expected(op)
	}
	return p.next()
}

func (p *parser) expectName(name string) token {
	if !p.cur().isName(name) {
		p.expected(name)
	}
	return p.next()
}

func (p *parser) enter() {
	p.depth++
	if p.depth > maxNesting {
		p.fail(p.cur().line, "nested more than %d levels deep", maxNesting)
	}
}

func (p *parser) leave() { p.depth-- }

// subparse parses text and tags until one of the end tags is the current token,
// or to the end of the template if ends is nil.
func (p *parser) subparse(ends []string) []stmt {
	p.enter()
	defer p.leave()
	if ends != nil {
		p.ends = append(p.ends, ends)
		defer func() { p.ends = p.ends[:len(p.ends)-1] }()
	}
	var body []stmt
	for {
		t := p.cur()
		switch t.kind {
		case tokEOF:
			return body
		case tokData:
			p.next()
			body = append(body, &textStmt{pos{t.line}, t.val})
		case tokVarBegin:
			p.next()
			x := p.parseTuple(tupleOpts{cond: true})
			p.expect(tokVarEnd)
			body = append(body, &outputStmt{pos{t.line}, x})
		default: // a block begins: nothing else occurs outside of tags
			p.next()
			if c := p.cur(); c.kind == tokName && slices.Contains(ends, c.val) {
				return body
			}
			body = append(body, p.parseStatement()...)
			p.expect(tokBlockEnd)
		}
	}
}

// body parses the statements of a block up to one of its end tags, which it
// consumes and returns.
func (p *parser) body(ends ...string) ([]stmt, string) {
	p.skipOp(":")
	p.expect(tokBlockEnd)
	b := p.subparse(ends)
	if p.cur().kind == tokEOF {
		p.ends = append(p.ends, ends)
		p.failTag("")
	}
	return b, p.next().val
}

// failTag reports an unknown tag, or the end of the template if name is empty.
func (p *parser) failTag(name string) {
	msg := "Unexpected end of template."
	if name != "" {
		msg = fmt.Sprintf("Encountered unknown tag '%s'.", name)
	}
	if len(p.ends) > 0 {
		looking := "'" + strings.Join(p.ends[len(p.ends)-1], "' or '") + "'"
		if slices.ContainsFunc(p.ends, func(e []string) bool { return slices.Contains(e, name) }) {
			msg += " You probably made a nesting mistake. Jinja is expecting this tag, but currently looking for " + looking + "."
		} else {
			msg += " Jinja was looking for the following tags: " + looking + "."
		}
	}
	if len(p.tags) > 0 {
		msg += fmt.Sprintf(" The innermost block that needs to be closed is '%s'.", p.tags[len(p.tags)-1])
	}
	p.fail(p.cur().line, "%s", msg)
}

func (p *parser) parseStatement() []stmt {
	t := p.cur()
	if t.kind != tokName {
		p.fail(t.line, "tag name expected")
	}
	p.tags = append(p.tags, t.val)
	defer func() { p.tags = p.tags[:len(p.tags)-1] }()
	at := pos{t.line}
	switch t.val {
	case "for":
		return []stmt{p.parseFor()}
	case "if":
		return []stmt{p.parseIf()}
	case "set":
		return []stmt{p.parseSet()}
	case "macro":
		return []stmt{p.parseMacro()}
	case "call":
		return []stmt{p.parseCallBlock()}
	case "filter":
		p.next()
		f := p.parseFilter(nil, true).(*filterExpr)
		b, _ := p.body("endfilter")
		return []stmt{&filterStmt{pos: at, filter: f, body: b}}
	case "with":
		return []stmt{p.parseWith()}
	case "generation":
		p.next()
		b := p.functionBody("endgeneration")
		return []stmt{&scopeStmt{pos: at, body: b}}
	case "break", "continue":
		p.next()
		if p.loops == 0 {
			p.fail(t.line, "'%s' outside loop", t.val)
		}
		if t.val == "break" {
			return []stmt{&breakStmt{at}}
		}
		return []stmt{&continueStmt{at}}
	case "extends", "block", "include", "import", "from", "autoescape", "print":
		p.fail(t.line, "the tag '%s' is not supported in chat templates", t.val)
	}
	p.tags = p.tags[:len(p.tags)-1]
	defer func() { p.tags = append(p.tags, "") }()
	p.failTag(t.val)
	return nil
}

// functionBody parses a body that break and continue cannot leave.
func (p *parser) functionBody(end string) []stmt {
	loops := p.loops
	p.loops = 0
	b, _ := p.body(end)
	p.loops = loops
	return b
}
