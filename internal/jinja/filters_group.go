package jinja

// uniqueFilter yields the first item of every key, lazily.
func uniqueFilter(r *run, v Value, b bound) (Value, error) {
	exact, err := b.flag(r, 0, false)
	if err != nil {
		return nil, err
	}
	key := r.attrGetter(b.or(1, nil), nil, !exact)
	return r.generator("generator", func() (iterator, error) {
		next, err := r.iter(v)
		if err != nil {
			return nil, err
		}
		seen := map[any]bool{}
		return func() (Value, bool, error) {
			for {
				item, ok, err := next()
				if err != nil || !ok {
					return nil, false, err
				}
				k, err := key(item)
				if err != nil {
					return nil, false, err
				}
				h, err := r.hash(k)
				if err != nil {
					return nil, false, err
				}
				if err := r.allocItems(1); err != nil {
					return nil, false, err
				}
				if !seen[h] {
					seen[h] = true
					return item, true, nil
				}
			}
		}, nil
	}), nil
}

// extreme makes min and max: the first item whose key no other beats.
func extreme(op string) func(*run, Value, bound) (Value, error) {
	return func(r *run, v Value, b bound) (Value, error) {
		exact, err := b.flag(r, 0, false)
		if err != nil {
			return nil, err
		}
		items, err := r.list(v)
		if err != nil {
			return nil, err
		}
		if len(items) == 0 {
			return &undefined{hint: "No aggregated item, sequence was empty."}, nil
		}
		key := r.attrGetter(b.or(1, nil), nil, !exact)
		var best, bestKey Value
		for i, item := range items {
			k, err := key(item)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				better, err := r.order(op, k, bestKey)
				if err != nil {
					return nil, err
				}
				if !better {
					continue
				}
			}
			best, bestKey = item, k
		}
		return best, nil
	}
}

func sumFilter(r *run, v Value, b bound) (Value, error) {
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	total := b.or(1, int64(0))
	if _, ok := asString(total); ok {
		return nil, typeErrorf("sum() can't sum strings [use ''.join(seq) instead]")
	}
	key := r.attrGetter(b.or(0, nil), nil, false)
	for _, item := range items {
		x, err := key(item)
		if err != nil {
			return nil, err
		}
		if err := r.step(1); err != nil {
			return nil, err
		}
		if total, err = r.binary("+", total, x); err != nil {
			return nil, err
		}
	}
	return total, nil
}

func batchFilter(r *run, v Value, b bound) (Value, error) {
	size, err := b.integer(0, 0)
	if err != nil {
		return nil, err
	}
	fill := b.or(1, nil)
	return r.generator("generator", func() (iterator, error) {
		items, err := r.list(v)
		if err != nil {
			return nil, err
		}
		switch {
		case size == 0 && len(items) > 0:
			// An empty batch is complete before the first item, never again.
			return over([]Value{&List{}, &List{items}}), nil
		case size <= 0:
			size = len(items)
		}
		return func() (Value, bool, error) {
			if len(items) == 0 {
				return nil, false, nil
			}
			n := min(size, len(items))
			row := items[:n:n]
			items = items[n:]
			if fill != nil && n < size {
				if err := r.allocItems(size); err != nil {
					return nil, false, err
				}
				for len(row) < size {
					row = append(row, fill)
				}
			}
			return &List{row}, true, nil
		}, nil
	}), nil
}

func sliceFilter(r *run, v Value, b bound) (Value, error) {
	slices, err := b.integer(0, 0)
	if err != nil {
		return nil, err
	}
	fill := b.or(1, nil)
	return r.generator("generator", func() (iterator, error) {
		items, err := r.list(v)
		if err != nil {
			return nil, err
		}
		if slices == 0 {
			return nil, errorf(ZeroDivisionError, "integer division or modulo by zero")
		}
		slices = max(slices, 0)
		i, at := 0, 0
		return func() (Value, bool, error) {
			if i >= slices {
				return nil, false, nil
			}
			n := len(items) / slices
			extra := i < len(items)%slices
			if extra {
				n++
			}
			if err := r.allocItems(n + 1); err != nil {
				return nil, false, err
			}
			row := append([]Value(nil), items[at:at+n]...)
			if fill != nil && !extra {
				row = append(row, fill)
			}
			i++
			at += n
			return &List{row}, true, nil
		}, nil
	}), nil
}

func groupBy(r *run, v Value, b bound) (Value, error) {
	def := b.or(1, nil)
	exact, err := b.flag(r, 2, false)
	if err != nil {
		return nil, err
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	key := r.attrGetter(b[0], def, !exact)
	if items, err = r.sortBy(items, key, false); err != nil {
		return nil, err
	}
	var groups []Value
	var current *List
	var currentKey Value
	for _, item := range items {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		if current != nil {
			same, err := r.equal(k, currentKey)
			if err != nil {
				return nil, err
			}
			if same {
				current.items = append(current.items, item)
				continue
			}
		}
		current, currentKey = &List{[]Value{item}}, k
		// The group shows the key of its first item as it was written.
		shown, err := r.attrGetter(b[0], def, false)(item)
		if err != nil {
			return nil, err
		}
		groups = append(groups, &Tuple{items: []Value{shown, current}, fields: []string{"grouper", "list"}})
	}
	return &List{groups}, nil
}

// attrFilter looks up an attribute and never an item.
func attrFilter(r *run, v Value, b bound) (Value, error) {
	name, err := r.str(b[0])
	if err != nil {
		return nil, err
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	got, ok, err := r.attribute(v, name)
	if err != nil || ok {
		return got, err
	}
	return undefinedAttr(v, name), nil
}
