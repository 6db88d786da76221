package jinja

import "unicode/utf8"

// iter returns an iterator over a value.
func (r *run) iter(v Value) (iterator, error) {
	switch v := v.(type) {
	case string:
		return runes(v), nil
	case *List:
		return over(v.items), nil
	case *Tuple:
		return over(v.items), nil
	case *Dict:
		return over(v.keys), nil
	case *dictView:
		return counted(v.d.Len(), v.at), nil
	case *rangeValue:
		return counted(int(v.n), func(i int) Value { return v.start + int64(i)*v.step }), nil
	case *undefined:
		return over(nil), nil
	case *iterValue:
		return v.next, nil
	}
	return nil, typeErrorf("'%s' object is not iterable", typeName(v))
}

func (r *run) iterable(v Value) bool {
	_, err := r.iter(v)
	return err == nil
}

func over(items []Value) iterator {
	i := 0
	return func() (Value, bool, error) {
		if i >= len(items) {
			return nil, false, nil
		}
		i++
		return items[i-1], true, nil
	}
}

func counted(n int, at func(int) Value) iterator {
	i := 0
	return func() (Value, bool, error) {
		if i >= n {
			return nil, false, nil
		}
		i++
		return at(i - 1), true, nil
	}
}

func runes(s string) iterator {
	i := 0
	return func() (Value, bool, error) {
		if i >= len(s) {
			return nil, false, nil
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
		return s[i-size : i], true, nil
	}
}

// list collects the items of a value. The result may be shared with it.
func (r *run) list(v Value) ([]Value, error) {
	switch v := v.(type) {
	case *List:
		return v.items, nil
	case *Tuple:
		return v.items, nil
	}
	next, err := r.iter(v)
	if err != nil {
		return nil, err
	}
	var out []Value
	for {
		item, ok, err := next()
		if err != nil || !ok {
			return out, err
		}
		if err := r.allocItems(1); err != nil {
			return nil, err
		}
		out = append(out, item)
	}
}

// generator makes an iterator that starts its work when the first item is asked
// for, as Python's generators do.
func (r *run) generator(name string, start func() (iterator, error)) *iterValue {
	var next iterator
	done := false
	return &iterValue{typ: name, next: func() (Value, bool, error) {
		if done {
			return nil, false, nil
		}
		if err := r.step(1); err != nil {
			return nil, false, err
		}
		if next == nil {
			n, err := start()
			if err != nil {
				return nil, false, err
			}
			next = n
		}
		v, ok, err := next()
		done = !ok || err != nil
		return v, ok, err
	}}
}

// reversed iterates from the end.
func (r *run) reversed(v Value) (*iterValue, error) {
	n, ok := sizeOf(v)
	var at func(int) Value
	switch v := v.(type) {
	case string:
		if err := r.allocItems(n); err != nil {
			return nil, err
		}
		chars := []rune(v)
		at = func(i int) Value { return string(chars[i]) }
	case *List:
		at = func(i int) Value { return v.items[i] }
	case *Tuple:
		at = func(i int) Value { return v.items[i] }
	case *Dict:
		at = func(i int) Value { return v.keys[i] }
	case *dictView:
		at = v.at
	case *rangeValue:
		at = func(i int) Value { return v.start + int64(i)*v.step }
	case *undefined:
		return nil, v.fail()
	default:
		ok = false
	}
	if !ok {
		return nil, typeErrorf("'%s' object is not reversible", typeName(v))
	}
	return &iterValue{typ: "reversed", next: counted(n, func(i int) Value { return at(n - 1 - i) })}, nil
}
