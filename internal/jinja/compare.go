package jinja

import (
	"math"
	"math/big"
	"strings"
)

// compareOp applies a comparison or membership operator.
func (r *run) compareOp(op string, a, b Value) (bool, error) {
	switch op {
	case "==":
		return r.equal(a, b)
	case "!=":
		eq, err := r.equal(a, b)
		return !eq, err
	case "in":
		return r.contains(b, a)
	case "not in":
		in, err := r.contains(b, a)
		return !in, err
	}
	return r.order(op, a, b)
}

// equal is ==. Values of different kinds are unequal, never an error.
func (r *run) equal(a, b Value) (bool, error) {
	if err := r.step(1); err != nil {
		return false, err
	}
	if isNumber(a) || isNumber(b) {
		if !isNumber(a) || !isNumber(b) {
			return false, nil
		}
		c, ok := compareNumbers(a, b)
		return ok && c == 0, nil
	}
	if s, ok := asString(a); ok {
		t, ok := asString(b)
		return ok && s == t, r.work(len(s))
	}
	switch a := a.(type) {
	case nil:
		return b == nil, nil
	case *List:
		if l, ok := b.(*List); ok {
			return r.equalItems(a.items, l.items)
		}
		return false, nil
	case *Tuple:
		if t, ok := b.(*Tuple); ok {
			return r.equalItems(a.items, t.items)
		}
		return false, nil
	case *Dict:
		if d, ok := b.(*Dict); ok {
			return r.equalDicts(a, d)
		}
		return false, nil
	case *rangeValue:
		s, ok := b.(*rangeValue)
		return ok && a.n == s.n && (a.n == 0 || a.start == s.start && (a.n == 1 || a.step == s.step)), nil
	case *undefined:
		_, ok := b.(*undefined)
		return ok, nil
	}
	return a == b, nil
}

func (r *run) equalItems(a, b []Value) (bool, error) {
	if len(a) != len(b) {
		return false, nil
	}
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	for i, v := range a {
		same, err := r.equal(v, b[i])
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

func (r *run) equalDicts(a, b *Dict) (bool, error) {
	if a.Len() != b.Len() {
		return false, nil
	}
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	for i, k := range a.keys {
		v, ok, err := r.lookup(b, k)
		if err != nil || !ok {
			return false, err
		}
		same, err := r.equal(a.vals[i], v)
		if err != nil || !same {
			return false, err
		}
	}
	return true, nil
}

// compareNumbers orders two numbers exactly; it is false if one is NaN.
func compareNumbers(a, b Value) (int, bool) {
	x, xInt := small(a)
	y, yInt := small(b)
	if xInt && yInt {
		switch {
		case x < y:
			return -1, true
		case x > y:
			return 1, true
		}
		return 0, true
	}
	f, g := bigFloat(a), bigFloat(b)
	if f == nil || g == nil {
		return 0, false
	}
	return f.Cmp(g), true
}

func bigFloat(v Value) *big.Float {
	if f, ok := v.(float64); ok {
		if math.IsNaN(f) {
			return nil
		}
		return big.NewFloat(f)
	}
	i, _ := integer(v)
	return new(big.Float).SetInt(i)
}

// order is <, <=, > and >=.
func (r *run) order(op string, a, b Value) (bool, error) {
	if u, ok := a.(*undefined); ok {
		return false, u.fail()
	}
	if u, ok := b.(*undefined); ok {
		return false, u.fail()
	}
	c := 0
	s, aStr := asString(a)
	t, bStr := asString(b)
	la, aList := a.(*List)
	lb, bList := b.(*List)
	ta, aTuple := a.(*Tuple)
	tb, bTuple := b.(*Tuple)
	switch {
	case isNumber(a) && isNumber(b):
		var ok bool
		if c, ok = compareNumbers(a, b); !ok {
			return false, nil
		}
	case aStr && bStr:
		c = strings.Compare(s, t)
		if err := r.work(min(len(s), len(t))); err != nil {
			return false, err
		}
	case aList && bList:
		return r.orderItems(op, la.items, lb.items)
	case aTuple && bTuple:
		return r.orderItems(op, ta.items, tb.items)
	default:
		return false, typeErrorf("'%s' not supported between instances of '%s' and '%s'", op, typeName(a), typeName(b))
	}
	return holds(op, c), nil
}

func holds(op string, c int) bool {
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	default:
		return c >= 0
	}
}

func (r *run) orderItems(op string, a, b []Value) (bool, error) {
	if err := r.enter(); err != nil {
		return false, err
	}
	defer r.leave()
	for i := range min(len(a), len(b)) {
		same, err := r.equal(a[i], b[i])
		if err != nil {
			return false, err
		}
		if !same {
			return r.order(op, a[i], b[i])
		}
	}
	return holds(op, len(a)-len(b)), nil
}

// contains is the operator in.
func (r *run) contains(container, v Value) (bool, error) {
	if s, ok := asString(container); ok {
		t, ok := asString(v)
		if !ok {
			return false, typeErrorf("'in <string>' requires string as left operand, not %s", typeName(v))
		}
		return strings.Contains(s, t), r.work(len(s))
	}
	switch c := container.(type) {
	case *Dict:
		_, ok, err := r.lookup(c, v)
		return ok, err
	case *dictView:
		if c.kind == "dict_keys" {
			_, ok, err := r.lookup(c.d, v)
			return ok, err
		}
	}
	next, err := r.iter(container)
	if err != nil {
		return false, typeErrorf("argument of type '%s' is not iterable", typeName(container))
	}
	for {
		item, ok, err := next()
		if err != nil || !ok {
			return false, err
		}
		same, err := r.equal(item, v)
		if err != nil || same {
			return same, err
		}
	}
}
