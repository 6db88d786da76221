package jinja

import "strings"

// slice is v[lo:hi:step].
func (r *run) slice(v, lo, hi, step Value) (Value, error) {
	n, sized := sizeOf(v)
	switch v := v.(type) {
	case *undefined:
		return nil, v.fail()
	case *Dict:
		return nil, typeErrorf("unhashable type: 'slice'")
	case *dictView:
		sized = false
	}
	if !sized {
		return nil, typeErrorf("'%s' object is not subscriptable", typeName(v))
	}
	from, count, by, err := sliceBounds(lo, hi, step, n)
	if err != nil {
		return nil, err
	}
	switch v := v.(type) {
	case string:
		return r.sliceText(v, from, count, by)
	case *List:
		items, err := r.sliceItems(v.items, from, count, by)
		return &List{items}, err
	case *Tuple:
		items, err := r.sliceItems(v.items, from, count, by)
		return &Tuple{items: items}, err
	}
	rng := v.(*rangeValue)
	start := rng.start + int64(from)*rng.step
	inc := rng.step * int64(by)
	return &rangeValue{start: start, step: inc, stop: start + int64(count)*inc, n: int64(count)}, nil
}

// sliceBounds resolves a slice of n items to a first index, a count and a step.
func sliceBounds(lo, hi, step Value, n int) (from, count, by int, err error) {
	by = 1
	if step != nil {
		if by, err = sliceIndex(step); err != nil {
			return
		}
		if by == 0 {
			return 0, 0, 0, valueErrorf("slice step cannot be zero")
		}
		by = min(max(by, -maxInt), maxInt)
	}
	low, high := 0, n
	if by < 0 {
		low, high = -1, n-1
	}
	bound := func(v Value, def int) (int, error) {
		if v == nil {
			return def, nil
		}
		i, err := sliceIndex(v)
		if i < 0 {
			i += n
		}
		return min(max(i, low), high), err
	}
	first, last := low, high
	if by < 0 {
		first, last = high, low
	}
	if from, err = bound(lo, first); err != nil {
		return
	}
	end, err := bound(hi, last)
	if err != nil {
		return
	}
	switch {
	case by > 0 && end > from:
		count = (end-from-1)/by + 1
	case by < 0 && end < from:
		count = (from-end-1)/-by + 1
	}
	return from, count, by, nil
}

func sliceIndex(v Value) (int, error) {
	if _, ok := integer(v); !ok {
		return 0, typeErrorf("slice indices must be integers or None or have an __index__ method")
	}
	return toIndex(v)
}

func (r *run) sliceItems(items []Value, from, count, by int) ([]Value, error) {
	if err := r.allocItems(count); err != nil {
		return nil, err
	}
	out := make([]Value, count)
	for i := range out {
		out[i] = items[from+i*by]
	}
	return out, nil
}

func (r *run) sliceText(s string, from, count, by int) (string, error) {
	if err := r.work(len(s)); err != nil {
		return "", err
	}
	if by == 1 {
		return substring(s, from, from+count), nil
	}
	if err := r.alloc(4*len(s) + 4*count); err != nil {
		return "", err
	}
	chars := []rune(s)
	var b strings.Builder
	for i := range count {
		b.WriteRune(chars[from+i*by])
	}
	return b.String(), nil
}
