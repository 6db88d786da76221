package jinja

func (x *constExpr) eval(*run, *frame) (Value, error) { return x.val, nil }

func (x *nameExpr) eval(r *run, f *frame) (Value, error) {
	if v := *f.slot(x); v != missing {
		return v, nil
	}
	return undefinedName(x.name), nil
}

func (x *tupleExpr) eval(r *run, f *frame) (Value, error) {
	items, err := r.evalAll(x.items, f)
	return &Tuple{items: items}, err
}

func (x *listExpr) eval(r *run, f *frame) (Value, error) {
	items, err := r.evalAll(x.items, f)
	return &List{items}, err
}

func (x *dictExpr) eval(r *run, f *frame) (Value, error) {
	d := NewDict()
	for i, kx := range x.keys {
		k, err := r.eval(kx, f)
		if err != nil {
			return nil, err
		}
		v, err := r.eval(x.vals[i], f)
		if err != nil {
			return nil, err
		}
		if err := r.setItem(d, k, v); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (x *binExpr) eval(r *run, f *frame) (Value, error) {
	a, err := r.eval(x.l, f)
	if err != nil {
		return nil, err
	}
	b, err := r.eval(x.r, f)
	if err != nil {
		return nil, err
	}
	return r.binary(x.op, a, b)
}

func (x *logicExpr) eval(r *run, f *frame) (Value, error) {
	a, err := r.eval(x.l, f)
	if err != nil {
		return nil, err
	}
	t, err := r.truth(a)
	if err != nil || t != x.and {
		return a, err
	}
	return r.eval(x.r, f)
}

func (x *unaryExpr) eval(r *run, f *frame) (Value, error) {
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	if x.op == '!' {
		t, err := r.truth(v)
		return !t, err
	}
	return unary(x.op, v)
}

func (x *concatExpr) eval(r *run, f *frame) (Value, error) {
	vals, err := r.evalAll(x.parts, f)
	if err != nil {
		return nil, err
	}
	return r.concat(vals, "")
}

func (x *compareExpr) eval(r *run, f *frame) (Value, error) {
	a, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	for i, op := range x.ops {
		b, err := r.eval(op.x, f)
		if err != nil {
			return nil, err
		}
		ok, err := r.compareOp(op.op, a, b)
		if err != nil {
			return nil, err
		}
		if !ok || i == len(x.ops)-1 {
			return ok, nil
		}
		a = b
	}
	return true, nil
}

func (x *condExpr) eval(r *run, f *frame) (Value, error) {
	t, err := r.eval(x.test, f)
	if err != nil {
		return nil, err
	}
	yes, err := r.truth(t)
	if err != nil {
		return nil, err
	}
	switch {
	case yes:
		return r.eval(x.yes, f)
	case x.no != nil:
		return r.eval(x.no, f)
	}
	return &undefined{hint: "the inline if-expression on line " + formatInt(int64(x.line)) +
		" evaluated to false and no else section was defined."}, nil
}

func (x *attrExpr) eval(r *run, f *frame) (Value, error) {
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	return r.getattr(v, x.name)
}

func (x *itemExpr) eval(r *run, f *frame) (Value, error) {
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	arg, err := r.eval(x.arg, f)
	if err != nil {
		return nil, err
	}
	return r.getitem(v, arg)
}

func (x *sliceExpr) eval(r *run, f *frame) (Value, error) {
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	var bounds [3]Value
	for i, part := range []expr{x.lo, x.hi, x.step} {
		if part == nil {
			continue
		}
		if bounds[i], err = r.eval(part, f); err != nil {
			return nil, err
		}
	}
	return r.slice(v, bounds[0], bounds[1], bounds[2])
}

func (x *callExpr) eval(r *run, f *frame) (Value, error) {
	return x.call(r, f, nil)
}

// call evaluates a call; caller is the body of a call block or nil.
func (x *callExpr) call(r *run, f *frame, caller *macro) (Value, error) {
	fn, err := r.eval(x.fn, f)
	if err != nil {
		return nil, err
	}
	a, err := x.args.eval(r, f)
	if err != nil {
		return nil, err
	}
	if caller != nil {
		a.kw = append(a.kw, kwArg{"caller", caller})
	}
	return r.call(fn, a)
}

func (x *filterExpr) eval(r *run, f *frame) (Value, error) {
	if x.x == nil {
		return nil, errorf(RuntimeError, "filter '%s' has no value", x.name)
	}
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	return x.apply(r, f, v)
}

func (x *filterExpr) apply(r *run, f *frame, v Value) (Value, error) {
	if x.def == nil {
		return nil, errorf(RuntimeError, "No filter named '%s' found.", x.name)
	}
	a, err := x.args.eval(r, f)
	if err != nil {
		return nil, err
	}
	return x.def.apply(r, x.name, v, a)
}

// applyTo runs a chain of filters over the text of a block.
func (x *filterExpr) applyTo(r *run, f *frame, text Value) (Value, error) {
	if x.x != nil {
		inner, err := x.x.(*filterExpr).applyTo(r, f, text)
		if err != nil {
			return nil, err
		}
		text = inner
	}
	return x.apply(r, f, text)
}

func (x *testExpr) eval(r *run, f *frame) (Value, error) {
	v, err := r.eval(x.x, f)
	if err != nil {
		return nil, err
	}
	if x.def == nil {
		return nil, errorf(RuntimeError, "No test named '%s' found.", x.name)
	}
	a, err := x.args.eval(r, f)
	if err != nil {
		return nil, err
	}
	return x.def.apply(r, x.name, v, a)
}
