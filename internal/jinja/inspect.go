package jinja

// HasString says whether a string literal of exactly that text occurs.
func (t *Template) HasString(text string) bool {
	found := false
	inspect(t.body, func(x expr) {
		if c, ok := x.(*constExpr); ok && c.val == text {
			found = true
		}
	})
	return found
}

// inspect calls onExpr with every expression, outer ones first.
func inspect(body []stmt, onExpr func(expr)) {
	var exprs func(xs ...expr)
	exprs = func(xs ...expr) {
		for _, x := range xs {
			if x == nil {
				continue
			}
			onExpr(x)
			eachPart(x, func(part expr) { exprs(part) })
		}
	}
	in := func(body []stmt) { inspect(body, onExpr) }
	macro := func(def *macroDef) {
		exprs(def.defaults...)
		in(def.body)
	}
	for _, s := range body {
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
