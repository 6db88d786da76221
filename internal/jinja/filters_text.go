package jinja

import "strings"

// onText makes a filter of a string function; anything else is taken as it
// prints.
func onText(fn func(string) string) *filterDef {
	return filter(func(r *run, v Value, _ bound) (Value, error) {
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := r.alloc(len(s)); err != nil {
			return nil, err
		}
		return fn(s), nil
	}, 0)
}

func textFilters() map[string]*filterDef {
	return map[string]*filterDef{
		"upper":      onText(upper),
		"lower":      onText(lower),
		"capitalize": onText(capitalize),
		"title":      onText(titleFilter),
		"trim":       filter(trimFilter, 0, "chars"),
		"replace":    filter(replaceFilter, 2, "old", "new", "count"),
		"indent":     filter(indentFilter, 0, "width", "first", "blank"),
		"format":     rawFilter(formatFilter),
		"tojson":     filter(tojsonFilter, 0, "ensure_ascii", "indent", "separators", "sort_keys"),
		"string":     filter(stringFilter, 0),
		"safe":       filter(stringFilter, 0), // nothing is escaped that does not ask for it
		"escape":     filter(func(r *run, v Value, _ bound) (Value, error) { return r.escape(v) }, 0),
	}
}

func stringFilter(r *run, v Value, _ bound) (Value, error) { return r.str(v) }

// titleFilter capitalizes after white space, hyphens and opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	start := 0
	flush := func(end int) {
		if end > start {
			b.WriteString(upperFirst(s[start:end]))
		}
	}
	for i, c := range s {
		if c == '-' || isSpace(c) || strings.ContainsRune("({[<", c) {
			flush(i)
			b.WriteRune(c)
			start = i + len(string(c))
		}
	}
	flush(len(s))
	return b.String()
}

func upperFirst(s string) string {
	n := runeOffset(s, 1)
	return upper(s[:n]) + lower(s[n:])
}

func trimFilter(r *run, v Value, b bound) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	chars, given, err := b.textOrNone(0)
	if err != nil {
		return nil, err
	}
	return stripText(s, chars, given, true, true), r.work(len(s))
}

func replaceFilter(r *run, v Value, b bound) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	from, err := r.str(b[0])
	if err != nil {
		return nil, err
	}
	to, err := r.str(b[1])
	if err != nil {
		return nil, err
	}
	count := -1
	if b.has(2) && b[2] != nil {
		if count, err = toIndex(b[2]); err != nil {
			return nil, err
		}
	}
	return r.replace(s, from, to, count)
}

// needText is for filters that, unlike most, do not turn other values into text.
func needText(v Value) (string, error) {
	if s, ok := asString(v); ok {
		return s, nil
	}
	if u, ok := v.(*undefined); ok {
		return "", u.fail()
	}
	return "", typeErrorf("expected str, got %s", typeName(v))
}

func indentFilter(r *run, v Value, b bound) (Value, error) {
	s, err := needText(v)
	if err != nil {
		return nil, err
	}
	prefix, ok := asString(b.or(0, int64(4)))
	if !ok {
		n, err := b.integer(0, 4)
		if err != nil {
			return nil, err
		}
		if err := r.alloc(max(n, 0)); err != nil {
			return nil, err
		}
		prefix = strings.Repeat(" ", max(n, 0))
	}
	first, err := b.flag(r, 1, false)
	if err != nil {
		return nil, err
	}
	blank, err := b.flag(r, 2, false)
	if err != nil {
		return nil, err
	}
	lines := splitLines(s+"\n", false)
	if len(prefix) > 0 && len(lines) > maxInt/2/len(prefix) {
		return nil, r.alloc(-1)
	}
	if err := r.alloc(len(s) + len(lines)*len(prefix)); err != nil {
		return nil, err
	}
	var out strings.Builder
	for i, line := range lines {
		if i > 0 {
			out.WriteByte('\n')
		}
		if i == 0 && first || i > 0 && (blank || line != "") {
			out.WriteString(prefix)
		}
		out.WriteString(line)
	}
	return out.String(), nil
}

func formatFilter(r *run, v Value, a args) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if len(a.kw) == 0 {
		return r.percent(s, &Tuple{items: a.pos})
	}
	if len(a.pos) > 0 {
		return nil, typeErrorf("can't handle positional and keyword arguments at the same time")
	}
	d := NewDict()
	for _, kw := range a.kw {
		d.Set(kw.name, kw.val)
	}
	return r.percent(s, d)
}
