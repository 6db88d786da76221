package jinja

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

func numberFilters() map[string]*filterDef {
	return map[string]*filterDef{
		"abs":            filter(absFilter, 0),
		"int":            filter(intFilter, 0, "default", "base"),
		"float":          filter(floatFilter, 0, "default"),
		"round":          filter(roundFilter, 0, "precision", "method"),
		"filesizeformat": filter(fileSize, 0, "binary"),
	}
}

func absFilter(_ *run, v Value, _ bound) (Value, error) {
	if f, ok := v.(float64); ok {
		return math.Abs(f), nil
	}
	if i, ok := integer(v); ok {
		return normInt(new(big.Int).Abs(i)), nil
	}
	if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	return nil, typeErrorf("bad operand type for abs(): '%s'", typeName(v))
}

func intFilter(r *run, v Value, b bound) (Value, error) {
	base, err := b.integer(1, 10)
	if err != nil {
		return nil, err
	}
	def := b.or(0, int64(0))
	if s, ok := asString(v); ok {
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if i, ok := parseInt(s, base); ok {
			return i, nil
		}
		f, ok := parseFloat(s)
		if !ok || math.IsNaN(f) {
			return def, nil
		}
		return intFromFloat(f)
	}
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) {
			return def, nil
		}
		return intFromFloat(v)
	case *undefined:
		return nil, v.fail()
	}
	if i, ok := integer(v); ok {
		return normInt(i), nil
	}
	return def, nil
}

func floatFilter(r *run, v Value, b bound) (Value, error) {
	if s, ok := asString(v); ok {
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if f, ok := parseFloat(s); ok {
			return f, nil
		}
	} else if isNumber(v) {
		return toFloat(v)
	} else if u, ok := v.(*undefined); ok {
		return nil, u.fail()
	}
	return b.or(0, 0.0), nil
}

func roundFilter(_ *run, v Value, b bound) (Value, error) {
	prec, err := b.integer(0, 0)
	if err != nil {
		return nil, err
	}
	how, err := b.text(1, "common")
	if err != nil {
		return nil, err
	}
	if how != "common" && how != "ceil" && how != "floor" {
		return nil, valueErrorf("method must be common, ceil or floor")
	}
	if !isNumber(v) {
		return nil, typeErrorf("type %s doesn't define __round__ method", typeName(v))
	}
	if how == "common" {
		if i, ok := integer(v); ok {
			return roundInt(i, prec), nil
		}
		return roundFloat(v.(float64), prec), nil
	}
	f, err := toFloat(v)
	if err != nil {
		return nil, err
	}
	scale := math.Pow(10, float64(prec))
	if math.IsInf(scale, 0) || scale == 0 {
		return nil, errorf(OverflowError, "precision %d is out of range", prec)
	}
	if how == "ceil" {
		return math.Ceil(f*scale) / scale, nil
	}
	return math.Floor(f*scale) / scale, nil
}

// roundFloat rounds to the nearest, ties of the exact binary value to even.
func roundFloat(f float64, prec int) Value {
	switch {
	case math.IsNaN(f) || math.IsInf(f, 0) || prec > 330:
		return f
	case prec < -330:
		return math.Copysign(0, f)
	case prec >= 0:
		out, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', prec, 64), 64)
		if err != nil {
			return f
		}
		return out
	}
	scale := new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-prec)), nil))
	q := new(big.Rat).SetFloat64(f)
	i := roundRat(q.Quo(q, scale))
	out, _ := new(big.Rat).Mul(new(big.Rat).SetInt(i), scale).Float64()
	if out == 0 {
		return math.Copysign(0, f)
	}
	return out
}

// roundRat rounds to the nearest integer, ties to even.
func roundRat(q *big.Rat) *big.Int {
	twice := new(big.Int).Lsh(q.Num(), 1)
	twice.Add(twice, q.Denom())
	den := new(big.Int).Lsh(q.Denom(), 1)
	i, rem := new(big.Int).DivMod(twice, den, new(big.Int))
	if rem.Sign() == 0 && i.Bit(0) == 1 {
		i.Sub(i, big.NewInt(1))
	}
	return i
}

func roundInt(i *big.Int, prec int) Value {
	if prec >= 0 {
		return normInt(i)
	}
	if prec < -maxIntBits {
		return int64(0)
	}
	scale := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(-prec)), nil)
	return normInt(scale.Mul(scale, roundRat(new(big.Rat).SetFrac(i, scale))))
}

func fileSize(r *run, v Value, b bound) (Value, error) {
	n, err := floatFilter(r, v, bound{missing})
	if err != nil {
		return nil, err
	}
	size, ok := n.(float64)
	binary, err := b.flag(r, 0, false)
	if err != nil || !ok {
		return nil, err
	}
	base, unit := 1000.0, "B"
	if binary {
		base, unit = 1024, "iB"
	}
	switch {
	case size == 1:
		return "1 Byte", nil
	case size < base:
		return fmt.Sprintf("%d Bytes", int64(size)), nil
	}
	names := "kMGTPEZY"
	if binary {
		names = "KMGTPEZY"
	}
	scale := base
	for i := 0; ; i++ {
		if size < scale*base || i == len(names)-1 {
			return fmt.Sprintf("%.1f %c%s", size/scale, names[i], unit), nil
		}
		scale *= base
	}
}
