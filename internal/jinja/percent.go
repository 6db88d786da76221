package jinja

import (
	"math"
	"strings"
	"unicode/utf8"
)

// percenter formats a string with the % operator.
type percenter struct {
	r     *run
	mark  bool // arguments are escaped
	arg   Value
	items []Value // positional arguments
	next  int
	named bool // an argument was looked up by name
	b     strings.Builder
}

func (r *run) percent(format string, mark bool, arg Value) (Value, error) {
	p := &percenter{r: r, mark: mark, arg: arg, items: []Value{arg}}
	if t, ok := arg.(*Tuple); ok {
		p.items = t.items
	}
	for format != "" {
		i := strings.IndexByte(format, '%')
		if i < 0 {
			i = len(format)
		}
		if err := p.write(format[:i]); err != nil {
			return nil, err
		}
		if i == len(format) {
			break
		}
		rest, err := p.conversion(format[i+1:])
		if err != nil {
			return nil, err
		}
		format = rest
	}
	if p.next < len(p.items) && !p.named && !isMapping(arg) {
		return nil, typeErrorf("not all arguments converted during string formatting")
	}
	return remark(p.b.String(), mark), nil
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

func (p *percenter) take() (Value, error) {
	if p.next >= len(p.items) {
		return nil, typeErrorf("not enough arguments for format string")
	}
	p.next++
	return p.items[p.next-1], nil
}

// conversion handles what follows a percent sign and returns the rest.
func (p *percenter) conversion(s string) (string, error) {
	f := formatSpec{prec: -1}
	var v Value = missing
	if strings.HasPrefix(s, "(") {
		end := closingParen(s)
		if end < 0 {
			return "", valueErrorf("incomplete format key")
		}
		d, ok := p.arg.(*Dict)
		if !ok {
			return "", typeErrorf("format requires a mapping")
		}
		val, ok := d.Get(s[1:end])
		if !ok {
			return "", errorf(KeyError, "%s", quoteString(s[1:end]))
		}
		v, p.named, s = val, true, s[end+1:]
	}
	for s != "" && strings.IndexByte("-+ #0", s[0]) >= 0 {
		switch c := s[0]; c {
		case '-':
			f.align = '<'
		case '+':
			f.sign = '+'
		case ' ':
			if f.sign == 0 {
				f.sign = ' '
			}
		case '#':
			f.alt = true
		case '0':
			f.zero = true
		}
		s = s[1:]
	}
	var err error
	if f.width, s, err = p.number(s); err != nil {
		return "", err
	}
	if f.width < 0 {
		f.width, f.align = -f.width, '<'
	}
	if strings.HasPrefix(s, ".") {
		if f.prec, s, err = p.number(s[1:]); err != nil {
			return "", err
		}
		f.prec = max(f.prec, 0)
	}
	s = strings.TrimLeft(s, "hlL")
	if s == "" {
		return "", valueErrorf("incomplete format")
	}
	if s[0] == '%' {
		return s[1:], p.write("%")
	}
	if v == missing {
		if v, err = p.take(); err != nil {
			return "", err
		}
	}
	text, err := p.convert(&f, s[0], v)
	if err != nil {
		return "", err
	}
	_, size := utf8.DecodeRuneInString(s)
	return s[size:], p.write(text)
}

func closingParen(s string) int {
	depth := 0
	for i := range len(s) {
		switch s[i] {
		case '(':
			depth++
		case ')':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// number reads a width or precision, which a star takes from the arguments.
func (p *percenter) number(s string) (int, string, error) {
	if strings.HasPrefix(s, "*") {
		v, err := p.take()
		if err != nil {
			return 0, "", err
		}
		if _, ok := integer(v); !ok {
			return 0, "", typeErrorf("* wants int")
		}
		n, err := toIndex(v)
		if err == nil && (n > maxFormatWidth || n < -maxFormatWidth) {
			err = limitErrorf("format width %d", n)
		}
		return n, s[1:], err
	}
	n := 0
	for s != "" && isDigit(s[0]) {
		if n = n*10 + int(s[0]-'0'); n > maxFormatWidth {
			return 0, "", limitErrorf("format width %d", n)
		}
		s = s[1:]
	}
	return n, s, nil
}

func (p *percenter) convert(f *formatSpec, typ byte, v Value) (string, error) {
	f.typ = typ
	switch typ {
	case 's', 'r', 'a':
		text := p.r.str
		if typ != 's' {
			text = p.r.repr
		}
		s, err := text(v)
		if err != nil {
			return "", err
		}
		if p.mark && !isMarkup(v) {
			s = htmlEscaper.Replace(s)
		}
		f.zero = false
		if f.align == 0 {
			f.align = '>'
		}
		return f.text(p.r, s)
	case 'd', 'i', 'u':
		if fl, ok := v.(float64); ok {
			n, err := intFromFloat(fl)
			if err != nil {
				return "", err
			}
			v = n
		}
		f.typ = 'd'
		i, ok := integer(v)
		if !ok {
			return "", needNumber(v, "%%%c format: a real number is required, not %s", typ)
		}
		return p.padded(f, func() (string, error) { return f.integer(p.r, i) })
	case 'o', 'x', 'X':
		i, ok := integer(v)
		if !ok {
			return "", needNumber(v, "%%%c format: an integer is required, not %s", typ)
		}
		return p.padded(f, func() (string, error) { return f.integer(p.r, i) })
	case 'e', 'E', 'f', 'F', 'g', 'G':
		if !isNumber(v) {
			return "", needNumber(v, "%%%c format: must be real number, not %s", typ)
		}
		fl, err := toFloat(v)
		if err != nil {
			return "", err
		}
		return p.padded(f, func() (string, error) { return f.float(p.r, fl) })
	case 'c':
		if i, ok := integer(v); ok {
			s, err := charFor(i)
			if err != nil {
				return "", err
			}
			v = s
		}
		s, ok := asString(v)
		if !ok || runeCount(s) != 1 {
			return "", typeErrorf("%%c requires int or char")
		}
		f.zero, f.prec = false, -1
		if f.align == 0 {
			f.align = '>'
		}
		return f.text(p.r, s)
	}
	return "", valueErrorf("unsupported format character %s", quoteString(string(rune(typ))))
}

func (p *percenter) padded(f *formatSpec, fn func() (string, error)) (string, error) {
	if f.align == '<' {
		f.zero = false
	}
	return fn()
}

func needNumber(v Value, format string, typ byte) error {
	if u, ok := v.(*undefined); ok {
		return u.fail()
	}
	if f, ok := v.(float64); ok && (math.IsInf(f, 0) || math.IsNaN(f)) {
		return errorf(OverflowError, "cannot convert float infinity to integer")
	}
	return typeErrorf(format, typ, typeName(v))
}
