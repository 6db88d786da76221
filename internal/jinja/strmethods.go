package jinja

import "strings"

// strMethod is a method of strings: its parameters and its code.
type strMethod struct {
	sig signature
	// mark: the result of the method on safe HTML is safe HTML, and string
	// arguments are escaped first.
	mark bool
	fn   func(r *run, s string, b bound) (Value, error)
}

// stringAttr returns a bound string method.
func stringAttr(s string, mark bool, name string) (Value, bool, error) {
	if name == "format" || name == "format_map" {
		return method(name, func(r *run, a args) (Value, error) { return r.formatMethod(s, mark, name, a) }), true, nil
	}
	m, ok := strMethods[name]
	if !ok {
		return nil, false, nil
	}
	return method(name, func(r *run, a args) (Value, error) {
		b, err := m.sig.bind(name, a)
		if err != nil {
			return nil, err
		}
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		mark := mark && m.mark
		if mark {
			if err := r.escapeArgs(name, b); err != nil {
				return nil, err
			}
		}
		v, err := m.fn(r, s, b)
		if !mark || err != nil {
			return v, err
		}
		return markAll(v), nil
	}), true, nil
}

// escapeArgs escapes the string arguments of a method of safe HTML, and the items
// that are to be joined.
func (r *run) escapeArgs(name string, b bound) error {
	for i, v := range b {
		if _, ok := asString(v); ok && name != "join" {
			b[i] = escapeValue(v)
		}
	}
	if name != "join" {
		return nil
	}
	items, err := r.list(b[0])
	if err != nil {
		return err
	}
	escaped := make([]Value, len(items))
	for i, item := range items {
		m, err := r.escape(item)
		if err != nil {
			return err
		}
		escaped[i] = string(m)
	}
	b[0] = &List{escaped}
	return nil
}

// markAll marks a string or the strings of a list as safe.
func markAll(v Value) Value {
	switch v := v.(type) {
	case string:
		return markup(v)
	case *List:
		for i, item := range v.items {
			v.items[i] = markAll(item)
		}
	case *Tuple:
		for i, item := range v.items {
			v.items[i] = markAll(item)
		}
	}
	return v
}

func posSig(need int, params ...string) signature {
	return signature{params: params, min: need, posOnly: true}
}

// whole is a method without parameters that maps the text.
func whole(fn func(string) string, mark bool) strMethod {
	return strMethod{mark: mark, fn: func(r *run, s string, _ bound) (Value, error) {
		if err := r.alloc(len(s)); err != nil {
			return nil, err
		}
		return fn(s), nil
	}}
}

// whether is a method without parameters that tests the text.
func whether(fn func(string) bool) strMethod {
	return strMethod{fn: func(_ *run, s string, _ bound) (Value, error) { return fn(s), nil }}
}

func strip(left, right bool) strMethod {
	return strMethod{sig: posSig(0, "chars"), mark: true, fn: func(_ *run, s string, b bound) (Value, error) {
		chars, given, err := b.textOrNone(0)
		if err != nil {
			return nil, err
		}
		return stripText(s, chars, given, left, right), nil
	}}
}

func stripText(s, chars string, given, left, right bool) string {
	cut := isSpace
	if given {
		cut = func(c rune) bool { return strings.ContainsRune(chars, c) }
	}
	if left {
		s = strings.TrimLeftFunc(s, cut)
	}
	if right {
		s = strings.TrimRightFunc(s, cut)
	}
	return s
}

// find makes find, rfind, index and rindex.
func find(last, must bool) strMethod {
	return strMethod{sig: posSig(1, "sub", "start", "end"), fn: func(_ *run, s string, b bound) (Value, error) {
		sub, err := b.text(0, "")
		if err != nil {
			return nil, err
		}
		lo, hi, ok, err := window(s, b)
		if err != nil {
			return nil, err
		}
		at := -1
		if ok {
			if last {
				at = strings.LastIndex(s[lo:hi], sub)
			} else {
				at = strings.Index(s[lo:hi], sub)
			}
		}
		if at < 0 {
			if must {
				return nil, valueErrorf("substring not found")
			}
			return int64(-1), nil
		}
		return int64(runeCount(s[:lo+at])), nil
	}}
}

// window reads the arguments start and end, parameters 1 and 2, as byte offsets;
// it is false if they leave nothing, not even an empty string, to search.
func window(s string, b bound) (lo, hi int, ok bool, err error) {
	if !b.has(1) && !b.has(2) {
		return 0, len(s), true, nil
	}
	n := runeCount(s)
	if b.has(1) && b[1] != nil {
		start, err := toIndex(b[1])
		if err != nil {
			return 0, 0, false, err
		}
		if start > n {
			return 0, 0, false, nil
		}
	}
	from, to, err := indexRange(b, 1, n)
	if err != nil || from > to {
		return 0, 0, false, err
	}
	return runeOffset(s, from), runeOffset(s, to), true, nil
}

// affix makes startswith and endswith.
func affix(has func(s, affix string) bool, name string) strMethod {
	return strMethod{sig: posSig(1, "prefix", "start", "end"), fn: func(_ *run, s string, b bound) (Value, error) {
		lo, hi, ok, err := window(s, b)
		if err != nil {
			return nil, err
		}
		tries := []Value{b[0]}
		if t, isTuple := b[0].(*Tuple); isTuple {
			tries = t.items
		}
		for _, try := range tries {
			a, isString := asString(try)
			if !isString {
				return nil, typeErrorf("%s first arg must be str or a tuple of str, not %s", name, typeName(try))
			}
			if ok && has(s[lo:hi], a) {
				return true, nil
			}
		}
		return false, nil
	}}
}

// justify makes ljust, rjust and center.
func justify(pad func(s string, n int, fill string) string) strMethod {
	return strMethod{sig: posSig(1, "width", "fillchar"), mark: true, fn: func(r *run, s string, b bound) (Value, error) {
		width, err := b.integer(0, 0)
		if err != nil {
			return nil, err
		}
		fill, err := b.text(1, " ")
		if err != nil {
			return nil, err
		}
		if runeCount(fill) != 1 {
			return nil, typeErrorf("The fill character must be exactly one character long")
		}
		n := width - runeCount(s)
		if n <= 0 {
			return s, nil
		}
		if err := r.alloc(len(s) + min(n, maxInt/8)*len(fill)); err != nil {
			return nil, err
		}
		return pad(s, n, fill), nil
	}}
}

func centerPad(s string, n int, fill string) string {
	width := n + runeCount(s)
	left := n/2 + n&width&1
	return strings.Repeat(fill, left) + s + strings.Repeat(fill, n-left)
}
