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
