package jinja

// builtinTests returns the tests, the right side of is.
func builtinTests() map[string]*testDef {
	test := func(fn func(r *run, v Value, b bound) (bool, error), params ...string) *testDef {
		return &testDef{sig: &signature{params: params, min: len(params)}, fn: fn}
	}
	is := func(fn func(v Value) bool) *testDef {
		return test(func(_ *run, v Value, _ bound) (bool, error) { return fn(v), nil })
	}
	compare := func(op string) *testDef {
		return test(func(r *run, v Value, b bound) (bool, error) { return r.compareOp(op, v, b[0]) }, "other")
	}
	cased := func(fn func(string) bool) *testDef {
		return test(func(r *run, v Value, _ bound) (bool, error) {
			s, err := r.str(v)
			return fn(s), err
		})
	}
	remainder := func(want int64) *testDef {
		return test(func(r *run, v Value, _ bound) (bool, error) { return r.remainderIs(v, int64(2), want) })
	}
	t := map[string]*testDef{
		"defined":   is(func(v Value) bool { return !isUndefined(v) }),
		"undefined": is(isUndefined),
		"none":      is(func(v Value) bool { return v == nil }),
		"boolean":   is(func(v Value) bool { _, ok := v.(bool); return ok }),
		"true":      is(func(v Value) bool { return v == true }),
		"false":     is(func(v Value) bool { return v == false }),
		"integer": is(func(v Value) bool {
			_, isBool := v.(bool)
			_, ok := integer(v)
			return ok && !isBool
		}),
		"float":    is(func(v Value) bool { _, ok := v.(float64); return ok }),
		"number":   is(isNumber),
		"string":   is(func(v Value) bool { _, ok := asString(v); return ok }),
		"mapping":  is(func(v Value) bool { _, ok := v.(*Dict); return ok }),
		"sequence": is(isSequence),
		"iterable": test(func(r *run, v Value, _ bound) (bool, error) {
			_, err := r.iter(v)
			_, loop := v.(*loopContext)
			return err == nil || loop, nil
		}),
		"callable":    is(isCallable),
		"odd":         remainder(1),
		"even":        remainder(0),
		"divisibleby": test(func(r *run, v Value, b bound) (bool, error) { return r.remainderIs(v, b[0], 0) }, "num"),
		"lower":       cased(func(s string) bool { return caseIs(s, isLowerRune) }),
		"upper":       cased(func(s string) bool { return caseIs(s, isUpperRune) }),
		"sameas":      test(func(_ *run, v Value, b bound) (bool, error) { return sameAs(v, b[0]), nil }, "other"),
		"in":          test(func(r *run, v Value, b bound) (bool, error) { return r.contains(b[0], v) }, "seq"),
		"filter":      test(func(r *run, v Value, _ bound) (bool, error) { return known(r, v, r.lib.filters) }),
		"test":        test(func(r *run, v Value, _ bound) (bool, error) { return known(r, v, r.lib.tests) }),
	}
	for op, names := range map[string][]string{
		"==": {"eq", "equalto"}, "!=": {"ne"},
		">": {"gt", "greaterthan"}, ">=": {"ge"},
		"<": {"lt", "lessthan"}, "<=": {"le"},
	} {
		t[op] = compare(op)
		for _, name := range names {
			t[name] = t[op]
		}
	}
	return t
}

func known[T any](r *run, v Value, table map[string]T) (bool, error) {
	if _, err := r.hash(v); err != nil {
		return false, err
	}
	s, _ := asString(v)
	_, ok := table[s]
	return ok, nil
}

func isUndefined(v Value) bool {
	_, ok := v.(*undefined)
	return ok
}

func isSequence(v Value) bool {
	switch v.(type) {
	case string, *List, *Tuple, *Dict, *rangeValue, *undefined:
		return true
	}
	return false
}

func isCallable(v Value) bool {
	switch v.(type) {
	case *function, *macro, *joiner, *loopContext, *undefined:
		return true
	}
	return false
}

func (r *run) remainderIs(v, by Value, want int64) (bool, error) {
	m, err := r.binary("%", v, by)
	if err != nil {
		return false, err
	}
	return r.equal(m, want)
}

// sameAs is identity. Equal simple values count as one object.
func sameAs(a, b Value) bool {
	if typeName(a) != typeName(b) {
		return false
	}
	switch a.(type) {
	case *List, *Tuple, *Dict:
		return a == b
	}
	x, xInt := integer(a)
	y, yInt := integer(b)
	if xInt && yInt {
		return x.Cmp(y) == 0
	}
	return a == b
}
