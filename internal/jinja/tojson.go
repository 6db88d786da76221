package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strings"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// tojsonFilter is json.dumps with ensure_ascii off unless asked for.
func tojsonFilter(r *run, v Value, b bound) (Value, error) {
	w := &jsonWriter{r: r, item: ", ", key: ": "}
	var err error
	if w.ascii, err = b.flag(r, 0, false); err != nil {
		return nil, err
	}
	if indent := b.or(1, nil); indent != nil {
		w.pretty, w.item = true, ","
		if s, ok := asString(indent); ok {
			w.indent = s
		} else {
			n, err := toIndex(indent)
			if err != nil {
				return nil, err
			}
			if n > maxFormatWidth {
				return nil, limitErrorf("indent %d", n)
			}
			w.indent = strings.Repeat(" ", max(n, 0))
		}
	}
	if sep := b.or(2, nil); sep != nil {
		pair, err := r.unpack(sep, 2)
		if err != nil {
			return nil, err
		}
		var ok1, ok2 bool
		w.item, ok1 = asString(pair[0])
		w.key, ok2 = asString(pair[1])
		if !ok1 || !ok2 {
			return nil, typeErrorf("separators must be strings")
		}
	}
	if w.sorted, err = b.flag(r, 3, false); err != nil {
		return nil, err
	}
	if err := w.value(v, 0); err != nil {
		return nil, err
	}
	return w.b.String(), nil
}

type jsonWriter struct {
	r             *run
	b             strings.Builder
	item, key     string // separators
	indent        string
	pretty        bool
	ascii, sorted bool
}

func (w *jsonWriter) text(s string) error {
	if err := w.r.alloc(len(s)); err != nil {
		return err
	}
	w.b.WriteString(s)
	return nil
}

func (w *jsonWriter) value(v Value, depth int) error {
	switch v := v.(type) {
	case nil, bool, int64, *big.Int, float64:
		return w.text(jsonScalar(v))
	case string:
		return w.string(v)
	case *List:
		return w.list(v.items, depth)
	case *Tuple:
		return w.list(v.items, depth)
	case *Dict:
		return w.dict(v, depth)
	}
	return typeErrorf("Object of type %s is not JSON serializable", typeName(v))
}

func jsonScalar(v Value) string {
	switch v := v.(type) {
	case bool:
		if v {
			return "true"
		}
		return "false"
	case int64:
		return formatInt(v)
	case *big.Int:
		return v.String()
	case float64:
		switch {
		case math.IsNaN(v):
			return "NaN"
		case math.IsInf(v, 1):
			return "Infinity"
		case math.IsInf(v, -1):
			return "-Infinity"
		}
		return formatFloat(v)
	}
	return "null"
}

// newline starts a line of indented output.
func (w *jsonWriter) newline(depth int) error {
	if !w.pretty {
		return nil
	}
	if w.indent != "" && depth > maxFormatWidth/len(w.indent) {
		return limitErrorf("indentation of %d levels", depth)
	}
	return w.text("\n" + strings.Repeat(w.indent, depth))
}

func (w *jsonWriter) list(items []Value, depth int) error {
	if len(items) == 0 {
		return w.text("[]")
	}
	return w.group('[', ']', len(items), depth, func(i int) error {
		return w.value(items[i], depth+1)
	})
}

// group writes n entries between brackets.
func (w *jsonWriter) group(open, end byte, n, depth int, entry func(i int) error) error {
	if err := w.r.enter(); err != nil {
		return err
	}
	defer w.r.leave()
	if err := w.text(string(open)); err != nil {
		return err
	}
	for i := range n {
		if i > 0 {
			if err := w.text(w.item); err != nil {
				return err
			}
		}
		if err := w.r.step(1); err != nil {
			return err
		}
		if err := w.newline(depth + 1); err != nil {
			return err
		}
		if err := entry(i); err != nil {
			return err
		}
	}
	if err := w.newline(depth); err != nil {
		return err
	}
	return w.text(string(end))
}

func (w *jsonWriter) dict(d *Dict, depth int) error {
	if d.Len() == 0 {
		return w.text("{}")
	}
	items, err := w.r.list(&dictView{"dict_items", d})
	if err != nil {
		return err
	}
	if w.sorted {
		first := func(pair Value) (Value, error) { return pair.(*Tuple).items[0], nil }
		if items, err = w.r.sortBy(items, first, false); err != nil {
			return err
		}
	}
	return w.group('{', '}', len(items), depth, func(i int) error {
		kv := items[i].(*Tuple).items
		name, ok := asString(kv[0])
		if !ok {
			switch kv[0].(type) {
			case nil, bool, int64, *big.Int, float64:
				name = jsonScalar(kv[0])
			default:
				return typeErrorf("keys must be str, int, float, bool or None, not %s", typeName(kv[0]))
			}
		}
		if err := w.string(name); err != nil {
			return err
		}
		if err := w.text(w.key); err != nil {
			return err
		}
		return w.value(kv[1], depth+1)
	})
}

func (w *jsonWriter) string(s string) error {
	if err := w.r.alloc(len(s) + 2); err != nil {
		return err
	}
	w.b.WriteByte('"')
	start := 0
	for i := 0; i < len(s); {
		c, size := rune(s[i]), 1
		if c >= utf8.RuneSelf {
			c, size = utf8.DecodeRuneInString(s[i:])
		}
		if c >= ' ' && c != '"' && c != '\\' && (c < utf8.RuneSelf || !w.ascii) {
			i += size
			continue
		}
		w.b.WriteString(s[start:i])
		if err := w.text(jsonEscape(c)); err != nil {
			return err
		}
		i += size
		start = i
	}
	w.b.WriteString(s[start:])
	w.b.WriteByte('"')
	return nil
}

func jsonEscape(c rune) string {
	if e := jsonscan.Escape(c); e != "" {
		return e
	}
	if c > 0xffff {
		c -= 0x10000
		return fmt.Sprintf(`\u%04x\u%04x`, 0xd800+c>>10, 0xdc00+c&0x3ff)
	}
	return fmt.Sprintf(`\u%04x`, c)
}
