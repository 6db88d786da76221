package jinja

import (
	"math"
	"math/big"
	"strings"
)

func operandError(op string, a, b Value) error {
	if op == "**" {
		op = "** or pow()"
	}
	return typeErrorf("unsupported operand type(s) for %s: '%s' and '%s'", op, typeName(a), typeName(b))
}

// binary applies an arithmetic operator.
func (r *run) binary(op string, a, b Value) (Value, error) {
	if s, ok := asString(a); ok && op == "%" {
		return r.percent(s, b)
	}
	if u, ok := a.(*undefined); ok {
		return nil, u.fail()
	}
	if u, ok := b.(*undefined); ok {
		return nil, u.fail()
	}
	if isNumber(a) && isNumber(b) {
		return arith(op, a, b)
	}
	switch op {
	case "+":
		return r.add(a, b)
	case "*":
		if _, ok := integer(a); ok {
			a, b = b, a
		}
		return r.repeat(a, b)
	}
	return nil, operandError(op, a, b)
}

func (r *run) add(a, b Value) (Value, error) {
	if s, ok := asString(a); ok {
		t, ok := asString(b)
		if !ok {
			return nil, typeErrorf(`can only concatenate str (not "%s") to str`, typeName(b))
		}
		if err := r.alloc(len(s) + len(t)); err != nil {
			return nil, err
		}
		return s + t, nil
	}
	var x, y []Value
	tuple := false
	switch a := a.(type) {
	case *List:
		l, ok := b.(*List)
		if !ok {
			return nil, typeErrorf(`can only concatenate list (not "%s") to list`, typeName(b))
		}
		x, y = a.items, l.items
	case *Tuple:
		t, ok := b.(*Tuple)
		if !ok {
			return nil, typeErrorf(`can only concatenate tuple (not "%s") to tuple`, typeName(b))
		}
		x, y, tuple = a.items, t.items, true
	default:
		return nil, operandError("+", a, b)
	}
	if err := r.allocItems(len(x) + len(y)); err != nil {
		return nil, err
	}
	items := append(append(make([]Value, 0, len(x)+len(y)), x...), y...)
	if tuple {
		return &Tuple{items: items}, nil
	}
	return &List{items}, nil
}

// repeat is multiplication of a sequence.
func (r *run) repeat(seq, count Value) (Value, error) {
	if _, ok := integer(count); !ok {
		if _, ok := sizeOf(seq); ok && !isNumber(count) {
			return nil, typeErrorf("can't multiply sequence by non-int of type '%s'", typeName(count))
		}
		return nil, operandError("*", seq, count)
	}
	n, err := toIndex(count)
	if err != nil {
		return nil, err
	}
	n = max(n, 0)
	switch v := seq.(type) {
	case string:
		if v == "" {
			return v, nil
		}
		if n > r.lim.Alloc/len(v) {
			return nil, r.alloc(-1)
		}
		if err := r.alloc(len(v) * n); err != nil {
			return nil, err
		}
		return strings.Repeat(v, n), nil
	case *List:
		items, err := r.repeatItems(v.items, n)
		return &List{items}, err
	case *Tuple:
		items, err := r.repeatItems(v.items, n)
		return &Tuple{items: items}, err
	}
	return nil, operandError("*", seq, count)
}

func (r *run) repeatItems(items []Value, n int) ([]Value, error) {
	if len(items) == 0 {
		return nil, nil
	}
	if n > r.lim.Alloc/len(items) {
		return nil, r.alloc(-1)
	}
	if err := r.allocItems(len(items) * n); err != nil {
		return nil, err
	}
	out := make([]Value, 0, len(items)*n)
	for range n {
		out = append(out, items...)
	}
	return out, nil
}

// arith applies an operator to two numbers.
func arith(op string, a, b Value) (Value, error) {
	x, xInt := small(a)
	y, yInt := small(b)
	if xInt && yInt {
		return intArith(op, x, y)
	}
	_, xFloat := a.(float64)
	_, yFloat := b.(float64)
	if !xFloat && !yFloat {
		return nil, errTooLarge()
	}
	f, err := toFloat(a)
	if err != nil {
		return nil, err
	}
	g, err := toFloat(b)
	if err != nil {
		return nil, err
	}
	return floatArith(op, f, g)
}

// errTooLarge refuses arithmetic beyond int64. Larger integers come from requests, and are only
// printed and compared.
func errTooLarge() error { return limitErrorf("arithmetic with integers beyond 64 bits") }

func intArith(op string, x, y int64) (Value, error) {
	var z int64
	var fits bool
	switch op {
	case "+":
		z = x + y
		fits = (z > x) == (y > 0)
	case "-":
		z = x - y
		fits = (z < x) == (y > 0)
	case "*":
		z, fits = mulInts(x, y)
	case "**":
		if y < 0 {
			return floatArith(op, float64(x), float64(y))
		}
		z, fits = powInts(x, y)
	default:
		if y == 0 && op == "/" {
			return nil, errorf(ZeroDivisionError, "division by zero")
		}
		if y == 0 {
			return nil, errorf(ZeroDivisionError, "integer division or modulo by zero")
		}
		if op == "/" {
			f, _ := big.NewRat(x, y).Float64() // one rounding, as the original
			return f, nil
		}
		rest := x % y
		floor := rest != 0 && (rest < 0) != (y < 0)
		if op == "%" {
			if floor {
				rest += y
			}
			return rest, nil
		}
		z, fits = x/y, x != math.MinInt64 || y != -1
		if floor {
			z--
		}
	}
	if !fits {
		return nil, errTooLarge()
	}
	return z, nil
}

func mulInts(x, y int64) (int64, bool) {
	z := x * y
	return z, x == 0 || z/x == y && (x != -1 || y != math.MinInt64)
}

func powInts(x, y int64) (int64, bool) {
	z, fits := int64(1), false
	for ; y > 0; y >>= 1 {
		if y&1 == 1 {
			if z, fits = mulInts(z, x); !fits {
				return 0, false
			}
		}
		if y > 1 {
			if x, fits = mulInts(x, x); !fits {
				return 0, false
			}
		}
	}
	return z, true
}

func floatArith(op string, x, y float64) (Value, error) {
	switch op {
	case "+":
		return x + y, nil
	case "-":
		return x - y, nil
	case "*":
		return x * y, nil
	case "**":
		return floatPow(x, y)
	}
	if y == 0 {
		if op == "/" {
			return nil, errorf(ZeroDivisionError, "float division by zero")
		}
		return nil, errorf(ZeroDivisionError, "float floor division by zero")
	}
	if op == "/" {
		return x / y, nil
	}
	m := math.Mod(x, y)
	div := (x - m) / y
	if m == 0 {
		m = math.Copysign(0, y)
	} else if (y < 0) != (m < 0) {
		m += y
		div--
	}
	if op == "%" {
		return m, nil
	}
	if div == 0 {
		return math.Copysign(0, x/y), nil
	}
	floor := math.Floor(div)
	if div-floor > 0.5 {
		floor++
	}
	return floor, nil
}

func floatPow(x, y float64) (Value, error) {
	switch {
	case x == 0 && y < 0:
		return nil, errorf(ZeroDivisionError, "0.0 cannot be raised to a negative power")
	case x < 0 && !math.IsInf(x, 0) && !math.IsInf(y, 0) && y != math.Trunc(y):
		return nil, valueErrorf("complex numbers are not supported")
	}
	z := math.Pow(x, y)
	if math.IsInf(z, 0) && !math.IsInf(x, 0) && !math.IsInf(y, 0) {
		return nil, errorf(OverflowError, "(34, 'Numerical result out of range')")
	}
	return z, nil
}

// unary applies a sign.
func unary(op byte, v Value) (Value, error) {
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	if f, ok := v.(float64); ok {
		if op == '-' {
			f = -f
		}
		return f, nil
	}
	i, ok := small(v)
	switch {
	case !ok && isNumber(v), op == '-' && i == math.MinInt64:
		return nil, errTooLarge()
	case !ok:
		return nil, typeErrorf("bad operand type for unary %c: '%s'", op, typeName(v))
	case op == '-':
		i = -i
	}
	return i, nil
}
