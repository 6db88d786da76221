package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/jsonscan"
)

// kind is the kind of a JSON value.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// value is a JSON value that knows where it stands. Members keep their order.
type value struct {
	kind    kind
	text    string // of a string; a number as it was written; "true" or "false"
	items   []*value
	members []member

	parent *value
	key    string // in the parent
}

type member struct {
	name string
	v    *value
}

const (
	maxDepth  = 64     // of a schema as written
	maxValues = 50_000 // in it
)

// parse reads a document.
func parse(text []byte) (*value, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	p := &reader{d: d}
	v, err := p.value(nil, "", 0)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("text after the end of the schema")
		}
	}
	var e *Error
	if err != nil && !errors.As(err, &e) {
		return nil, &Error{Path: "#", Reason: fmt.Sprintf("malformed JSON at offset %d: %v", d.InputOffset(), err)}
	}
	return v, err
}

type reader struct {
	d *json.Decoder
	n int
}

func (r *reader) value(parent *value, key string, depth int) (*value, error) {
	t, err := r.d.Token()
	if err != nil {
		return nil, err
	}
	v := &value{parent: parent, key: key}
	if r.n++; r.n > maxValues {
		return nil, refuse(v, "the schema has more than %d values", maxValues)
	}
	if depth > maxDepth {
		return nil, refuse(v, "the schema is nested more than %d deep", maxDepth)
	}
	switch t := t.(type) {
	case nil:
	case bool:
		v.kind, v.text = kindBool, strconv.FormatBool(t)
	case json.Number:
		v.kind, v.text = kindNumber, t.String()
	case string:
		v.kind, v.text = kindString, t
	case json.Delim:
		if t == '[' {
			return v, r.array(v, depth)
		}
		return v, r.object(v, depth)
	}
	return v, nil
}

func (r *reader) array(v *value, depth int) error {
	v.kind = kindArray
	for r.d.More() {
		item, err := r.value(v, strconv.Itoa(len(v.items)), depth+1)
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := r.d.Token()
	return err
}

func (r *reader) object(v *value, depth int) error {
	v.kind = kindObject
	seen := map[string]bool{}
	for r.d.More() {
		t, err := r.d.Token()
		if err != nil {
			return err
		}
		name, _ := t.(string)
		item, err := r.value(v, name, depth+1)
		if err != nil {
			return err
		}
		if seen[name] {
			return refuse(item, "duplicate key in an object")
		}
		seen[name] = true
		v.members = append(v.members, member{name, item})
	}
	_, err := r.d.Token()
	return err
}

// path is the JSON pointer of a value.
func (v *value) path() string {
	var keys []string
	for ; v.parent != nil; v = v.parent {
		keys = append(keys, strings.NewReplacer("~", "~0", "/", "~1").Replace(v.key))
	}
	slices.Reverse(keys)
	return strings.Join(append([]string{"#"}, keys...), "/")
}

// get returns a member, nil if there is none.
func (v *value) get(name string) *value {
	for _, m := range v.members {
		if m.name == name {
			return m.v
		}
	}
	return nil
}

// write appends the value as compact JSON.
func (v *value) write(b []byte) []byte {
	switch v.kind {
	case kindNull:
		return append(b, "null"...)
	case kindBool, kindNumber:
		return append(b, v.text...)
	case kindString:
		return append(b, quote(v.text)...)
	case kindArray:
		b = append(b, '[')
		for i, item := range v.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = item.write(b)
		}
		return append(b, ']')
	}
	b = append(b, '{')
	for i, m := range v.members {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(m.name)...)
		b = append(b, ':')
		b = m.v.write(b)
	}
	return append(b, '}')
}

func (v *value) String() string { return string(v.write(nil)) }

// same is text that is equal for values that JSON schema takes for equal.
func (v *value) same() string {
	switch v.kind {
	case kindNumber:
		if d, ok := parseDecimal(v.text); ok {
			return d.rat().RatString()
		}
	case kindArray:
		var parts []string
		for _, item := range v.items {
			parts = append(parts, item.same())
		}
		return "[" + strings.Join(parts, ",") + "]"
	case kindObject:
		var parts []string
		for _, m := range v.members {
			parts = append(parts, quote(m.name)+":"+m.v.same())
		}
		slices.Sort(parts)
		return "{" + strings.Join(parts, ",") + "}"
	}
	return v.String()
}

// quote writes a JSON string that escapes only what it must.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		if e := jsonscan.Escape(r); e != "" {
			b.WriteString(e)
		} else {
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
