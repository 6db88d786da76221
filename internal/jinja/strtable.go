package jinja

import (
	"strings"
	"unicode"
)

var strMethods = map[string]strMethod{
	"upper":      whole(upper),
	"lower":      whole(lower),
	"title":      whole(pyTitle),
	"capitalize": whole(capitalize),

	"isdigit":   whether(func(s string) bool { return allRunes(s, isDigitRune) }),
	"isnumeric": whether(func(s string) bool { return allRunes(s, isNumericRune) }),
	"isalpha":   whether(func(s string) bool { return allRunes(s, unicode.IsLetter) }),
	"isalnum":   whether(func(s string) bool { return allRunes(s, isAlnumRune) }),
	"isspace":   whether(func(s string) bool { return allRunes(s, isSpace) }),
	"isupper":   whether(func(s string) bool { return caseIs(s, isUpperRune) }),
	"islower":   whether(func(s string) bool { return caseIs(s, isLowerRune) }),

	"strip":  strip(true, true),
	"lstrip": strip(true, false),
	"rstrip": strip(false, true),

	"find":       find(false, false),
	"rfind":      find(true, false),
	"index":      find(false, true),
	"rindex":     find(true, true),
	"startswith": affix(strings.HasPrefix, "startswith"),
	"endswith":   affix(strings.HasSuffix, "endswith"),

	"zfill": {sig: posSig(1, "width"), fn: zfill},

	"split": {sig: signature{params: []string{"sep", "maxsplit"}}, fn: func(r *run, s string, b bound) (Value, error) {
		return splitBy(r, b, func(limit int) []string { return splitSpace(s, limit) }, func(sep string, limit int) []string {
			if limit < 0 {
				return strings.Split(s, sep)
			}
			return strings.SplitN(s, sep, limit+1)
		})
	}},
	"rsplit": {sig: signature{params: []string{"sep", "maxsplit"}}, fn: func(r *run, s string, b bound) (Value, error) {
		return splitBy(r, b, func(limit int) []string { return rsplitSpace(s, limit) }, func(sep string, limit int) []string {
			return rsplit(s, sep, limit)
		})
	}},
	"splitlines": {sig: signature{params: []string{"keepends"}}, fn: func(r *run, s string, b bound) (Value, error) {
		keep, err := b.flag(r, 0, false)
		if err != nil {
			return nil, err
		}
		return r.stringList(splitLines(s, keep))
	}},
	"partition":  {sig: posSig(1, "sep"), fn: partition(strings.Index, false)},
	"rpartition": {sig: posSig(1, "sep"), fn: partition(strings.LastIndex, true)},

	"join":    {sig: posSig(1, "iterable"), fn: joinMethod},
	"replace": {sig: posSig(2, "old", "new", "count"), fn: replaceMethod},
	"count": {sig: posSig(1, "sub", "start", "end"), fn: func(_ *run, s string, b bound) (Value, error) {
		sub, err := b.text(0, "")
		if err != nil {
			return nil, err
		}
		lo, hi, ok, err := window(s, b)
		if err != nil || !ok {
			return int64(0), err
		}
		return int64(strings.Count(s[lo:hi], sub)), nil
	}},
	"removeprefix": {sig: posSig(1, "prefix"), fn: func(_ *run, s string, b bound) (Value, error) {
		p, err := b.text(0, "")
		return strings.TrimPrefix(s, p), err
	}},
	"removesuffix": {sig: posSig(1, "suffix"), fn: func(_ *run, s string, b bound) (Value, error) {
		p, err := b.text(0, "")
		return strings.TrimSuffix(s, p), err
	}},

	// Templates only ask whether it is there; its bytes would be of no use.
	"encode": {fn: func(*run, string, bound) (Value, error) {
		return nil, errorf(SecurityError, "the method 'encode' is not available in chat templates")
	}},
}

// stringList makes a list of strings that are parts of an existing one.
func (r *run) stringList(parts []string) (Value, error) {
	if err := r.allocItems(len(parts)); err != nil {
		return nil, err
	}
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return &List{items}, nil
}

func splitBy(r *run, b bound, space func(limit int) []string, sep func(sep string, limit int) []string) (Value, error) {
	limit, err := b.integer(1, -1)
	if err != nil {
		return nil, err
	}
	if limit >= maxInt {
		limit = -1
	}
	mark, given, err := b.textOrNone(0)
	if err != nil {
		return nil, err
	}
	if !given {
		return r.stringList(space(limit))
	}
	if mark == "" {
		return nil, valueErrorf("empty separator")
	}
	return r.stringList(sep(mark, limit))
}

func partition(index func(s, sep string) int, last bool) func(*run, string, bound) (Value, error) {
	return func(_ *run, s string, b bound) (Value, error) {
		sep, err := b.text(0, "")
		if err != nil {
			return nil, err
		}
		if sep == "" {
			return nil, valueErrorf("empty separator")
		}
		at := index(s, sep)
		switch {
		case at >= 0:
			return &Tuple{items: []Value{s[:at], sep, s[at+len(sep):]}}, nil
		case last:
			return &Tuple{items: []Value{"", "", s}}, nil
		}
		return &Tuple{items: []Value{s, "", ""}}, nil
	}
}

func joinMethod(r *run, sep string, b bound) (Value, error) {
	if !r.iterable(b[0]) {
		return nil, typeErrorf("can only join an iterable")
	}
	items, err := r.list(b[0])
	if err != nil {
		return nil, err
	}
	for i, item := range items {
		if _, ok := asString(item); !ok {
			return nil, typeErrorf("sequence item %d: expected str instance, %s found", i, typeName(item))
		}
	}
	return r.concat(items, sep)
}

func replaceMethod(r *run, s string, b bound) (Value, error) {
	from, err := b.text(0, "")
	if err != nil {
		return nil, err
	}
	to, err := b.text(1, "")
	if err != nil {
		return nil, err
	}
	count, err := b.integer(2, -1)
	if err != nil {
		return nil, err
	}
	return r.replace(s, from, to, count)
}

func (r *run) replace(s, from, to string, count int) (Value, error) {
	n := strings.Count(s, from)
	if count >= 0 && count < n {
		n = count
	}
	if len(to) > 0 && n > maxInt/2/len(to) {
		return nil, r.alloc(-1)
	}
	if err := r.alloc(len(s) + n*len(to)); err != nil {
		return nil, err
	}
	return strings.Replace(s, from, to, n), nil
}

func zfill(r *run, s string, b bound) (Value, error) {
	width, err := b.integer(0, 0)
	if err != nil {
		return nil, err
	}
	n := width - runeCount(s)
	if n <= 0 {
		return s, nil
	}
	if err := r.alloc(len(s) + min(n, maxInt/2)); err != nil {
		return nil, err
	}
	sign := ""
	if strings.HasPrefix(s, "-") || strings.HasPrefix(s, "+") {
		sign, s = s[:1], s[1:]
	}
	return sign + strings.Repeat("0", n) + s, nil
}
