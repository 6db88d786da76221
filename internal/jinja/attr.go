package jinja

import (
	"errors"
	"strings"
)

// method wraps a Go function as a bound method.
func method(name string, fn func(r *run, a args) (Value, error)) *function {
	return &function{name: name, typ: "builtin_function_or_method", call: fn}
}

// getattr is the dot: an attribute, else an item.
func (r *run) getattr(obj Value, name string) (Value, error) {
	if u, ok := obj.(*undefined); ok {
		return nil, u.fail()
	}
	v, ok, err := r.attribute(obj, name)
	if ok || err != nil {
		return v, err
	}
	if d, isDict := obj.(*Dict); isDict {
		if v, ok := d.Get(name); ok {
			return v, nil
		}
	}
	return undefinedAttr(obj, name), nil
}

// getitem is the subscript: an item, else, for string keys, an attribute.
func (r *run) getitem(obj, key Value) (Value, error) {
	v, ok, err := r.item(obj, key)
	if ok || err != nil {
		return v, err
	}
	if name, isString := asString(key); isString {
		v, ok, err := r.attribute(obj, name)
		if ok || err != nil {
			return v, err
		}
	}
	return undefinedAttr(obj, key), nil
}

// item looks a key or index up; what Python answers with a lookup or type error
// is simply not there.
func (r *run) item(obj, key Value) (Value, bool, error) {
	switch obj := obj.(type) {
	case *undefined:
		return nil, false, obj.fail()
	case *Dict:
		v, ok, err := r.lookup(obj, key)
		var failed *RenderError
		if errors.As(err, &failed) {
			return nil, false, nil
		}
		return v, ok, err
	}
	i, ok := key.(int64)
	if b, isBool := key.(bool); isBool {
		ok = true
		if b {
			i = 1
		}
	}
	n, sized := sizeOf(obj)
	if !ok || !sized {
		return nil, false, nil
	}
	if i < 0 {
		i += int64(n)
	}
	if i < 0 || i >= int64(n) {
		return nil, false, nil
	}
	switch obj := obj.(type) {
	case string:
		err := r.work(len(obj))
		return runeAt(obj, int(i)), true, err
	case *List:
		return obj.items[i], true, nil
	case *Tuple:
		return obj.items[i], true, nil
	case *rangeValue:
		return obj.start + i*obj.step, true, nil
	}
	return nil, false, nil
}

// Methods that would change their object, and are therefore out of reach.
var (
	listMutators = []string{"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"}
	dictMutators = []string{"clear", "pop", "popitem", "setdefault", "update"}
)

// attribute is getattr without the fallback to items.
func (r *run) attribute(obj Value, name string) (Value, bool, error) {
	if ns, ok := obj.(*namespace); ok {
		v, ok := ns.attrs.Get(name)
		return v, ok, nil
	}
	if strings.HasPrefix(name, "__") && strings.HasSuffix(name, "__") && len(name) > 4 {
		return unsafeAttr(obj, name), true, nil
	}
	switch obj := obj.(type) {
	case string:
		return stringAttr(obj, name)
	case *Dict:
		if indexOf(dictMutators, name) >= 0 {
			return unsafeAttr(obj, name), true, nil
		}
		if m := dictMethods[name]; m != nil {
			return method(name, func(r *run, a args) (Value, error) { return m(r, obj, a) }), true, nil
		}
	case *List:
		if indexOf(listMutators, name) >= 0 {
			return unsafeAttr(obj, name), true, nil
		}
		if name == "copy" {
			return method(name, func(*run, args) (Value, error) { return obj, nil }), true, nil
		}
		return sequenceAttr(obj, obj.items, name)
	case *Tuple:
		return sequenceAttr(obj, obj.items, name)
	case *loopContext:
		return obj.attr(r, name)
	}
	return nil, false, nil
}

func sequenceAttr(obj Value, items []Value, name string) (Value, bool, error) {
	switch name {
	case "index":
		return method(name, func(r *run, a args) (Value, error) {
			b, err := signature{params: []string{"value", "start", "stop"}, min: 1, posOnly: true}.bind(name, a)
			if err != nil {
				return nil, err
			}
			lo, hi, err := indexRange(b, 1, len(items))
			if err != nil {
				return nil, err
			}
			for i := lo; i < hi; i++ {
				same, err := r.equal(items[i], b[0])
				if err != nil {
					return nil, err
				}
				if same {
					return int64(i), nil
				}
			}
			return nil, valueErrorf("%s is not in %s", shortRepr(b[0]), typeName(obj))
		}), true, nil
	case "count":
		return method(name, func(r *run, a args) (Value, error) {
			b, err := signature{params: []string{"value"}, min: 1, posOnly: true}.bind(name, a)
			if err != nil {
				return nil, err
			}
			n := int64(0)
			for _, item := range items {
				same, err := r.equal(item, b[0])
				if err != nil {
					return nil, err
				}
				if same {
					n++
				}
			}
			return n, nil
		}), true, nil
	}
	return nil, false, nil
}

// indexRange reads optional start and stop arguments at i and i+1 for something
// of length n, negative ones counting from the end.
func indexRange(b bound, i, n int) (lo, hi int, err error) {
	lo, hi = 0, n
	for k, p := range []*int{&lo, &hi} {
		if !b.has(i+k) || b[i+k] == nil {
			continue
		}
		v, err := toIndex(b[i+k])
		if err != nil {
			return 0, 0, err
		}
		if v < 0 {
			v += n
		}
		*p = min(max(v, 0), n)
	}
	return lo, hi, nil
}

var dictMethods = map[string]func(r *run, d *Dict, a args) (Value, error){
	"keys":   viewMethod("keys"),
	"values": viewMethod("values"),
	"items":  viewMethod("items"),
	"copy": func(_ *run, d *Dict, a args) (Value, error) {
		return d, noArgs("copy", a)
	},
	"get": func(r *run, d *Dict, a args) (Value, error) {
		b, err := signature{params: []string{"key", "default"}, min: 1, posOnly: true}.bind("get", a)
		if err != nil {
			return nil, err
		}
		v, ok, err := r.lookup(d, b[0])
		if err != nil || ok {
			return v, err
		}
		return b.or(1, nil), nil
	},
}

func viewMethod(name string) func(*run, *Dict, args) (Value, error) {
	return func(_ *run, d *Dict, a args) (Value, error) {
		return &dictView{"dict_" + name, d}, noArgs(name, a)
	}
}

func noArgs(name string, a args) error {
	if len(a.pos)+len(a.kw) > 0 {
		return typeErrorf("%s() takes no arguments (%d given)", name, len(a.pos)+len(a.kw))
	}
	return nil
}
