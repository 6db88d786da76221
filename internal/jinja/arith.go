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
		return r.percent(s, isMarkup(a), b)
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

func isMarkup(v Value) bool {
	_, ok := v.(markup)
	return ok
}

func (r *run) add(a, b Value) (Value, error) {
	if s, ok := asString(a); ok {
		t, ok := asString(b)
		if !ok {
			return nil, typeErrorf(`can only concatenate str (not "%s") to str`, typeName(b))
		}
		mark := isMarkup(a) || isMarkup(b)
		if mark {
			s, t = escapeValue(a), escapeValue(b)
		}
		if err := r.alloc(len(s) + len(t)); err != nil {
			return nil, err
		}
		return remark(s+t, mark), nil
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

// remark gives a string the mark of what it was made from.
func remark(s string, mark bool) Value {
	if mark {
		return markup(s)
	}
	return s
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
	case string, markup:
		s, _ := asString(v)
		if s != "" && n > r.lim.Alloc/len(s) {
			return nil, r.alloc(-1)
		}
		if err := r.alloc(len(s) * n); err != nil {
			return nil, err
		}
		if s == "" {
			n = 0
		}
		return remark(strings.Repeat(s, n), isMarkup(v)), nil
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
	if v, ok := smallArith(op, a, b); ok {
		return v, nil
	}
	x, xInt := integer(a)
	y, yInt := integer(b)
	if !xInt || !yInt {
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
	z := new(big.Int)
	switch op {
	case "+":
		z.Add(x, y)
	case "-":
		z.Sub(x, y)
	case "*":
		z.Mul(x, y)
	case "/":
		return trueDiv(x, y)
	case "//", "%":
		if y.Sign() == 0 {
			return nil, errorf(ZeroDivisionError, "integer division or modulo by zero")
		}
		q, m := new(big.Int).QuoRem(x, y, z)
		if m.Sign() != 0 && (m.Sign() < 0) != (y.Sign() < 0) {
			q.Sub(q, big.NewInt(1))
			m.Add(m, y)
		}
		if op == "//" {
			return normInt(q), nil
		}
		return normInt(m), nil
	case "**":
		return intPow(x, y)
	}
	if z.BitLen() > maxIntBits {
		return nil, limitErrorf("integer of more than %d bits", maxIntBits)
	}
	return normInt(z), nil
}

// smallArith does the usual case: sums and products that cannot overflow.
func smallArith(op string, a, b Value) (Value, bool) {
	x, ok := a.(int64)
	y, ok2 := b.(int64)
	if !ok || !ok2 || x != int64(int32(x)) || y != int64(int32(y)) {
		return nil, false
	}
	switch op {
	case "+":
		return x + y, true
	case "-":
		return x - y, true
	case "*":
		return x * y, true
	}
	return nil, false
}

// trueDiv divides integers with one rounding.
func trueDiv(x, y *big.Int) (Value, error) {
	if y.Sign() == 0 {
		return nil, errorf(ZeroDivisionError, "division by zero")
	}
	f, _ := new(big.Rat).SetFrac(x, y).Float64()
	if math.IsInf(f, 0) {
		return nil, errorf(OverflowError, "integer division result too large for a float")
	}
	return f, nil
}

func intPow(x, y *big.Int) (Value, error) {
	if y.Sign() < 0 {
		f, err := toFloat(normInt(x))
		if err != nil {
			return nil, err
		}
		g, err := toFloat(normInt(y))
		if err != nil {
			return nil, err
		}
		return floatArith("**", f, g)
	}
	if x.CmpAbs(big.NewInt(1)) > 0 && (!y.IsInt64() || y.Int64() > maxIntBits || int(y.Int64())*(x.BitLen()-1) > maxIntBits) {
		return nil, limitErrorf("integer of more than %d bits", maxIntBits)
	}
	if x.CmpAbs(big.NewInt(1)) <= 0 && y.Sign() > 0 {
		y = big.NewInt(2 - int64(y.Bit(0))) // 0, 1 and -1 depend on the parity only
	}
	return normInt(new(big.Int).Exp(x, y, nil)), nil
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
	i, ok := integer(v)
	if !ok {
		return nil, typeErrorf("bad operand type for unary %c: '%s'", op, typeName(v))
	}
	if op == '-' {
		return normInt(new(big.Int).Neg(i)), nil
	}
	return normInt(i), nil
}
