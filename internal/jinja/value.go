package jinja

import (
	"math/big"
)

// Value is a template value: nil (None), bool, int64, *big.Int (only outside of
// the range of int64), float64, string, *List, *Tuple, *Dict and the objects that
// templates make themselves. Values other than namespaces, joiners and iterators never change, and may be shared.
type Value = any

// List is an immutable list.
type List struct{ items []Value }

// NewList returns a list of the values, which it keeps.
func NewList(items ...Value) *List { return &List{items} }

// Len is the number of items.
func (l *List) Len() int { return len(l.items) }

// At returns item i, 0 <= i < Len.
func (l *List) At(i int) Value { return l.items[i] }

// Tuple is an immutable tuple.
type Tuple struct{ items []Value }

// rangeValue is an arithmetic sequence of n integers.
type rangeValue struct{ start, stop, step, n int64 }

// undefined is the value of unknown variables, keys and attributes. It prints as
// nothing and is false; using it in any other way fails with its message.
type undefined struct {
	hint   string
	obj    Value // what was searched
	hasObj bool
	name   Value
	unsafe bool
}

// missingType marks unset slots and absent arguments; missing never reaches a
// template.
type missingType struct{}

var missing = &missingType{}

// namespace is the only object whose attributes templates can set.
type namespace struct{ attrs *Dict }

// function is a builtin function or bound method.
type function struct {
	name string
	typ  string // Python's name for its type
	call func(r *run, a args) (Value, error)
}

// iterValue is a generator: its items can be taken once.
type iterValue struct {
	typ  string
	next iterator
}

// iterator returns the next item and false after the last.
type iterator func() (Value, bool, error)

// dictView is the result of a dictionary's keys, values or items.
type dictView struct {
	kind string
	d    *Dict
}

// at returns item i of the view.
func (v *dictView) at(i int) Value {
	switch v.kind {
	case "dict_keys":
		return v.d.keys[i]
	case "dict_values":
		return v.d.vals[i]
	}
	return &Tuple{items: []Value{v.d.keys[i], v.d.vals[i]}}
}

func undefinedName(name string) *undefined { return &undefined{name: name} }

func undefinedAttr(obj Value, name Value) *undefined {
	return &undefined{obj: obj, hasObj: true, name: name}
}

func unsafeAttr(obj Value, name string) *undefined {
	return &undefined{
		hint:   "access to attribute '" + name + "' of '" + typeName(obj) + "' object is unsafe.",
		obj:    obj,
		hasObj: true,
		name:   name,
		unsafe: true,
	}
}

func (u *undefined) fail() error {
	kind := UndefinedError
	if u.unsafe {
		kind = SecurityError
	}
	switch name, isString := u.name.(string); {
	case u.hint != "":
		return errorf(kind, "%s", u.hint)
	case !u.hasObj:
		return errorf(kind, "%s is undefined", quoteString(name))
	case !isString:
		return errorf(kind, "%s has no element %s", objectName(u.obj), shortRepr(u.name))
	default:
		return errorf(kind, "%s has no attribute %s", quoteString(objectName(u.obj)), quoteString(name))
	}
}

func objectName(v Value) string {
	switch v.(type) {
	case nil:
		return "None"
	case *namespace, *joiner:
		return "jinja2.utils." + typeName(v) + " object"
	case *loopContext, *macro:
		return "jinja2.runtime." + typeName(v) + " object"
	}
	return typeName(v) + " object"
}

// typeName is Python's name for a value's type.
func typeName(v Value) string {
	switch v := v.(type) {
	case nil:
		return "NoneType"
	case bool:
		return "bool"
	case int64, *big.Int:
		return "int"
	case float64:
		return "float"
	case string:
		return "str"
	case *List:
		return "list"
	case *Tuple:
		return "tuple"
	case *Dict:
		return "dict"
	case *rangeValue:
		return "range"
	case *undefined:
		return "Undefined"
	case *namespace:
		return "Namespace"
	case *macro:
		return "Macro"
	case *loopContext:
		return "LoopContext"
	case *joiner:
		return "Joiner"
	case *dictView:
		return v.kind
	case *iterValue:
		return v.typ
	case *function:
		return v.typ
	}
	return "object"
}

func asString(v Value) (string, bool) {
	s, ok := v.(string)
	return s, ok
}

// truth is the value's boolean value.
func (r *run) truth(v Value) (bool, error) {
	switch v := v.(type) {
	case nil:
		return false, nil
	case bool:
		return v, nil
	case int64:
		return v != 0, nil
	case float64:
		return v != 0, nil
	case *undefined:
		return false, nil
	case *loopContext:
		n, err := v.length(r)
		return n != 0, err
	}
	if n, ok := sizeOf(v); ok {
		return n != 0, nil
	}
	return true, nil
}

// sizeOf is len for values that know their length at once.
func sizeOf(v Value) (int, bool) {
	switch v := v.(type) {
	case string:
		return runeCount(v), true
	case *List:
		return len(v.items), true
	case *Tuple:
		return len(v.items), true
	case *Dict:
		return v.Len(), true
	case *rangeValue:
		return int(v.n), true
	case *dictView:
		return v.d.Len(), true
	case *undefined:
		return 0, true
	}
	return 0, false
}

func (r *run) length(v Value) (int, error) {
	if l, ok := v.(*loopContext); ok {
		return l.length(r)
	}
	if n, ok := sizeOf(v); ok {
		return n, nil
	}
	return 0, typeErrorf("object of type '%s' has no len()", typeName(v))
}
