package jinja

import (
	"fmt"
	"math/big"
	"strings"
	"unicode"
)

// str is Python's str: what printing a value writes.
func (r *run) str(v Value) (string, error) {
	switch v := v.(type) {
	case string:
		return v, nil
	case int64:
		return formatInt(v), nil
	case *undefined:
		return "", nil
	}
	return r.repr(v)
}

// repr is Python's repr: what a value looks like inside of a printed list.
func (r *run) repr(v Value) (string, error) {
	w := &reprWriter{r: r}
	err := w.value(v)
	return w.b.String(), err
}

// shortRepr is repr for messages, without limits because it is cut.
func shortRepr(v Value) string {
	switch v := v.(type) {
	case string:
		if len(v) > 80 {
			v = strings.ToValidUTF8(v[:80], "")
		}
		return quoteString(v)
	case int64:
		return formatInt(v)
	case float64:
		return formatFloat(v)
	case *List, *Tuple, *Dict:
		return "<" + typeName(v) + ">"
	}
	s, err := (&run{lim: DefaultLimits()}).repr(v)
	if err != nil {
		return "<" + typeName(v) + ">"
	}
	return s
}

type reprWriter struct {
	r *run
	b strings.Builder
	// open are the containers being printed: through a namespace one can hold
	// itself.
	open map[Value]bool
}

// within prints a container by fn, or short if it is being printed already.
func (w *reprWriter) within(v Value, short string, fn func() error) error {
	if w.open[v] {
		return w.text(short)
	}
	if w.open == nil {
		w.open = map[Value]bool{}
	}
	w.open[v] = true
	defer delete(w.open, v)
	return fn()
}

func (w *reprWriter) text(s string) error {
	if err := w.r.alloc(len(s)); err != nil {
		return err
	}
	w.b.WriteString(s)
	return nil
}

func (w *reprWriter) value(v Value) error {
	switch v := v.(type) {
	case nil:
		return w.text("None")
	case bool:
		if v {
			return w.text("True")
		}
		return w.text("False")
	case int64:
		return w.text(formatInt(v))
	case *big.Int:
		return w.text(v.String())
	case float64:
		return w.text(formatFloat(v))
	case string:
		return w.text(quoteString(v))
	case *undefined:
		return w.text("Undefined")
	case *List:
		return w.within(v, "[...]", func() error { return w.items("[", v.items, "]") })
	case *Tuple:
		end := ")"
		if len(v.items) == 1 {
			end = ",)"
		}
		return w.within(v, "(...)", func() error { return w.items("(", v.items, end) })
	case *Dict:
		return w.within(v, "{...}", func() error { return w.dict(v) })
	case *namespace:
		if err := w.text("<Namespace "); err != nil {
			return err
		}
		if err := w.value(v.attrs); err != nil {
			return err
		}
		return w.text(">")
	case *dictView:
		items := make([]Value, v.d.Len())
		for i := range items {
			items[i] = v.at(i)
		}
		return w.items(v.kind+"([", items, "])")
	case *rangeValue:
		if v.step == 1 {
			return w.text(fmt.Sprintf("range(%d, %d)", v.start, v.stop))
		}
		return w.text(fmt.Sprintf("range(%d, %d, %d)", v.start, v.stop, v.step))
	case *macro:
		if v.def.name == "" {
			return w.text("<Macro anonymous>")
		}
		return w.text("<Macro " + v.repr() + ">")
	}
	return w.text("<" + typeName(v) + " object>")
}

func (w *reprWriter) items(open string, items []Value, end string) error {
	if err := w.r.enter(); err != nil {
		return err
	}
	defer w.r.leave()
	if err := w.text(open); err != nil {
		return err
	}
	for i, item := range items {
		if i > 0 {
			if err := w.text(", "); err != nil {
				return err
			}
		}
		if err := w.r.step(1); err != nil {
			return err
		}
		if err := w.value(item); err != nil {
			return err
		}
	}
	return w.text(end)
}

func (w *reprWriter) dict(d *Dict) error {
	if err := w.r.enter(); err != nil {
		return err
	}
	defer w.r.leave()
	sep := "{"
	for i, k := range d.keys {
		if err := w.text(sep); err != nil {
			return err
		}
		sep = ", "
		if err := w.r.step(1); err != nil {
			return err
		}
		if err := w.value(k); err != nil {
			return err
		}
		if err := w.text(": "); err != nil {
			return err
		}
		if err := w.value(d.vals[i]); err != nil {
			return err
		}
	}
	if len(d.keys) == 0 {
		return w.text("{}")
	}
	return w.text("}")
}

// quoteString is the repr of a string: single quotes unless the text has some and
// no double quotes, escapes for what does not print.
func quoteString(s string) string {
	quote := '\''
	if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.Grow(len(s) + 2)
	b.WriteRune(quote)
	for _, c := range s {
		switch {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteRune(c)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c == '\t':
			b.WriteString(`\t`)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c < 0x7f:
			b.WriteRune(c)
		case printable(c):
			b.WriteRune(c)
		case c <= 0xff:
			fmt.Fprintf(&b, `\x%02x`, c)
		case c <= 0xffff:
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			fmt.Fprintf(&b, `\U%08x`, c)
		}
	}
	b.WriteRune(quote)
	return b.String()
}

// printable is str.isprintable of one character.
func printable(c rune) bool {
	if c == ' ' {
		return true
	}
	return unicode.In(c, unicode.L, unicode.M, unicode.N, unicode.P, unicode.S)
}

func pointerText(v any) string { return fmt.Sprintf("%p", v) }

// concat joins the strs of values.
func (r *run) concat(vals []Value, sep string) (string, error) {
	var b strings.Builder
	for i, v := range vals {
		s, err := r.str(v)
		if err != nil {
			return "", err
		}
		n := len(s)
		if i > 0 {
			n += len(sep)
		}
		if err := r.alloc(n); err != nil {
			return "", err
		}
		if i > 0 {
			b.WriteString(sep)
		}
		b.WriteString(s)
	}
	return b.String(), nil
}

var htmlEscaper = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", "'", "&#39;", `"`, "&#34;")

// escape is the filter escape for any value.
func (r *run) escape(v Value) (string, error) {
	s, err := r.str(v)
	if err != nil {
		return "", err
	}
	s = htmlEscaper.Replace(s)
	return s, r.alloc(len(s))
}
