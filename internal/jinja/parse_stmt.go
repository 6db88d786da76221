package jinja

func (p *parser) parseFor() stmt {
	s := &forStmt{pos: pos{p.next().line}}
	stores := p.loopStores
	s.target = p.parseTarget("in")
	p.expectName("in")
	s.iter = p.parseTuple(tupleOpts{end: "recursive"})
	if p.skipName("if") {
		s.test = p.parseExpr()
	}
	s.recursive = p.skipName("recursive")
	p.loops++
	body, end := p.body("endfor", "else")
	p.loops--
	s.body = body
	if end == "else" {
		s.orElse, _ = p.body("endfor")
	}
	if p.loopStores > stores {
		p.fail(s.line, "Can't assign to special loop variable in for-loop target")
	}
	return s
}

func (p *parser) parseIf() stmt {
	first := &ifStmt{pos: pos{p.next().line}}
	s := first
	for {
		s.test = p.parseTuple(tupleOpts{})
		body, end := p.body("elif", "else", "endif")
		s.body = body
		switch end {
		case "elif":
			s = &ifStmt{pos: pos{p.cur().line}}
			first.elifs = append(first.elifs, s)
			continue
		case "else":
			first.orElse, _ = p.body("endif")
		}
		return first
	}
}

func (p *parser) parseSet() stmt {
	at := pos{p.next().line}
	var t target
	if p.look().isOp(".") {
		ns := p.expect(tokName)
		p.next()
		t = &nsTarget{&nameExpr{name: ns.val}, p.expect(tokName).val}
	} else {
		t = p.parseTarget("")
	}
	if p.skipOp("=") {
		return &setStmt{pos: at, target: t, x: p.parseTuple(tupleOpts{cond: true})}
	}
	s := &setBlockStmt{pos: at, target: t}
	s.filter, _ = p.parseFilter(nil, false).(*filterExpr)
	s.body, _ = p.body("endset")
	return s
}

// parseTarget parses what is assigned to: a name or names, nested in brackets or
// not. The name end, if given, closes a bare tuple.
func (p *parser) parseTarget(end string) target {
	line := p.cur().line
	return p.asTarget(p.parseTuple(tupleOpts{simple: true, end: end}), line)
}

func (p *parser) asTarget(x expr, line int) target {
	switch x := x.(type) {
	case *nameExpr:
		if x.name == "loop" {
			p.loopStores++
		}
		return x
	case *tupleExpr:
		t := &tupleTarget{}
		for _, item := range x.items {
			t.items = append(t.items, p.asTarget(item, line))
		}
		return t
	}
	p.fail(line, "can't assign to a literal or expression")
	return nil
}

func (p *parser) parseName() *nameExpr {
	t := p.expect(tokName)
	switch t.val {
	case "true", "false", "none", "True", "False", "None":
		p.fail(t.line, "can't assign to 'name'")
	}
	return &nameExpr{name: t.val}
}

func (p *parser) parseMacro() stmt {
	at := pos{p.next().line}
	name := p.parseName()
	def := &macroDef{name: name.name}
	p.parseSignature(def)
	def.body = p.functionBody("endmacro")
	p.finishMacro(def, at.line)
	return &macroStmt{pos: at, target: name, def: def}
}

func (p *parser) parseCallBlock() stmt {
	at := pos{p.next().line}
	def := &macroDef{}
	if p.cur().isOp("(") {
		p.parseSignature(def)
	}
	call, ok := p.parseExpr().(*callExpr)
	if !ok {
		p.fail(at.line, "expected call")
	}
	def.body = p.functionBody("endcall")
	p.finishMacro(def, at.line)
	return &callStmt{pos: at, def: def, call: call}
}

func (p *parser) parseSignature(def *macroDef) {
	p.expectOp("(")
	for !p.cur().isOp(")") {
		if len(def.params) > 0 {
			p.expectOp(",")
		}
		name := p.parseName()
		for _, other := range def.params {
			if other.name == name.name {
				p.fail(p.cur().line, "duplicate argument '%s' in function definition", name.name)
			}
		}
		if p.skipOp("=") {
			def.defaults = append(def.defaults, p.parseExpr())
		} else if len(def.defaults) > 0 {
			p.fail(p.cur().line, "non-default argument follows default argument")
		}
		def.params = append(def.params, name)
	}
	p.expectOp(")")
}

// finishMacro finds which of the implicit parameters the body reads.
func (p *parser) finishMacro(def *macroDef, line int) {
	used := undeclared(def.body, "caller", "kwargs", "varargs")
	def.usesCaller, def.usesKwargs, def.usesVarargs = used["caller"], used["kwargs"], used["varargs"]
	for i, param := range def.params {
		switch param.name {
		case "caller":
			if used["caller"] && i < len(def.params)-len(def.defaults) {
				p.fail(line, `When defining macros or call blocks the special "caller" argument must be omitted or be given a default.`)
			}
			def.explicitCaller = true
		case "kwargs":
			def.usesKwargs = false
		case "varargs":
			def.usesVarargs = false
		}
	}
}

func (p *parser) parseWith() stmt {
	s := &withStmt{pos: pos{p.next().line}}
	stores := p.loopStores
	for p.cur().kind != tokBlockEnd {
		if len(s.targets) > 0 {
			p.expectOp(",")
		}
		s.targets = append(s.targets, p.parseTarget(""))
		p.expectOp("=")
		s.values = append(s.values, p.parseExpr())
	}
	p.loopStores = stores // a variable of with is a parameter, not an assignment
	s.body, _ = p.body("endwith")
	return s
}
