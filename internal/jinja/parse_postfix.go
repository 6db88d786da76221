package jinja

// parsePostfix parses attributes, subscripts and calls after an operand.
func (p *parser) parsePostfix(x expr) expr {
	for n := 0; ; n++ {
		p.chain(n)
		switch t := p.cur(); {
		case t.isOp("."), t.isOp("["):
			x = p.parseSubscript(x)
		case t.isOp("("):
			x = &callExpr{x, p.parseArgs()}
		default:
			return x
		}
	}
}

// parseFilters parses filters and tests after an operand, and calls of their
// results.
func (p *parser) parseFilters(x expr) expr {
	for n := 0; ; n++ {
		p.chain(n)
		switch t := p.cur(); {
		case t.isOp("|"):
			x = p.parseFilter(x, false)
		case t.isName("is"):
			x = p.parseTest(x)
		case t.isOp("("):
			x = &callExpr{x, p.parseArgs()}
		default:
			return x
		}
	}
}

func (p *parser) parseSubscript(x expr) expr {
	if p.next().val == "." {
		t := p.next()
		switch t.kind {
		case tokName:
			return &attrExpr{x, t.val}
		case tokInt:
			return &itemExpr{x, &constExpr{t.num}}
		}
		p.fail(t.line, "expected name or number")
	}
	arg := p.parseSubscribed()
	p.expectOp("]")
	if slice, ok := arg.(*sliceExpr); ok {
		slice.x = x
		return slice
	}
	return &itemExpr{x, arg}
}

// parseSubscribed parses one index or slice.
func (p *parser) parseSubscribed() expr {
	s := &sliceExpr{}
	if !p.cur().isOp(":") {
		s.lo = p.parseExpr()
		if !p.cur().isOp(":") {
			return s.lo
		}
	}
	p.next()
	end := func() bool { return p.cur().isOp(":") || p.cur().isOp("]") }
	if !end() {
		s.hi = p.parseExpr()
	}
	if p.skipOp(":") && !end() {
		s.step = p.parseExpr()
	}
	return s
}

func (p *parser) parseArgs() callArgs {
	p.enter()
	defer p.leave()
	line := p.expectOp("(").line
	var a callArgs
	ensure := func(ok bool) {
		if !ok {
			p.fail(line, "invalid syntax for function call expression")
		}
	}
	for comma := false; !p.cur().isOp(")"); comma = true {
		if comma {
			p.expectOp(",")
			if p.cur().isOp(")") {
				break
			}
		}
		switch t := p.cur(); {
		case t.isOp("*"):
			ensure(a.dyn == nil && a.dynKw == nil)
			p.next()
			a.dyn = p.parseExpr()
		case t.isOp("**"):
			ensure(a.dynKw == nil)
			p.next()
			a.dynKw = p.parseExpr()
		case t.kind == tokName && p.look().isOp("="):
			ensure(a.dynKw == nil)
			for _, name := range a.names {
				if name == t.val {
					p.fail(t.line, "keyword argument repeated: %s", name)
				}
			}
			p.next()
			p.next()
			a.names = append(a.names, t.val)
			a.named = append(a.named, p.parseExpr())
		default:
			ensure(a.dyn == nil && a.dynKw == nil && a.names == nil)
			a.pos = append(a.pos, p.parseExpr())
		}
	}
	p.next()
	return a
}

// parseFilter parses one or more filters. With inline the first has no bar in
// front of it. x is nil for the text of a block, and so is the result if there
// is no filter.
func (p *parser) parseFilter(x expr, inline bool) expr {
	for n := 0; inline || p.cur().isOp("|"); n++ {
		p.chain(n)
		if !inline {
			p.next()
		}
		inline = false
		t := p.expect(tokName)
		f := &filterExpr{x: x, name: t.val + p.dotted(), line: t.line}
		if p.cur().isOp("(") {
			f.args = p.parseArgs()
		}
		x = f
	}
	return x
}

func (p *parser) dotted() string {
	s := ""
	for p.skipOp(".") {
		s += "." + p.expect(tokName).val
	}
	return s
}

func (p *parser) parseTest(x expr) expr {
	line := p.next().line
	negated := p.skipName("not")
	t := &testExpr{x: x, line: line}
	t.name = p.expect(tokName).val + p.dotted()
	switch c := p.cur(); {
	case c.isOp("("):
		t.args = p.parseArgs()
	case c.kind == tokName, c.kind == tokString, c.kind == tokInt, c.kind == tokFloat, c.isOp("["), c.isOp("{"):
		if c.isName("else") || c.isName("or") || c.isName("and") {
			break
		}
		if c.isName("is") {
			p.fail(c.line, "You cannot chain multiple tests with is")
		}
		t.args.pos = []expr{p.parsePostfix(p.parsePrimary())}
	}
	if negated {
		return &unaryExpr{'!', t}
	}
	return t
}
