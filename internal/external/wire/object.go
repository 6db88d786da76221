package wire

import (
	"encoding/json"
	"math"
	"strconv"
)

// Object writes a JSON object, member by member. The zero value is an empty object.
type Object struct {
	b []byte
}

func (o *Object) key(name string) {
	if o.b == nil {
		o.b = append(o.b, '{')
	} else {
		o.b = append(o.b, ',')
	}
	o.b = append(append(o.b, quote(name)...), ':')
}

// Raw adds a member with a value that is JSON.
func (o *Object) Raw(name string, raw []byte) {
	o.key(name)
	o.b = append(o.b, raw...)
}

// Text adds a string.
func (o *Object) Text(name, s string) { o.Raw(name, quote(s)) }

// Int adds a whole number.
func (o *Object) Int(name string, n int64) {
	o.key(name)
	o.b = strconv.AppendInt(o.b, n, 10)
}

// Uint adds a whole number.
func (o *Object) Uint(name string, n uint64) {
	o.key(name)
	o.b = strconv.AppendUint(o.b, n, 10)
}

// Float adds a number, with as few digits as tell it from others. What is no number in JSON
// becomes null.
func (o *Object) Float(name string, x float32) {
	o.key(name)
	if f := float64(x); math.IsNaN(f) || math.IsInf(f, 0) {
		o.b = append(o.b, "null"...)
	} else {
		o.b = strconv.AppendFloat(o.b, f, 'g', -1, 32)
	}
}

// Bool adds a truth value.
func (o *Object) Bool(name string, v bool) {
	o.key(name)
	o.b = strconv.AppendBool(o.b, v)
}

// IDs adds a list of token ids.
func (o *Object) IDs(name string, ids []uint32) {
	o.key(name)
	o.b = append(o.b, '[')
	for i, id := range ids {
		if i > 0 {
			o.b = append(o.b, ',')
		}
		o.b = strconv.AppendUint(o.b, uint64(id), 10)
	}
	o.b = append(o.b, ']')
}

// Bytes returns the object. No member may be added after it.
func (o *Object) Bytes() json.RawMessage {
	if o.b == nil {
		return json.RawMessage("{}")
	}
	return append(o.b, '}')
}
