package jinja

import (
	"sort"
	"strings"
)

func sequenceFilters() map[string]*filterDef {
	return map[string]*filterDef{
		"length":   filter(func(r *run, v Value, _ bound) (Value, error) { n, err := r.length(v); return int64(n), err }, 0),
		"default":  filter(defaultFilter, 0, "default_value", "boolean"),
		"first":    filter(firstFilter, 0),
		"last":     filter(lastFilter, 0),
		"list":     filter(listFilter, 0),
		"reverse":  filter(reverseFilter, 0),
		"join":     filter(joinFilter, 0, "d", "attribute"),
		"items":    filter(itemsFilter, 0),
		"dictsort": filter(dictSort, 0, "case_sensitive", "by", "reverse"),
		"sort":     filter(sortFilter, 0, "reverse", "case_sensitive", "attribute"),
		"unique":   filter(uniqueFilter, 0, "case_sensitive", "attribute"),
		"min":      filter(extreme("<"), 0, "case_sensitive", "attribute"),
		"max":      filter(extreme(">"), 0, "case_sensitive", "attribute"),
		"sum":      filter(sumFilter, 0, "attribute", "start"),
	}
}

func defaultFilter(r *run, v Value, b bound) (Value, error) {
	if _, ok := v.(*undefined); ok {
		return b.or(0, ""), nil
	}
	whenFalse, err := b.flag(r, 1, false)
	if err != nil || !whenFalse {
		return v, err
	}
	t, err := r.truth(v)
	if err != nil || t {
		return v, err
	}
	return b.or(0, ""), nil
}

func firstFilter(r *run, v Value, _ bound) (Value, error) {
	next, err := r.iter(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := next()
	if err != nil || ok {
		return item, err
	}
	return &undefined{hint: "No first item, sequence was empty."}, nil
}

func lastFilter(r *run, v Value, _ bound) (Value, error) {
	it, err := r.reversed(v)
	if err != nil {
		return nil, err
	}
	item, ok, err := it.next()
	if err != nil || ok {
		return item, err
	}
	return &undefined{hint: "No last item, sequence was empty."}, nil
}

func listFilter(r *run, v Value, _ bound) (Value, error) {
	items, err := r.list(v)
	return &List{items}, err
}

func reverseFilter(r *run, v Value, _ bound) (Value, error) {
	if s, ok := asString(v); ok {
		if err := r.alloc(5 * len(s)); err != nil {
			return nil, err
		}
		chars := []rune(s)
		for i, j := 0, len(chars)-1; i < j; i, j = i+1, j-1 {
			chars[i], chars[j] = chars[j], chars[i]
		}
		return string(chars), nil
	}
	if it, err := r.reversed(v); err == nil {
		return it, nil
	}
	if !r.iterable(v) {
		return nil, typeErrorf("argument must be iterable")
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	for i, item := range items {
		out[len(items)-1-i] = item
	}
	return &List{out}, nil
}

func joinFilter(r *run, v Value, b bound) (Value, error) {
	sep, err := r.str(b.or(0, ""))
	if err != nil {
		return nil, err
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	if b.has(1) && b[1] != nil {
		key := r.attrGetter(b[1], nil, false)
		items = append([]Value(nil), items...)
		for i, item := range items {
			if items[i], err = key(item); err != nil {
				return nil, err
			}
		}
	}
	return r.concat(items, sep)
}

func itemsFilter(r *run, v Value, _ bound) (Value, error) {
	return r.generator("generator", func() (iterator, error) {
		switch d := v.(type) {
		case *undefined:
			return over(nil), nil
		case *Dict:
			return r.iter(&dictView{"dict_items", d})
		}
		return nil, typeErrorf("Can only get item pairs from a mapping.")
	}), nil
}

// attrGetter returns a function that looks an attribute path up in an item, with
// a default for what is undefined, and with strings lowered if fold is set.
func (r *run) attrGetter(attr, def Value, fold bool) func(Value) (Value, error) {
	parts := attrParts(attr)
	return func(item Value) (Value, error) {
		for _, p := range parts {
			v, err := r.getitem(item, p)
			if err != nil {
				return nil, err
			}
			if _, undef := v.(*undefined); undef && def != nil {
				v = def
			}
			item = v
		}
		if s, ok := asString(item); ok && fold {
			return lower(s), r.alloc(len(s))
		}
		return item, nil
	}
}

// attrParts splits an attribute path; parts of digits are indexes.
func attrParts(attr Value) []Value {
	s, ok := asString(attr)
	if !ok {
		if attr == nil {
			return nil
		}
		return []Value{attr}
	}
	var parts []Value
	for _, p := range strings.Split(s, ".") {
		if i, ok := parseInt(p); ok && allRunes(p, isDigitRune) {
			parts = append(parts, i)
			continue
		}
		parts = append(parts, p)
	}
	return parts
}

// sortBy sorts items by keys, stably, in either direction.
func (r *run) sortBy(items []Value, key func(Value) (Value, error), reverse bool) ([]Value, error) {
	if err := r.allocItems(3 * len(items)); err != nil {
		return nil, err
	}
	type keyed struct{ key, item Value }
	all := make([]keyed, len(items))
	for i, item := range items {
		k, err := key(item)
		if err != nil {
			return nil, err
		}
		all[i] = keyed{k, item}
	}
	var failed error
	sort.SliceStable(all, func(i, j int) bool {
		if failed != nil {
			return false
		}
		if reverse {
			i, j = j, i
		}
		less, err := r.order("<", all[i].key, all[j].key)
		if err == nil {
			err = r.step(1)
		}
		failed = err
		return less
	})
	out := make([]Value, len(items))
	for i, k := range all {
		out[i] = k.item
	}
	return out, failed
}

func sortFilter(r *run, v Value, b bound) (Value, error) {
	exact, err := b.flag(r, 1, false)
	if err != nil {
		return nil, err
	}
	items, err := r.list(v)
	if err != nil {
		return nil, err
	}
	reverse, err := b.flag(r, 0, false)
	if err != nil {
		return nil, err
	}
	// The original compares lists of keys even for one attribute, so equal keys
	// need no order: two undefined ones do not fail.
	paths := []Value{b.or(2, nil)}
	if s, ok := asString(paths[0]); ok {
		paths = paths[:0]
		for _, p := range strings.Split(s, ",") {
			paths = append(paths, p)
		}
	}
	getters := make([]func(Value) (Value, error), len(paths))
	for i, p := range paths {
		getters[i] = r.attrGetter(p, nil, !exact)
	}
	key := func(item Value) (Value, error) {
		t := &Tuple{items: make([]Value, len(getters))}
		for i, get := range getters {
			var err error
			if t.items[i], err = get(item); err != nil {
				return nil, err
			}
		}
		return t, nil
	}
	out, err := r.sortBy(items, key, reverse)
	return &List{out}, err
}

func dictSort(r *run, v Value, b bound) (Value, error) {
	exact, err := b.flag(r, 0, false)
	if err != nil {
		return nil, err
	}
	by, err := b.text(1, "key")
	if err != nil {
		return nil, err
	}
	at := indexOf([]string{"key", "value"}, by)
	if at < 0 {
		return nil, valueErrorf(`You can only sort by either "key" or "value"`)
	}
	d, ok := v.(*Dict)
	if !ok {
		if u, undef := v.(*undefined); undef {
			return nil, u.fail()
		}
		return nil, typeErrorf("dictsort needs a mapping, not %s", typeName(v))
	}
	items, err := r.list(&dictView{"dict_items", d})
	if err != nil {
		return nil, err
	}
	reverse, err := b.flag(r, 2, false)
	if err != nil {
		return nil, err
	}
	out, err := r.sortBy(items, r.attrGetter(int64(at), nil, !exact), reverse)
	return &List{out}, err
}
