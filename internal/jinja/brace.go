package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// bracer runs str.format.
type bracer struct {
	r    *run
	mark bool // fields are escaped
	args args
	auto int // next automatic field, -1 after an explicit number
	b    strings.Builder
}

func (r *run) formatMethod(format string, mark bool, name string, a args) (Value, error) {
	if name == "format_map" {
		b, err := posSig(1, "mapping").bind(name, a)
		if err != nil {
			return nil, err
		}
		d, ok := b[0].(*Dict)
		if !ok {
			return nil, typeErrorf("format_map() needs a mapping, not %s", typeName(b[0]))
		}
		a = args{}
		for i, k := range d.keys {
			if s, ok := asString(k); ok {
				a.kw = append(a.kw, kwArg{s, d.vals[i]})
			}
		}
	}
	f := &bracer{r: r, mark: mark, args: a}
	if err := f.run(format, 2); err != nil {
		return nil, err
	}
	return remark(f.b.String(), mark), nil
}

func (f *bracer) write(s string) error {
	if err := f.r.alloc(len(s)); err != nil {
		return err
	}
	f.b.WriteString(s)
	return nil
}

// run formats text; depth bounds fields inside of format specifications.
func (f *bracer) run(s string, depth int) error {
	if depth < 0 {
		return valueErrorf("Max string recursion exceeded")
	}
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			return f.write(s)
		}
		if err := f.write(s[:i]); err != nil {
			return err
		}
		c := s[i]
		s = s[i+1:]
		switch {
		case s != "" && s[0] == c:
			if err := f.write(string(c)); err != nil {
				return err
			}
			s = s[1:]
		case c == '}':
			return valueErrorf("Single '}' encountered in format string")
		default:
			end := fieldEnd(s)
			if end < 0 {
				return valueErrorf("expected '}' before end of string")
			}
			if err := f.field(s[:end], depth); err != nil {
				return err
			}
			s = s[end+1:]
		}
	}
	return nil
}

// fieldEnd finds the brace that closes a field.
func fieldEnd(s string) int {
	depth := 1
	for i := range len(s) {
		switch s[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// field formats name!conversion:spec.
func (f *bracer) field(s string, depth int) error {
	name, spec, conv := s, "", byte(0)
	if i := fieldSplit(s); i >= 0 {
		name = s[:i]
		rest := s[i:]
		if rest[0] == '!' {
			if len(rest) < 2 {
				return valueErrorf("end of string while looking for conversion specifier")
			}
			conv = rest[1]
			rest = rest[2:]
			if rest != "" && rest[0] != ':' {
				return valueErrorf("expected ':' after conversion specifier")
			}
		}
		spec = strings.TrimPrefix(rest, ":")
	}
	v, err := f.lookup(name)
	if err != nil {
		return err
	}
	switch conv {
	case 0:
	case 's':
		v, err = f.r.str(v)
	case 'r', 'a':
		v, err = f.r.repr(v)
	default:
		return valueErrorf("Unknown conversion specifier %c", conv)
	}
	if err != nil {
		return err
	}
	if strings.ContainsAny(spec, "{}") {
		inner := &bracer{r: f.r, args: f.args, auto: f.auto}
		if err := inner.run(spec, depth-1); err != nil {
			return err
		}
		spec, f.auto = inner.b.String(), inner.auto
	}
	text, err := f.r.format(v, spec)
	if err != nil {
		return err
	}
	if f.mark && !isMarkup(v) {
		text = htmlEscaper.Replace(text)
	}
	return f.write(text)
}

// fieldSplit finds the end of a field's name; brackets may hold anything.
func fieldSplit(s string) int {
	inside := false
	for i := range len(s) {
		switch c := s[i]; {
		case c == '[':
			inside = true
		case c == ']':
			inside = false
		case (c == ':' || c == '!') && !inside:
			return i
		}
	}
	return -1
}

func (f *bracer) lookup(name string) (Value, error) {
	end := strings.IndexAny(name, ".[")
	if end < 0 {
		end = len(name)
	}
	first, rest := name[:end], name[end:]
	v, err := f.argument(first, rest == "")
	if err != nil {
		return nil, err
	}
	for rest != "" {
		if rest[0] == '.' {
			end := strings.IndexAny(rest[1:], ".[")
			if end < 0 {
				end = len(rest) - 1
			}
			if end == 0 {
				return nil, valueErrorf("Empty attribute in format string")
			}
			if v, err = f.r.getattr(v, rest[1:1+end]); err != nil {
				return nil, err
			}
			rest = rest[1+end:]
			continue
		}
		end := strings.IndexByte(rest, ']')
		if rest[0] != '[' || end < 2 {
			return nil, valueErrorf("Empty attribute in format string")
		}
		var key Value = rest[1:end]
		if n, err := strconv.ParseInt(rest[1:end], 10, 64); err == nil && isDigit(rest[1]) {
			key = n
		}
		if v, err = f.r.getitem(v, key); err != nil {
			return nil, err
		}
		rest = rest[end+1:]
	}
	return v, nil
}

// argument finds a field's value. As in the original only a field that is empty
// altogether is numbered automatically.
func (f *bracer) argument(name string, whole bool) (Value, error) {
	n := 0
	if name == "" && whole {
		if f.auto < 0 {
			return nil, valueErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		n = f.auto
		f.auto++
	} else if v, err := strconv.Atoi(name); err == nil && isDigit(name[0]) {
		if f.auto > 0 {
			return nil, valueErrorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto, n = -1, v
	} else {
		if v := f.args.named(name); v != missing {
			return v, nil
		}
		return nil, errorf(KeyError, "%s", quoteString(name))
	}
	if n >= len(f.args.pos) {
		return nil, errorf(IndexError, "Replacement index %d out of range for positional args tuple", n)
	}
	return f.args.pos[n], nil
}

// format is Python's format(v, spec).
func (r *run) format(v Value, spec string) (string, error) {
	if spec == "" {
		return r.str(v)
	}
	f, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	if s, ok := asString(v); ok {
		if f.typ != 0 && f.typ != 's' || f.sign != 0 || f.group != 0 || f.alt || f.align == '=' {
			return "", valueErrorf("Invalid format specifier")
		}
		return f.text(r, s)
	}
	if fl, ok := v.(float64); ok {
		if f.typ != 0 && strings.IndexByte("eEfFgGn%", f.typ) < 0 {
			return "", valueErrorf("Unknown format code '%c' for object of type 'float'", f.typ)
		}
		return f.float(r, fl)
	}
	i, ok := integer(v)
	if !ok {
		return "", typeErrorf("unsupported format string passed to %s.__format__", typeName(v))
	}
	switch {
	case f.typ == 'c':
		s, err := charFor(i)
		if err != nil {
			return "", err
		}
		return f.text(r, s)
	case f.typ == 0 || strings.IndexByte("bdoxXn", f.typ) >= 0:
		if f.prec >= 0 {
			return "", valueErrorf("Precision not allowed in integer format specifier")
		}
		return f.integer(r, i)
	case strings.IndexByte("eEfFgG%", f.typ) >= 0:
		fl, err := toFloat(v)
		if err != nil {
			return "", err
		}
		return f.float(r, fl)
	}
	return "", valueErrorf("Unknown format code '%c' for object of type '%s'", f.typ, typeName(v))
}

// parseSpec reads [[fill]align][sign][#][0][width][grouping][.precision][type].
func parseSpec(s string) (*formatSpec, error) {
	f := &formatSpec{prec: -1}
	bad := valueErrorf("Invalid format specifier")
	c, size := utf8.DecodeRuneInString(s)
	switch {
	case len(s) > size && strings.IndexByte("<>^=", s[size]) >= 0:
		f.fill, f.align, s = c, s[size], s[size+1:]
	case strings.IndexByte("<>^=", s[0]) >= 0:
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		if s[0] != '-' {
			f.sign = s[0]
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, "#") {
		f.alt, s = true, s[1:]
	}
	if strings.HasPrefix(s, "0") {
		f.zero, s = true, s[1:]
	}
	number := func(n *int) error {
		*n = 0
		for s != "" && isDigit(s[0]) {
			if *n = *n*10 + int(s[0]-'0'); *n > maxFormatWidth {
				return limitErrorf("format width %d", *n)
			}
			s = s[1:]
		}
		return nil
	}
	if err := number(&f.width); err != nil {
		return nil, err
	}
	if s != "" && (s[0] == ',' || s[0] == '_') {
		f.group, s = s[0], s[1:]
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		if s == "" || !isDigit(s[0]) {
			return nil, valueErrorf("Format specifier missing precision")
		}
		if err := number(&f.prec); err != nil {
			return nil, err
		}
	}
	if len(s) > 1 {
		return nil, bad
	}
	if s != "" {
		f.typ = s[0]
	}
	return f, nil
}
