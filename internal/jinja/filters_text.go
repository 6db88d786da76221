package jinja

import (
	"strings"
	"unicode"
)

// onText makes a filter of a string function; anything else is taken as it
// prints. Safe HTML stays safe.
func onText(fn func(string) string) *filterDef {
	return filter(func(r *run, v Value, _ bound) (Value, error) {
		s, err := r.str(v)
		if err != nil {
			return nil, err
		}
		if err := r.alloc(len(s)); err != nil {
			return nil, err
		}
		return remark(fn(s), isMarkup(v)), nil
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
		"center":     filter(centerFilter, 0, "width"),
		"truncate":   filter(truncateFilter, 0, "length", "killwords", "end", "leeway"),
		"wordcount":  filter(wordCount, 0),
		"urlencode":  filter(urlencodeFilter, 0),
		"format":     rawFilter(formatFilter),
		"tojson":     filter(tojsonFilter, 0, "ensure_ascii", "indent", "separators", "sort_keys"),
		"string": filter(func(r *run, v Value, _ bound) (Value, error) {
			if isMarkup(v) {
				return v, nil
			}
			return r.str(v)
		}, 0),
		"escape": filter(func(r *run, v Value, _ bound) (Value, error) { return r.escape(v) }, 0),
		"forceescape": filter(func(r *run, v Value, _ bound) (Value, error) {
			s, err := r.str(v)
			if err != nil {
				return nil, err
			}
			return r.escape(s)
		}, 0),
		"safe": filter(func(r *run, v Value, _ bound) (Value, error) {
			s, err := r.str(v)
			return markup(s), err
		}, 0),
		"striptags": filter(stripTags, 0),
		"xmlattr":   filter(xmlAttr, 0, "autospace"),
	}
}

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
	return remark(stripText(s, chars, given, true, true), isMarkup(v)), r.work(len(s))
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
	return remark(out.String(), isMarkup(v)), nil
}

func centerFilter(r *run, v Value, b bound) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	width, err := b.integer(0, 80)
	if err != nil {
		return nil, err
	}
	out, err := strMethods["center"].fn(r, s, bound{int64(width), missing})
	if err != nil {
		return nil, err
	}
	return remark(out.(string), isMarkup(v)), nil
}

func truncateFilter(r *run, v Value, b bound) (Value, error) {
	size, err := r.length(v)
	if err != nil {
		return nil, err
	}
	length, err := b.integer(0, 255)
	if err != nil {
		return nil, err
	}
	kill, err := b.flag(r, 1, false)
	if err != nil {
		return nil, err
	}
	end, err := b.text(2, "...")
	if err != nil {
		return nil, err
	}
	leeway := 5
	if b.has(3) && b[3] != nil {
		if leeway, err = toIndex(b[3]); err != nil {
			return nil, err
		}
	}
	n := runeCount(end)
	if length < n {
		return nil, errorf("AssertionError", "expected length >= %d, got %d", n, length)
	}
	if leeway < 0 {
		return nil, errorf("AssertionError", "expected leeway >= 0, got %d", leeway)
	}
	if size-length <= leeway {
		return v, nil
	}
	s, err := needText(v)
	if err != nil {
		return nil, err
	}
	head := substring(s, 0, length-n)
	if !kill {
		head = rsplit(head, " ", 1)[0]
	}
	return remark(head+end, isMarkup(v)), r.alloc(len(head) + len(end))
}

func wordCount(r *run, v Value, _ bound) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	n, inWord := int64(0), false
	for _, c := range s {
		word := c == '_' || isAlnumRune(c)
		if word && !inWord {
			n++
		}
		inWord = word
	}
	return n, r.work(len(s))
}

func formatFilter(r *run, v Value, a args) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if len(a.kw) == 0 {
		return r.percent(s, isMarkup(v), &Tuple{items: a.pos})
	}
	if len(a.pos) > 0 {
		return nil, typeErrorf("can't handle positional and keyword arguments at the same time")
	}
	d := NewDict()
	for _, kw := range a.kw {
		d.Set(kw.name, kw.val)
	}
	return r.percent(s, isMarkup(v), d)
}

// urlencodeFilter quotes a string for a path, pairs for a query.
func urlencodeFilter(r *run, v Value, _ bound) (Value, error) {
	var pairs []Value
	d, isDict := v.(*Dict)
	_, isText := asString(v)
	switch {
	case isDict:
		for i := range d.keys {
			pairs = append(pairs, &Tuple{items: []Value{d.keys[i], d.vals[i]}})
		}
	case !isText && r.iterable(v):
		items, err := r.list(v)
		if err != nil {
			return nil, err
		}
		pairs = items
	default:
		return r.quoteURL(v, false)
	}
	var parts []Value
	for _, pair := range pairs {
		kv, err := r.unpack(pair, 2)
		if err != nil {
			return nil, err
		}
		k, err := r.quoteURL(kv[0], true)
		if err != nil {
			return nil, err
		}
		val, err := r.quoteURL(kv[1], true)
		if err != nil {
			return nil, err
		}
		parts = append(parts, k+"="+val)
	}
	return r.concat(parts, "&")
}

func (r *run) quoteURL(v Value, query bool) (string, error) {
	s, err := r.str(v)
	if err != nil {
		return "", err
	}
	if err := r.alloc(3 * len(s)); err != nil {
		return "", err
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		switch {
		case isDigit(c) || c|32 >= 'a' && c|32 <= 'z' || strings.IndexByte("_.-~", c) >= 0 || c == '/' && !query:
			b.WriteByte(c)
		case c == ' ' && query:
			b.WriteByte('+')
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String(), nil
}

// stripTags removes comments and tags and joins what is left by single spaces.
func stripTags(r *run, v Value, _ bound) (Value, error) {
	s, err := r.str(v)
	if err != nil {
		return nil, err
	}
	if err := r.alloc(2 * len(s)); err != nil {
		return nil, err
	}
	s = cutBetween(s, "<!--", "-->")
	s = cutBetween(s, "<", ">")
	s = strings.Join(splitSpace(s, -1), " ")
	return strings.NewReplacer("&amp;", "&", "&lt;", "<", "&gt;", ">", "&#39;", "'", "&#34;", `"`, "&quot;", `"`).Replace(s), nil
}

func cutBetween(s, open, end string) string {
	var b strings.Builder
	for {
		i := strings.Index(s, open)
		if i < 0 {
			break
		}
		j := strings.Index(s[i+len(open):], end)
		if j < 0 {
			break
		}
		b.WriteString(s[:i])
		s = s[i+len(open)+j+len(end):]
	}
	b.WriteString(s)
	return b.String()
}

func xmlAttr(r *run, v Value, b bound) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, typeErrorf("xmlattr needs a mapping, not %s", typeName(v))
	}
	space, err := b.flag(r, 0, true)
	if err != nil {
		return nil, err
	}
	var parts []Value
	for i, k := range d.keys {
		val := d.vals[i]
		if _, undef := val.(*undefined); undef || val == nil {
			continue
		}
		name, err := needText(k)
		if err != nil {
			return nil, err
		}
		if strings.ContainsFunc(name, func(c rune) bool { return unicode.IsSpace(c) || strings.ContainsRune("/>=", c) }) {
			return nil, valueErrorf("Invalid character in attribute name: %s", quoteString(name))
		}
		key, err := r.escape(k)
		if err != nil {
			return nil, err
		}
		text, err := r.escape(val)
		if err != nil {
			return nil, err
		}
		parts = append(parts, string(key)+`="`+string(text)+`"`)
	}
	out, err := r.concat(parts, " ")
	if space && out != "" {
		out = " " + out
	}
	return out, err
}
