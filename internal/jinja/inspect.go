package jinja

import "slices"

// LoopsOver says whether the template iterates over an attribute or item of that
// name, directly or through a variable. It looks at the text of the template and
// knows nothing of values: use it to guess what shape a template wants.
func (t *Template) LoopsOver(attr string) bool {
	macros := map[string]*macroDef{}
	inspect(t.body, func(s stmt) {
		if m, ok := s.(*macroStmt); ok {
			macros[m.def.name] = m.def
		}
	}, nil)
	names := map[string]bool{attr: true}
	found := false
	// Macros are defined before they are called: the second round knows what is
	// passed to their parameters.
	for range 2 {
		inspect(t.body, func(s stmt) {
			switch s := s.(type) {
			case *setStmt:
				if n, ok := s.target.(*nameExpr); ok && mayBe(s.x, attr, names) {
					names[n.name] = true
				}
			case *forStmt:
				found = found || mayBe(s.iter, attr, names)
			}
		}, func(x expr) {
			call, ok := x.(*callExpr)
			if !ok {
				return
			}
			fn, ok := call.fn.(*nameExpr)
			if !ok || macros[fn.name] == nil {
				return
			}
			for i, arg := range call.args.pos {
				if params := macros[fn.name].params; i < len(params) && mayBe(arg, attr, names) {
					names[params[i].name] = true
				}
			}
			for i, arg := range call.args.named {
				if mayBe(arg, attr, names) {
					names[call.args.names[i]] = true
				}
			}
		})
	}
	return found
}

// mayBe says whether the expression's value can be that of the attribute.
func mayBe(x expr, attr string, names map[string]bool) bool {
	switch x := x.(type) {
	case *nameExpr:
		return names[x.name]
	case *attrExpr:
		return x.name == attr
	case *itemExpr:
		c, ok := x.arg.(*constExpr)
		return ok && c.val == attr
	case *condExpr:
		return mayBe(x.yes, attr, names) || x.no != nil && mayBe(x.no, attr, names)
	case *logicExpr:
		return mayBe(x.l, attr, names) || mayBe(x.r, attr, names)
	case *filterExpr:
		return x.x != nil && mayBe(x.x, attr, names)
	case *sliceExpr:
		return mayBe(x.x, attr, names)
	}
	return false
}

// UsesTest says whether the template applies one of the tests, as in "is string".
func (t *Template) UsesTest(names ...string) bool {
	found := false
	inspect(t.body, nil, func(x expr) {
		if test, ok := x.(*testExpr); ok && slices.Contains(names, test.name) {
			found = true
		}
	})
	return found
}

// HasString says whether a string literal of exactly that text occurs.
func (t *Template) HasString(text string) bool {
	found := false
	inspect(t.body, nil, func(x expr) {
		if c, ok := x.(*constExpr); ok && c.val == text {
			found = true
		}
	})
	return found
}

// inspect calls onStmt with every statement and onExpr with every expression,
// outer ones first. Either may be nil.
func inspect(body []stmt, onStmt func(stmt), onExpr func(expr)) {
	var exprs func(xs ...expr)
	exprs = func(xs ...expr) {
		for _, x := range xs {
			if x == nil || onExpr == nil {
				continue
			}
			onExpr(x)
			eachPart(x, func(part expr) { exprs(part) })
		}
	}
	in := func(body []stmt) { inspect(body, onStmt, onExpr) }
	macro := func(def *macroDef) {
		exprs(def.defaults...)
		in(def.body)
	}
	for _, s := range body {
		if onStmt != nil {
			onStmt(s)
		}
		switch s := s.(type) {
		case *outputStmt:
			exprs(s.x)
		case *forStmt:
			exprs(s.iter, s.test)
			in(s.body)
			in(s.orElse)
		case *ifStmt:
			exprs(s.test)
			in(s.body)
			for _, e := range s.elifs {
				exprs(e.test)
				in(e.body)
			}
			in(s.orElse)
		case *setStmt:
			exprs(s.x)
		case *setBlockStmt:
			exprs(filterOrNil(s.filter))
			in(s.body)
		case *withStmt:
			exprs(s.values...)
			in(s.body)
		case *macroStmt:
			macro(s.def)
		case *callStmt:
			exprs(s.call)
			macro(s.def)
		case *filterStmt:
			exprs(s.filter)
			in(s.body)
		case *scopeStmt:
			in(s.body)
		}
	}
}
