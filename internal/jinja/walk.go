package jinja

// eachPart calls fn with the direct parts of an expression.
func eachPart(x expr, fn func(expr)) {
	part := func(parts ...expr) {
		for _, p := range parts {
			if p != nil {
				fn(p)
			}
		}
	}
	args := func(a *callArgs) {
		part(a.pos...)
		part(a.named...)
		part(a.dyn, a.dynKw)
	}
	switch x := x.(type) {
	case *tupleExpr:
		part(x.items...)
	case *listExpr:
		part(x.items...)
	case *dictExpr:
		part(x.keys...)
		part(x.vals...)
	case *binExpr:
		part(x.l, x.r)
	case *logicExpr:
		part(x.l, x.r)
	case *unaryExpr:
		part(x.x)
	case *concatExpr:
		part(x.parts...)
	case *compareExpr:
		part(x.x)
		for _, op := range x.ops {
			part(op.x)
		}
	case *condExpr:
		part(x.test, x.yes, x.no)
	case *attrExpr:
		part(x.x)
	case *itemExpr:
		part(x.x, x.arg)
	case *sliceExpr:
		part(x.x, x.lo, x.hi, x.step)
	case *callExpr:
		part(x.fn)
		args(&x.args)
	case *filterExpr:
		part(x.x)
		args(&x.args)
	case *testExpr:
		part(x.x)
		args(&x.args)
	}
}

// eachName calls fn with the names an expression reads.
func eachName(x expr, fn func(*nameExpr)) {
	if n, ok := x.(*nameExpr); ok {
		fn(n)
		return
	}
	eachPart(x, func(e expr) { eachName(e, fn) })
}

// eachTarget calls fn with the names a target assigns.
func eachTarget(t target, fn func(*nameExpr)) {
	switch t := t.(type) {
	case *nameExpr:
		fn(t)
	case *tupleTarget:
		for _, item := range t.items {
			eachTarget(item, fn)
		}
	}
}

// undeclared finds which of the names are read in a body before anything in it
// assigns them. It looks into nested loops and macros, not into blocks.
func undeclared(body []stmt, names ...string) map[string]bool {
	u := &undeclaredFinder{open: map[string]bool{}, found: map[string]bool{}}
	for _, n := range names {
		u.open[n] = true
	}
	u.stmts(body)
	return u.found
}

type undeclaredFinder struct {
	open, found map[string]bool
}

func (u *undeclaredFinder) expr(x expr) {
	if x == nil {
		return
	}
	eachName(x, func(n *nameExpr) {
		if u.open[n.name] {
			u.found[n.name] = true
		}
	})
}

func (u *undeclaredFinder) target(t target) {
	eachTarget(t, func(n *nameExpr) { delete(u.open, n.name) })
}

func (u *undeclaredFinder) macro(def *macroDef) {
	for _, p := range def.params {
		u.target(p)
	}
	for _, d := range def.defaults {
		u.expr(d)
	}
	u.stmts(def.body)
}

func (u *undeclaredFinder) stmts(body []stmt) {
	for _, s := range body {
		switch s := s.(type) {
		case *outputStmt:
			u.expr(s.x)
		case *forStmt:
			u.target(s.target)
			u.expr(s.iter)
			u.stmts(s.body)
			u.stmts(s.orElse)
			u.expr(s.test)
		case *ifStmt:
			u.expr(s.test)
			u.stmts(s.body)
			for _, e := range s.elifs {
				u.expr(e.test)
				u.stmts(e.body)
			}
			u.stmts(s.orElse)
		case *setStmt:
			u.target(s.target)
			u.expr(s.x)
		case *setBlockStmt:
			u.target(s.target)
			if s.filter != nil {
				u.expr(s.filter)
			}
			u.stmts(s.body)
		case *withStmt:
			for _, t := range s.targets {
				u.target(t)
			}
			for _, v := range s.values {
				u.expr(v)
			}
			u.stmts(s.body)
		case *macroStmt:
			u.macro(s.def)
		case *callStmt:
			u.expr(s.call)
			u.macro(s.def)
		case *filterStmt:
			u.stmts(s.body)
			u.expr(s.filter)
		case *scopeStmt:
			u.stmts(s.body)
		}
	}
}
