package jinja

func (s *textStmt) exec(r *run, _ *frame) (signal, error) { return sigNone, r.write(s.text) }

func (s *outputStmt) exec(r *run, f *frame) (signal, error) {
	v, err := r.eval(s.x, f)
	if err != nil {
		return sigNone, err
	}
	return sigNone, r.print(v)
}

// print writes a value as its str.
func (r *run) print(v Value) error {
	text, err := r.str(v)
	if err != nil {
		return err
	}
	return r.write(text)
}

func (s *ifStmt) exec(r *run, f *frame) (signal, error) {
	for branch, rest := s, s.elifs; ; branch, rest = rest[0], rest[1:] {
		v, err := r.eval(branch.test, f)
		if err != nil {
			return sigNone, err
		}
		yes, err := r.truth(v)
		if err != nil {
			return sigNone, err
		}
		if yes {
			return r.body(branch.body, f)
		}
		if len(rest) == 0 {
			return r.body(s.orElse, f)
		}
	}
}

func (s *setStmt) exec(r *run, f *frame) (signal, error) {
	v, err := r.eval(s.x, f)
	if err != nil {
		return sigNone, err
	}
	return sigNone, r.assign(s.target, v, f)
}

func (s *setBlockStmt) exec(r *run, f *frame) (signal, error) {
	in, err := r.newFrame(f, s.scope)
	if err != nil {
		return sigNone, err
	}
	text, sig, err := r.capture(func() (signal, error) { return r.body(s.body, in) })
	if err != nil || sig != sigNone {
		return sig, err
	}
	var v Value = text
	if s.filter != nil {
		if v, err = s.filter.applyTo(r, in, v); err != nil {
			return sigNone, err
		}
	}
	return sigNone, r.assign(s.target, v, f)
}

func (r *run) assign(t target, v Value, f *frame) error {
	switch t := t.(type) {
	case *nameExpr:
		*f.slot(t) = v
	case *nsTarget:
		ns, ok := (*f.slot(t.ns)).(*namespace)
		if !ok {
			return errorf(RuntimeError, "cannot assign attribute on non-namespace object")
		}
		return r.setItem(ns.attrs, t.attr, v)
	case *tupleTarget:
		items, err := r.unpack(v, len(t.items))
		if err != nil {
			return err
		}
		for i, part := range t.items {
			if err := r.assign(part, items[i], f); err != nil {
				return err
			}
		}
	}
	return nil
}

// unpack takes exactly n items out of a value.
func (r *run) unpack(v Value, n int) ([]Value, error) {
	next, err := r.iter(v)
	if err != nil {
		return nil, typeErrorf("cannot unpack non-iterable %s object", typeName(v))
	}
	items := make([]Value, 0, n)
	for {
		item, ok, err := next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		if len(items) == n {
			return nil, valueErrorf("too many values to unpack (expected %d)", n)
		}
		items = append(items, item)
	}
	if len(items) < n {
		return nil, valueErrorf("not enough values to unpack (expected %d, got %d)", n, len(items))
	}
	return items, nil
}

func (s *withStmt) exec(r *run, f *frame) (signal, error) {
	in, err := r.newFrame(f, s.scope)
	if err != nil {
		return sigNone, err
	}
	for i, t := range s.targets {
		v, err := r.eval(s.values[i], f)
		if err != nil {
			return sigNone, err
		}
		if err := r.assign(t, v, in); err != nil {
			return sigNone, err
		}
	}
	return r.body(s.body, in)
}

func (s *filterStmt) exec(r *run, f *frame) (signal, error) {
	in, err := r.newFrame(f, s.scope)
	if err != nil {
		return sigNone, err
	}
	text, sig, err := r.capture(func() (signal, error) { return r.body(s.body, in) })
	if err != nil || sig != sigNone {
		return sig, err
	}
	v, err := s.filter.applyTo(r, in, text)
	if err != nil {
		return sigNone, err
	}
	return sigNone, r.print(v)
}

func (s *scopeStmt) exec(r *run, f *frame) (signal, error) {
	in, err := r.newFrame(f, s.scope)
	if err != nil {
		return sigNone, err
	}
	return r.body(s.body, in)
}

func (*breakStmt) exec(*run, *frame) (signal, error)    { return sigBreak, nil }
func (*continueStmt) exec(*run, *frame) (signal, error) { return sigContinue, nil }
