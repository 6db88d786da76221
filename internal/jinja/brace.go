package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// bracer runs str.format: fields by place or name, with !r, !s and a format specification.
type bracer struct {
	r    *run
	args args
	auto int // next automatic field, -1 after an explicit number
	b    strings.Builder
}

func (r *run) formatMethod(format string, a args) (Value, error) {
	f := &bracer{r: r, args: a}
	err := f.run(format)
	return f.b.String(), err
}

func (f *bracer) write(s string) error {
	if err := f.r.alloc(len(s)); err != nil {
		return err
	}
	f.b.WriteString(s)
	return nil
}

func (f *bracer) run(s string) error {
	for s != "" {
		i := strings.IndexAny(s, "{}")
		if i < 0 {
			return f.write(s)
		}
		if err := f.write(s[:i]); err != nil {
			return err
		}
		c := s[i : i+1]
		s = s[i+1:]
		switch {
		case strings.HasPrefix(s, c):
			if err := f.write(c); err != nil {
				return err
			}
			s = s[1:]
		case c == "}":
			return valueErrorf("Single '}' encountered in format string")
		default:
			field, rest, ok := strings.Cut(s, "}")
			if !ok {
				return valueErrorf("expected '}' before end of string")
			}
			if err := f.field(field); err != nil {
				return err
			}
			s = rest
		}
	}
	return nil
}

// field formats name!conversion:spec.
func (f *bracer) field(s string) error {
	head, spec, _ := strings.Cut(s, ":")
	name, conv, converted := strings.Cut(head, "!")
	v, err := f.argument(name)
	if err != nil {
		return err
	}
	switch {
	case !converted:
	case conv == "s":
		v, err = f.r.str(v)
	case conv == "r":
		v, err = f.r.repr(v)
	default:
		return valueErrorf("Unknown conversion specifier %s", conv)
	}
	if err != nil {
		return err
	}
	text, err := f.r.format(v, spec)
	if err != nil {
		return err
	}
	return f.write(text)
}

// argument finds a field's value.
func (f *bracer) argument(name string) (Value, error) {
	n, err := strconv.Atoi(name)
	switch {
	case name == "":
		if f.auto < 0 {
			return nil, valueErrorf("cannot switch from manual field specification to automatic field numbering")
		}
		n = f.auto
		f.auto++
	case err == nil && isDigit(name[0]):
		if f.auto > 0 {
			return nil, valueErrorf("cannot switch from automatic field numbering to manual field specification")
		}
		f.auto = -1
	default:
		if v := f.args.named(name); v != missing {
			return v, nil
		}
		if strings.ContainsAny(name, ".[") {
			return nil, valueErrorf("field '%s' of a format string: attributes and items are not available in chat templates", name)
		}
		return nil, errorf(KeyError, "%s", quoteString(name))
	}
	if n >= len(f.args.pos) {
		return nil, errorf(IndexError, "Replacement index %d out of range for positional args tuple", n)
	}
	return f.args.pos[n], nil
}

// format is Python's format(v, spec) for strings, integers and decimals.
func (r *run) format(v Value, spec string) (string, error) {
	if spec == "" {
		return r.str(v)
	}
	f, err := parseSpec(spec)
	if err != nil {
		return "", err
	}
	if s, ok := asString(v); ok {
		if f.typ != 0 && f.typ != 's' || f.sign != 0 || f.commas {
			return "", valueErrorf("Invalid format specifier")
		}
		return f.text(r, s, '<')
	}
	i, isInt := integer(v)
	switch {
	case !isNumber(v):
		return "", typeErrorf("unsupported format string passed to %s.__format__", typeName(v))
	case isInt && f.prec < 0 && (f.typ == 0 || f.typ == 'd' || f.typ|32 == 'x'):
		return f.integer(r, i)
	case f.typ == 'f' || f.typ == '%':
		fl, err := toFloat(v)
		if err != nil {
			return "", err
		}
		return f.float(r, fl)
	case f.typ == 0 && f.prec < 0:
		fl := v.(float64)
		digits, neg := strings.CutPrefix(formatFloat(fl), "-")
		return f.number(r, neg, digits)
	}
	return "", valueErrorf("Unknown format code '%s' for object of type '%s'", spec, typeName(v))
}

// parseSpec reads [[fill]align][sign][0][width][,][.precision][type].
func parseSpec(s string) (*formatSpec, error) {
	f := &formatSpec{prec: -1}
	c, size := utf8.DecodeRuneInString(s)
	switch {
	case len(s) > size && strings.IndexByte("<>^", s[size]) >= 0:
		f.fill, f.align, s = c, s[size], s[size+1:]
	case strings.IndexByte("<>^", s[0]) >= 0:
		f.align, s = s[0], s[1:]
	}
	if s != "" && strings.IndexByte("+- ", s[0]) >= 0 {
		if s[0] != '-' {
			f.sign = s[0]
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, "0") {
		f.zero, s = true, s[1:]
		if f.fill == 0 {
			f.fill = '0'
		}
	}
	var err error
	if f.width, s, err = formatWidth(s); err != nil {
		return nil, err
	}
	if strings.HasPrefix(s, ",") {
		f.commas, s = true, s[1:]
	}
	if strings.HasPrefix(s, ".") {
		if f.prec, s, err = formatWidth(s[1:]); err != nil {
			return nil, err
		}
	}
	if len(s) > 1 || f.zero && f.commas {
		return nil, valueErrorf("Invalid format specifier")
	}
	if s != "" {
		f.typ = s[0]
	}
	return f, nil
}
