package jinja

import (
	"maps"
	"math"
	"math/big"
	"strconv"
	"strings"
)

// Dict is a dictionary that keeps the order of insertion. Build it with Set, then
// share it freely: rendering never changes it.
type Dict struct {
	keys  []Value
	vals  []Value
	index map[any]int // of hashes; nil while all keys are strings and few
}

// fewKeys is the number of keys up to which they are compared one by one: a map would take
// more memory than the rest of a small dictionary.
const fewKeys = 8

// NewDict returns an empty dictionary.
func NewDict() *Dict { return &Dict{} }

// find returns the place of a key by its hash.
func (d *Dict) find(hash any) (int, bool) {
	if d.index != nil {
		i, ok := d.index[hash]
		return i, ok
	}
	if s, ok := hash.(string); ok {
		for i, k := range d.keys {
			if k == s {
				return i, true
			}
		}
	}
	return 0, false
}

// Len is the number of keys.
func (d *Dict) Len() int { return len(d.keys) }

// Set sets a key; one that exists keeps its place.
func (d *Dict) Set(key string, v Value) { d.put(key, key, v) }

// Get returns the value of a key, and whether there is one.
func (d *Dict) Get(key string) (Value, bool) {
	if i, ok := d.find(key); ok {
		return d.vals[i], true
	}
	return nil, false
}

// Entry returns key and value i, 0 <= i < Len. Keys that are not strings are
// returned as they print.
func (d *Dict) Entry(i int) (string, Value) {
	if s, ok := asString(d.keys[i]); ok {
		return s, d.vals[i]
	}
	return shortRepr(d.keys[i]), d.vals[i]
}

func (d *Dict) put(hash any, key, v Value) {
	if i, ok := d.find(hash); ok {
		d.vals[i] = v
		return
	}
	_, plain := key.(string)
	if d.index == nil && (!plain || len(d.keys) >= fewKeys) {
		d.index = make(map[any]int, 2*fewKeys)
		for i, k := range d.keys {
			d.index[k] = i
		}
	}
	if d.index != nil {
		d.index[hash] = len(d.keys)
	}
	d.keys = append(d.keys, key)
	d.vals = append(d.vals, v)
}

// clone copies the dictionary, not its values.
func (d *Dict) clone() *Dict {
	c := &Dict{keys: append([]Value(nil), d.keys...), vals: append([]Value(nil), d.vals...)}
	c.index = maps.Clone(d.index)
	return c
}

// lookup finds any key; keys that cannot be hashed are an error.
func (r *run) lookup(d *Dict, key Value) (Value, bool, error) {
	h, err := r.hash(key)
	if err != nil {
		return nil, false, err
	}
	if i, ok := d.find(h); ok {
		return d.vals[i], true, nil
	}
	return nil, false, nil
}

func (r *run) setItem(d *Dict, key, v Value) error {
	h, err := r.hash(key)
	if err != nil {
		return err
	}
	if err := r.alloc(64); err != nil {
		return err
	}
	d.put(h, key, v)
	return nil
}

// Hashes of values that have no comparable Go form.
type (
	noneHash  struct{}
	undefHash struct{}
	bigHash   string
	tupleHash string
)

// hash maps equal values to equal Go map keys: 1, 1.0 and True are one key.
func (r *run) hash(v Value) (any, error) {
	switch v := v.(type) {
	case nil:
		return noneHash{}, nil
	case string:
		return v, nil
	case bool:
		if v {
			return int64(1), nil
		}
		return int64(0), nil
	case int64:
		return v, nil
	case *big.Int:
		return bigHash(v.String()), nil
	case float64:
		if v == math.Trunc(v) && !math.IsInf(v, 0) {
			n := floatToInt(v)
			if i, ok := n.(int64); ok {
				return i, nil
			}
			return r.hash(n)
		}
		return v, nil
	case *Tuple:
		if err := r.enter(); err != nil {
			return nil, err
		}
		defer r.leave()
		var b strings.Builder
		for _, item := range v.items {
			h, err := r.hash(item)
			if err != nil {
				return nil, err
			}
			writeHash(&b, h)
			if err := r.alloc(16); err != nil {
				return nil, err
			}
		}
		return tupleHash(b.String()), nil
	case *undefined:
		return undefHash{}, nil
	case *List, *Dict:
		return nil, typeErrorf("unhashable type: '%s'", typeName(v))
	case *dictView:
		if v.kind != "dict_values" {
			return nil, typeErrorf("unhashable type: '%s'", v.kind)
		}
	}
	return v, nil // identity
}

func writeHash(b *strings.Builder, h any) {
	text := func(kind byte, s string) {
		b.WriteByte(kind)
		b.WriteString(strconv.Itoa(len(s)))
		b.WriteByte(':')
		b.WriteString(s)
	}
	switch h := h.(type) {
	case string:
		text('s', h)
	case int64:
		text('i', strconv.FormatInt(h, 10))
	case float64:
		text('f', strconv.FormatFloat(h, 'g', -1, 64))
	case bigHash:
		text('b', string(h))
	case tupleHash:
		text('t', string(h))
	case noneHash:
		text('n', "")
	default:
		text('o', pointerText(h))
	}
}
