package jinja

import "math/big"

// args are the evaluated arguments of a call.
type args struct {
	pos []Value
	kw  []kwArg
}

type kwArg struct {
	name string
	val  Value
}

func (c *callArgs) eval(r *run, f *frame) (args, error) {
	var a args
	if len(c.pos) > 0 {
		pos, err := r.evalAll(c.pos, f)
		if err != nil {
			return a, err
		}
		a.pos = pos
	}
	for i, x := range c.named {
		v, err := r.eval(x, f)
		if err != nil {
			return a, err
		}
		a.kw = append(a.kw, kwArg{c.names[i], v})
	}
	if c.dyn != nil {
		v, err := r.eval(c.dyn, f)
		if err != nil {
			return a, err
		}
		items, err := r.list(v)
		if err != nil {
			return a, err
		}
		a.pos = append(a.pos, items...)
	}
	if c.dynKw != nil {
		v, err := r.eval(c.dynKw, f)
		if err != nil {
			return a, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return a, typeErrorf("argument after ** must be a mapping, not %s", typeName(v))
		}
		for i, k := range d.keys {
			name, ok := asString(k)
			if !ok {
				return a, typeErrorf("keywords must be strings")
			}
			if a.named(name) != missing {
				return a, typeErrorf("got multiple values for keyword argument '%s'", name)
			}
			a.kw = append(a.kw, kwArg{name, d.vals[i]})
		}
	}
	return a, nil
}

// named returns a keyword argument or missing.
func (a args) named(name string) Value {
	for _, kw := range a.kw {
		if kw.name == name {
			return kw.val
		}
	}
	return missing
}

// signature describes the parameters of a builtin.
type signature struct {
	params  []string
	min     int  // how many must be given
	posOnly bool // arguments are positional only
}

// bind orders arguments by parameter; absent ones are missing.
func (s signature) bind(name string, a args) (bound, error) {
	if len(a.pos) > len(s.params) {
		return nil, typeErrorf("%s() takes at most %d arguments (%d given)", name, len(s.params), len(a.pos))
	}
	out := make(bound, len(s.params))
	for i := range out {
		out[i] = missing
	}
	copy(out, a.pos)
	for _, kw := range a.kw {
		i := indexOf(s.params, kw.name)
		if i < 0 || s.posOnly {
			return nil, typeErrorf("%s() got an unexpected keyword argument '%s'", name, kw.name)
		}
		if out[i] != missing {
			return nil, typeErrorf("%s() got multiple values for argument '%s'", name, kw.name)
		}
		out[i] = kw.val
	}
	for i := range s.min {
		if out[i] == missing {
			return nil, typeErrorf("%s() missing required argument: '%s'", name, s.params[i])
		}
	}
	return out, nil
}

func indexOf(list []string, s string) int {
	for i, v := range list {
		if v == s {
			return i
		}
	}
	return -1
}

// bound are arguments in the order of their parameters.
type bound []Value

func (b bound) has(i int) bool { return b[i] != missing }

// or returns argument i, or def if it is absent.
func (b bound) or(i int, def Value) Value {
	if b[i] == missing {
		return def
	}
	return b[i]
}

// text returns argument i as a string, or def if it is absent.
func (b bound) text(i int, def string) (string, error) {
	if b[i] == missing {
		return def, nil
	}
	if s, ok := asString(b[i]); ok {
		return s, nil
	}
	if u, ok := b[i].(*undefined); ok {
		return "", u.fail()
	}
	return "", typeErrorf("expected str, got %s", typeName(b[i]))
}

// textOrNone is text for arguments that may also be None, which is absent.
func (b bound) textOrNone(i int) (string, bool, error) {
	if b[i] == missing || b[i] == nil {
		return "", false, nil
	}
	s, err := b.text(i, "")
	return s, true, err
}

// integer returns argument i as an int, or def if it is absent. Integers beyond
// the range of int saturate: they only ever mean "more than there is".
func (b bound) integer(i, def int) (int, error) {
	if b[i] == missing {
		return def, nil
	}
	return toIndex(b[i])
}

func toIndex(v Value) (int, error) {
	switch v := v.(type) {
	case bool:
		if v {
			return 1, nil
		}
		return 0, nil
	case int64:
		return int(v), nil
	case *big.Int:
		if v.Sign() < 0 {
			return minInt, nil
		}
		return maxInt, nil
	case *undefined:
		return 0, v.fail()
	}
	return 0, typeErrorf("'%s' object cannot be interpreted as an integer", typeName(v))
}

// flag returns argument i as a truth value, or def if it is absent.
func (b bound) flag(r *run, i int, def bool) (bool, error) {
	if b[i] == missing {
		return def, nil
	}
	return r.truth(b[i])
}

// call calls any value.
func (r *run) call(fn Value, a args) (Value, error) {
	switch fn := fn.(type) {
	case *function:
		return fn.call(r, a)
	case *macro:
		return fn.call(r, a)
	case *loopContext:
		return fn.recurse(r, a)
	case *joiner:
		return fn.call(a)
	case *undefined:
		return nil, fn.fail()
	}
	return nil, typeErrorf("'%s' object is not callable", typeName(fn))
}
