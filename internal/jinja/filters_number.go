package jinja

import (
	"math"
	"math/big"
	"strconv"
)

func numberFilters() map[string]*filterDef {
	return map[string]*filterDef{
		"abs":   filter(absFilter, 0),
		"int":   filter(intFilter, 0, "default"),
		"float": filter(floatFilter, 0, "default"),
		"round": filter(roundFilter, 0, "precision", "method"),
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
	def := b.or(0, int64(0))
	if s, ok := asString(v); ok {
		if err := r.work(len(s)); err != nil {
			return nil, err
		}
		if i, ok := parseInt(s); ok {
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
	if prec < 0 {
		return nil, valueErrorf("the precision of round must not be negative")
	}
	if !isNumber(v) {
		return nil, typeErrorf("type %s doesn't define __round__ method", typeName(v))
	}
	if how == "common" {
		if f, ok := v.(float64); ok {
			return roundFloat(f, prec), nil
		}
		i, _ := integer(v)
		return normInt(i), nil
	}
	f, err := toFloat(v)
	if err != nil {
		return nil, err
	}
	scale := math.Pow(10, float64(prec))
	if math.IsInf(scale, 0) {
		return nil, errorf(OverflowError, "precision %d is out of range", prec)
	}
	if how == "ceil" {
		return math.Ceil(f*scale) / scale, nil
	}
	return math.Floor(f*scale) / scale, nil
}

// roundFloat rounds to the nearest, ties of the exact binary value to even.
func roundFloat(f float64, prec int) Value {
	if math.IsNaN(f) || math.IsInf(f, 0) || prec > 330 {
		return f
	}
	out, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', prec, 64), 64)
	if err != nil {
		return f
	}
	return out
}
