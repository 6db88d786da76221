package jinja

import (
	"slices"
	"strings"
)

// tupleOpts say how to parse an expression that may be a bare tuple.
type tupleOpts struct {
	simple bool   // names and literals only, for assignment targets
	cond   bool   // conditional expressions allowed
	parens bool   // inside of parentheses, where an empty tuple is allowed
	end    string // a name that ends the tuple
}

func (p *parser) parseTuple(o tupleOpts) expr {
	p.enter()
	defer p.leave()
	parse := p.parseOr
	if o.simple {
		parse = p.parsePrimary
	} else if o.cond || o.parens {
		parse = p.parseExpr
	}
	var items []expr
	tuple := false
	for {
		if len(items) > 0 {
			p.expectOp(",")
		}
		t := p.cur()
		if t.kind == tokVarEnd || t.kind == tokBlockEnd || t.isOp(")") || o.end != "" && t.isName(o.end) {
			break
		}
		items = append(items, parse())
		if !p.cur().isOp(",") {
			break
		}
		tuple = true
	}
	if !tuple {
		if len(items) > 0 {
			return items[0]
		}
		if !o.parens {
			p.fail(p.cur().line, "Expected an expression, got '%s'", p.cur().describe())
		}
	}
	return &tupleExpr{items}
}

// parseExpr parses an expression, conditional ones included.
func (p *parser) parseExpr() expr {
	p.enter()
	defer p.leave()
	line := p.cur().line
	x := p.parseOr()
	for n := 0; p.skipName("if"); n++ {
		p.chain(n)
		c := &condExpr{yes: x, test: p.parseOr(), line: line}
		if p.skipName("else") {
			c.no = p.parseExpr()
		}
		x = c
		line = p.cur().line
	}
	return x
}

// chain bounds the number of operators in a row.
func (p *parser) chain(n int) {
	if n > maxChain {
		p.fail(p.cur().line, "more than %d operators in a row", maxChain)
	}
}

func (p *parser) parseOr() expr {
	x := p.parseAnd()
	for n := 0; p.skipName("or"); n++ {
		p.chain(n)
		x = &logicExpr{false, x, p.parseAnd()}
	}
	return x
}

func (p *parser) parseAnd() expr {
	x := p.parseNot()
	for n := 0; p.skipName("and"); n++ {
		p.chain(n)
		x = &logicExpr{true, x, p.parseNot()}
	}
	return x
}

func (p *parser) parseNot() expr {
	if p.skipName("not") {
		p.enter()
		defer p.leave()
		return &unaryExpr{'!', p.parseNot()}
	}
	return p.parseCompare()
}

func (p *parser) parseCompare() expr {
	x := p.parseSum()
	var ops []operand
	for {
		t := p.cur()
		switch {
		case t.kind == tokOp && slices.Contains([]string{"==", "!=", "<", "<=", ">", ">="}, t.val):
			p.next()
			ops = append(ops, operand{t.val, p.parseSum()})
		case t.isName("in"):
			p.next()
			ops = append(ops, operand{"in", p.parseSum()})
		case t.isName("not") && p.look().isName("in"):
			p.next()
			p.next()
			ops = append(ops, operand{"not in", p.parseSum()})
		case ops == nil:
			return x
		default:
			return &compareExpr{x, ops}
		}
	}
}

func (p *parser) parseSum() expr {
	x := p.parseConcat()
	for n := 0; p.cur().isOp("+") || p.cur().isOp("-"); n++ {
		p.chain(n)
		op := p.next().val
		x = &binExpr{op, x, p.parseConcat()}
	}
	return x
}

func (p *parser) parseConcat() expr {
	x := p.parseProduct()
	if !p.cur().isOp("~") {
		return x
	}
	parts := []expr{x}
	for p.skipOp("~") {
		parts = append(parts, p.parseProduct())
	}
	return &concatExpr{parts}
}

func (p *parser) parseProduct() expr {
	x := p.parsePow()
	for n := 0; ; n++ {
		t := p.cur()
		if t.kind != tokOp || !slices.Contains([]string{"*", "/", "//", "%"}, t.val) {
			return x
		}
		p.chain(n)
		p.next()
		x = &binExpr{t.val, x, p.parsePow()}
	}
}

func (p *parser) parsePow() expr {
	x := p.parseUnary(true)
	for n := 0; p.skipOp("**"); n++ {
		p.chain(n)
		x = &binExpr{"**", x, p.parseUnary(true)}
	}
	return x
}

// parseUnary parses signs, the operand and what follows it. Filters bind tighter
// than a sign in front of the operand.
func (p *parser) parseUnary(filters bool) expr {
	p.enter()
	defer p.leave()
	var x expr
	switch t := p.cur(); {
	case t.isOp("-"), t.isOp("+"):
		p.next()
		x = &unaryExpr{t.val[0], p.parseUnary(false)}
	default:
		x = p.parsePrimary()
	}
	x = p.parsePostfix(x)
	if filters {
		x = p.parseFilters(x)
	}
	return x
}

func (p *parser) parsePrimary() expr {
	t := p.cur()
	switch t.kind {
	case tokName:
		p.next()
		switch t.val {
		case "true", "True":
			return &constExpr{true}
		case "false", "False":
			return &constExpr{false}
		case "none", "None":
			return &constExpr{nil}
		}
		return &nameExpr{name: t.val}
	case tokString:
		var b strings.Builder
		for p.cur().kind == tokString {
			b.WriteString(p.next().val)
		}
		return &constExpr{b.String()}
	case tokInt, tokFloat:
		p.next()
		return &constExpr{t.num}
	case tokOp:
		switch t.val {
		case "(":
			p.next()
			x := p.parseTuple(tupleOpts{cond: true, parens: true})
			p.expectOp(")")
			return x
		case "[":
			p.next()
			return &listExpr{p.parseItems("]")}
		case "{":
			return p.parseDict()
		}
	}
	p.fail(t.line, "unexpected '%s'", t.describe())
	return nil
}

// parseItems parses comma-separated expressions up to and with the closing
// bracket.
func (p *parser) parseItems(end string) []expr {
	var items []expr
	for !p.cur().isOp(end) {
		if len(items) > 0 {
			p.expectOp(",")
			if p.cur().isOp(end) {
				break
			}
		}
		items = append(items, p.parseExpr())
	}
	p.next()
	return items
}

func (p *parser) parseDict() expr {
	p.next()
	d := &dictExpr{}
	for !p.cur().isOp("}") {
		if len(d.keys) > 0 {
			p.expectOp(",")
			if p.cur().isOp("}") {
				break
			}
		}
		d.keys = append(d.keys, p.parseExpr())
		p.expectOp(":")
		d.vals = append(d.vals, p.parseExpr())
	}
	p.next()
	return d
}
