package jinja

import (
	"strings"
	"unicode/utf8"
)

// percenter formats a string with the % operator: %s, %r, %d, %i, %x, %X and %f with flags, width and
// precision, and %(name)s.
type percenter struct {
	r     *run
	arg   Value
	items []Value // positional arguments
	next  int
	named bool // an argument was looked up by name
	b     strings.Builder
}

func (r *run) percent(format string, arg Value) (Value, error) {
	p := &percenter{r: r, arg: arg, items: []Value{arg}}
	if t, ok := arg.(*Tuple); ok {
		p.items = t.items
	}
	for {
		text, rest, found := strings.Cut(format, "%")
		if err := p.write(text); err != nil {
			return nil, err
		}
		if !found {
			break
		}
		var err error
		if format, err = p.conversion(rest); err != nil {
			return nil, err
		}
	}
	if p.next < len(p.items) && !p.named && !isMapping(arg) {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	return p.b.String(), nil
}

// isMapping says whether a single argument may stay unused.
func isMapping(v Value) bool {
	switch v.(type) {
	case *Dict, *List, *rangeValue, *undefined:
		return true
	}
	return false
}

func (p *percenter) write(s string) error {
	if err := p.r.alloc(len(s)); err != nil {
		return err
	}
	p.b.WriteString(s)
	return nil
}

// conversion handles what follows a percent sign and returns the rest.
func (p *percenter) conversion(s string) (string, error) {
	f := formatSpec{prec: -1}
	var v Value = missing
	if strings.HasPrefix(s, "(") {
		name, rest, ok := strings.Cut(s[1:], ")")
		if !ok {
			return "", valueErrorf("incomplete format key")
		}
		d, ok := p.arg.(*Dict)
		if !ok {
			return "", typeErrorf("format requires a mapping")
		}
		if v, ok = d.Get(name); !ok {
			return "", errorf(KeyError, "%s", quoteString(name))
		}
		p.named, s = true, rest
	}
	for ; s != "" && strings.IndexByte("-+ 0", s[0]) >= 0; s = s[1:] {
		switch c := s[0]; {
		case c == '-':
			f.align = '<'
		case c == '0':
			f.zero = true
		case f.sign != '+':
			f.sign = c
		}
	}
	var err error
	if f.width, s, err = formatWidth(s); err != nil {
		return "", err
	}
	if strings.HasPrefix(s, ".") {
		if f.prec, s, err = formatWidth(s[1:]); err != nil {
			return "", err
		}
	}
	if s == "" {
		return "", valueErrorf("incomplete format")
	}
	c, size := utf8.DecodeRuneInString(s)
	if c == '%' {
		return s[size:], p.write("%")
	}
	if v == missing {
		if p.next >= len(p.items) {
			return "", typeErrorf("not enough arguments for format string")
		}
		v = p.items[p.next]
		p.next++
	}
	text, err := p.convert(&f, c, v)
	if err != nil {
		return "", err
	}
	return s[size:], p.write(text)
}

func (p *percenter) convert(f *formatSpec, typ rune, v Value) (string, error) {
	switch typ {
	case 's', 'r':
		text := p.r.str
		if typ == 'r' {
			text = p.r.repr
		}
		s, err := text(v)
		if err != nil {
			return "", err
		}
		return f.text(p.r, s, '>')
	case 'd', 'i':
		if fl, ok := v.(float64); ok {
			n, err := intFromFloat(fl)
			if err != nil {
				return "", err
			}
			v = n
		}
		i, ok := integer(v)
		if !ok {
			return "", needNumber(v, "%%%c format: a real number is required, not %s", typ)
		}
		return f.integer(p.r, i)
	case 'x', 'X':
		f.typ = byte(typ)
		i, ok := integer(v)
		if !ok {
			return "", needNumber(v, "%%%c format: an integer is required, not %s", typ)
		}
		return f.integer(p.r, i)
	case 'f':
		if !isNumber(v) {
			return "", needNumber(v, "%%%c format: must be real number, not %s", typ)
		}
		fl, err := toFloat(v)
		if err != nil {
			return "", err
		}
		return f.float(p.r, fl)
	}
	return "", valueErrorf("unsupported format character %s", quoteString(string(typ)))
}

func needNumber(v Value, format string, typ rune) error {
	if u, ok := v.(*undefined); ok {
		return u.fail()
	}
	return typeErrorf(format, typ, typeName(v))
}
