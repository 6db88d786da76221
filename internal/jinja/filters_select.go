package jinja

func selectFilters() map[string]*filterDef {
	return map[string]*filterDef{
		"map":        rawFilter(mapFilter),
		"select":     rawFilter(selecting(true, false)),
		"reject":     rawFilter(selecting(false, false)),
		"selectattr": rawFilter(selecting(true, true)),
		"rejectattr": rawFilter(selecting(false, true)),
	}
}

// lazily yields what step makes of the items of v; step is prepared when the
// first item is asked for, and not at all if v is false.
func (r *run) lazily(v Value, prepare func() (func(Value) (Value, bool, error), error)) Value {
	return r.generator("generator", func() (iterator, error) {
		some, err := r.truth(v)
		if err != nil {
			return nil, err
		}
		if !some {
			return over(nil), nil
		}
		each, err := prepare()
		if err != nil {
			return nil, err
		}
		next, err := r.iter(v)
		if err != nil {
			return nil, err
		}
		return func() (Value, bool, error) {
			for {
				item, ok, err := next()
				if err != nil || !ok {
					return nil, false, err
				}
				if err := r.step(1); err != nil {
					return nil, false, err
				}
				out, keep, err := each(item)
				if err != nil || keep {
					return out, err == nil, err
				}
			}
		}, nil
	})
}

// mapFilter looks up an attribute of every item or applies a filter to it.
func mapFilter(r *run, v Value, a args) (Value, error) {
	return r.lazily(v, func() (func(Value) (Value, bool, error), error) {
		if attr := a.named("attribute"); len(a.pos) == 0 && attr != missing {
			def := a.named("default")
			if def == missing {
				def = nil
			}
			for _, kw := range a.kw {
				if kw.name != "attribute" && kw.name != "default" {
					return nil, typeErrorf("Unexpected keyword argument '%s'", kw.name)
				}
			}
			get := r.attrGetter(attr, def, false)
			return func(item Value) (Value, bool, error) {
				out, err := get(item)
				return out, true, err
			}, nil
		}
		if len(a.pos) == 0 {
			return nil, typeErrorf("map requires a filter argument")
		}
		name, err := r.str(a.pos[0])
		if err != nil {
			return nil, err
		}
		rest := args{pos: a.pos[1:], kw: a.kw}
		return func(item Value) (Value, bool, error) {
			out, err := r.callFilter(name, item, rest)
			return out, true, err
		}, nil
	}), nil
}

// selecting makes select and its kin: keep the items that pass, or that fail, a
// test of themselves or of an attribute.
func selecting(keep, byAttr bool) func(*run, Value, args) (Value, error) {
	return func(r *run, v Value, a args) (Value, error) {
		return r.lazily(v, func() (func(Value) (Value, bool, error), error) {
			get := func(item Value) (Value, error) { return item, nil }
			pos := a.pos
			if byAttr {
				if len(pos) == 0 {
					return nil, typeErrorf("Missing parameter for attribute name")
				}
				get = r.attrGetter(pos[0], nil, false)
				pos = pos[1:]
			}
			check := r.truth
			if len(pos) > 0 {
				name, err := r.str(pos[0])
				if err != nil {
					return nil, err
				}
				rest := args{pos: pos[1:], kw: a.kw}
				check = func(item Value) (bool, error) { return r.callTest(name, item, rest) }
			}
			return func(item Value) (Value, bool, error) {
				x, err := get(item)
				if err != nil {
					return nil, false, err
				}
				ok, err := check(x)
				return item, ok == keep, err
			}, nil
		}), nil
	}
}
