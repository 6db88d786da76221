package jinja

import "fmt"

// binder resolves names to frame slots, and filters and tests to their code.
type binder struct {
	name string
}

// bind resolves a whole template and returns the layout of its outermost frame.
func bind(name string, body []stmt) (*scope, error) {
	b := &binder{name: name}
	s := newSymbols(nil)
	s.stmts(body)
	sc := s.finish()
	return sc, b.stmts(s, body, bindCtx{})
}

// bindCtx is the context of a statement.
type bindCtx struct {
	soft bool // inside of an if: unknown filters fail only when they run
	line int
}

func (b *binder) stmts(s *symbols, body []stmt, c bindCtx) error {
	for _, st := range body {
		c.line = st.lineNo()
		if err := b.stmt(s, st, c); err != nil {
			return err
		}
	}
	return nil
}

func (b *binder) stmt(s *symbols, st stmt, c bindCtx) error {
	switch st := st.(type) {
	case *outputStmt:
		return b.expr(s, st.x, c)
	case *forStmt:
		return b.forStmt(s, st, c)
	case *ifStmt:
		return b.ifStmt(s, st, c)
	case *setStmt:
		b.target(s, st.target)
		return b.expr(s, st.x, c)
	case *setBlockStmt:
		b.target(s, st.target)
		in := newSymbols(s)
		if st.filter != nil {
			in.expr(st.filter)
		}
		return b.inner(in, &st.scope, st.body, filterOrNil(st.filter))
	case *withStmt:
		return b.withStmt(s, st, c)
	case *macroStmt:
		s.bind(st.target)
		return b.macro(s, st.def)
	case *callStmt:
		if err := b.expr(s, st.call, c); err != nil {
			return err
		}
		return b.macro(s, st.def)
	case *filterStmt:
		in := newSymbols(s)
		in.expr(st.filter)
		return b.inner(in, &st.scope, st.body, st.filter)
	case *scopeStmt:
		return b.inner(newSymbols(s), &st.scope, st.body, nil)
	}
	return nil
}

func filterOrNil(f *filterExpr) expr {
	if f == nil {
		return nil
	}
	return f
}

// inner finishes a frame whose parameters are already declared, and binds its
// body and an expression evaluated inside of it.
func (b *binder) inner(in *symbols, out **scope, body []stmt, x expr) error {
	in.stmts(body)
	*out = in.finish()
	c := bindCtx{}
	if x != nil {
		if err := b.expr(in, x, c); err != nil {
			return err
		}
	}
	return b.stmts(in, body, c)
}

func (b *binder) forStmt(s *symbols, st *forStmt, c bindCtx) error {
	if err := b.expr(s, st.iter, c); err != nil {
		return err
	}
	if st.test != nil {
		in := newSymbols(s)
		in.params(st.target)
		in.expr(st.test)
		st.testScope = in.finish()
		st.testTarget = cloneTarget(st.target)
		b.target(in, st.testTarget)
		if err := b.expr(in, st.test, bindCtx{line: c.line}); err != nil {
			return err
		}
	}
	in := newSymbols(s)
	in.param("loop")
	in.params(st.target)
	if err := b.inner(in, &st.bodyScope, st.body, nil); err != nil {
		return err
	}
	st.loopSlot = in.slots["loop"]
	b.target(in, st.target)
	if st.orElse == nil {
		return nil
	}
	return b.inner(newSymbols(s), &st.elseScope, st.orElse, nil)
}

func (b *binder) ifStmt(s *symbols, st *ifStmt, c bindCtx) error {
	c.soft = true
	if err := b.expr(s, st.test, c); err != nil {
		return err
	}
	if err := b.stmts(s, st.body, c); err != nil {
		return err
	}
	for _, e := range st.elifs {
		if err := b.ifStmt(s, e, c); err != nil {
			return err
		}
	}
	return b.stmts(s, st.orElse, c)
}

func (b *binder) withStmt(s *symbols, st *withStmt, c bindCtx) error {
	in := newSymbols(s)
	for i, t := range st.targets {
		in.params(t)
		if err := b.expr(s, st.values[i], c); err != nil {
			return err
		}
	}
	if err := b.inner(in, &st.scope, st.body, nil); err != nil {
		return err
	}
	for _, t := range st.targets {
		b.target(in, t)
	}
	return nil
}

func (b *binder) macro(s *symbols, def *macroDef) error {
	in := newSymbols(s)
	for _, p := range def.params {
		in.param(p.name)
	}
	implicit := func(used bool, name string, slot *int) func() {
		*slot = -1
		if !used {
			return func() {}
		}
		in.param(name)
		return func() { *slot = in.slots[name] }
	}
	caller := implicit(def.usesCaller && !def.explicitCaller, "caller", &def.callerSlot)
	kwargs := implicit(def.usesKwargs, "kwargs", &def.kwargsSlot)
	varargs := implicit(def.usesVarargs, "varargs", &def.varargsSlot)
	for _, d := range def.defaults {
		in.expr(d)
	}
	if err := b.inner(in, &def.scope, def.body, nil); err != nil {
		return err
	}
	caller()
	kwargs()
	varargs()
	for _, p := range def.params {
		in.bind(p)
	}
	for _, d := range def.defaults {
		if err := b.expr(in, d, bindCtx{}); err != nil {
			return err
		}
	}
	return nil
}

func (b *binder) target(s *symbols, t target) {
	if ns, ok := t.(*nsTarget); ok {
		s.bind(ns.ns)
		return
	}
	eachTarget(t, s.bind)
}

func cloneTarget(t target) target {
	switch t := t.(type) {
	case *nameExpr:
		return &nameExpr{name: t.name}
	case *tupleTarget:
		c := &tupleTarget{}
		for _, item := range t.items {
			c.items = append(c.items, cloneTarget(item))
		}
		return c
	}
	return t
}

func (b *binder) expr(s *symbols, x expr, c bindCtx) error {
	unknown := func(what, name string, line int) error {
		return &SyntaxError{Template: b.name, Line: line, Msg: fmt.Sprintf("No %s named '%s'.", what, name)}
	}
	switch x := x.(type) {
	case *nameExpr:
		s.bind(x)
		return nil
	case *condExpr:
		c.soft = true
	case *filterExpr:
		if x.def = builtins().filters[x.name]; x.def == nil && !c.soft {
			return unknown("filter", x.name, x.line)
		}
	case *testExpr:
		if x.def = builtins().tests[x.name]; x.def == nil && !c.soft {
			return unknown("test", x.name, x.line)
		}
	}
	var err error
	eachPart(x, func(part expr) {
		if err == nil {
			err = b.expr(s, part, c)
		}
	})
	return err
}
