package jinja

import "strings"

// strMethod is a method of strings: its parameters and its code.
type strMethod struct {
	sig signature
	fn  func(r *run, s string, b bound) (Value, error)
}

// stringAttr returns a bound string method.
func stringAttr(s, name string) (Value, bool, error) {
	if name == "format" {
		return method(name, func(r *run, a args) (Value, error) { return r.formatMethod(s, a) }), true, nil
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
		return m.fn(r, s, b)
	}), true, nil
}

func posSig(need int, params ...string) signature {
	return signature{params: params, min: need, posOnly: true}
}

// whole is a method without parameters that maps the text.
func whole(fn func(string) string) strMethod {
	return strMethod{fn: func(r *run, s string, _ bound) (Value, error) {
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
	return strMethod{sig: posSig(0, "chars"), fn: func(_ *run, s string, b bound) (Value, error) {
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
