package emulator

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// comparison of two values; the lower bits say for which orders it holds.
type comparison uint8

const (
	isLess comparison = 1 << iota
	isEqual
	isGreater
	isUnordered // one is NaN
)

var comparisons = map[string]comparison{
	"lt": isLess, "le": isLess | isEqual, "gt": isGreater, "ge": isGreater | isEqual, "eq": isEqual, "ne": isLess | isGreater,
	"lo": isLess, "ls": isLess | isEqual, "hi": isGreater, "hs": isGreater | isEqual,
	"ltu": isLess | isUnordered, "leu": isLess | isEqual | isUnordered, "gtu": isGreater | isUnordered, "geu": isGreater | isEqual | isUnordered,
	"equ": isEqual | isUnordered, "neu": isLess | isGreater | isUnordered,
	"num": isLess | isEqual | isGreater, "nan": isUnordered,
}

func compileCompare(c *compiler) {
	o := c.out
	if len(c.words) == 0 {
		c.fail("no comparison")
		return
	}
	compare, ok := comparisons[c.words[0]]
	if !ok {
		c.fail(".%s is not understood", c.words[0])
		return
	}
	c.words = c.words[1:]
	join := c.one("and", "or", "xor")
	flags := c.how()
	t := c.typed()
	n := 3
	if join != "" {
		n = 4
	}
	c.operands(n)
	d := c.operand(0)
	second := int32(0)
	if d.Kind == ptx.Pair {
		second, _ = c.predicate(d.Elements[1])
		d = d.Elements[0]
	}
	o.p, _ = c.predicate(d)
	o.a, o.b = c.value(c.operand(1), t), c.value(c.operand(2), t)
	o.compare, o.count = compare, int(t)
	if t == ptx.F32 && flags == 0 {
		o.op = opCompareFloat32
	} else if t.Kind() != ptx.Float {
		o.op = opCompareInteger
	}
	if o.op != opRun && join == "" && second == 0 {
		return
	}
	var also int32
	var not bool
	if join != "" {
		also, not = c.predicate(c.operand(3))
	}
	o.op = opRun
	o.run = func(w *warp, in *instr, mask uint32) {
		is := compareAny(in, t, flags, &w.r[in.a], &w.r[in.b])
		other := ^is
		if join != "" {
			with := w.predicate(also, not)
			switch join {
			case "and":
				is, other = is&with, other&with
			case "or":
				is, other = is|with, other|with
			default:
				is, other = is^with, other^with
			}
		}
		w.setPredicate(in.p, is, mask)
		if second != 0 {
			w.setPredicate(second, other, mask)
		}
	}
}

// compileSet is a comparison whose result is a number.
func compileSet(c *compiler) {
	if len(c.words) == 0 || comparisons[c.words[0]] == 0 {
		c.fail("no comparison that is understood")
		return
	}
	o := c.out
	o.compare = comparisons[c.words[0]]
	c.words = c.words[1:]
	flags := c.how()
	to, t := c.typed(), c.typed()
	c.operands(3)
	o.d, o.a, o.b, o.count = c.result(c.operand(0)), c.value(c.operand(1), t), c.value(c.operand(2), t), int(t)
	yes := ones(min(to.Bits(), 64))
	if to.Kind() == ptx.Float {
		yes = one(to)
	}
	o.run = func(w *warp, in *instr, mask uint32) {
		is := compareAny(in, t, flags, &w.r[in.a], &w.r[in.b])
		var out vector
		for l := range out {
			if is>>l&1 != 0 {
				out[l] = yes
			}
		}
		w.put(in.d, &out, mask)
	}
}

// compareAny compares values of any type.
func compareAny(in *instr, t ptx.Type, flags uint64, a, b *vector) (is uint32) {
	if t.Kind() != ptx.Float {
		return runCompareInteger(in, a, b)
	}
	if t == ptx.F32 && flags == 0 {
		return compareFloat32(in.compare, a, b)
	}
	l, small := layoutOf(t)
	wide := func(v uint64) float64 {
		switch {
		case small:
			return l.widen(v)
		case t == ptx.F64:
			return math.Float64frombits(v)
		}
		return float64(flush(float(v)))
	}
	for i := range a {
		if in.compare&order(wide(a[i]), wide(b[i])) != 0 {
			is |= 1 << i
		}
	}
	return is
}

func order(a, b float64) comparison {
	switch {
	case a < b:
		return isLess
	case a > b:
		return isGreater
	case a == b:
		return isEqual
	}
	return isUnordered
}

func bit(is bool) uint32 {
	var b uint32
	if is {
		b = 1
	}
	return b
}

func compareIntegers[T int16 | uint16 | int32 | uint32 | int64 | uint64](how comparison, a, b *vector) (is uint32) {
	switch how {
	case isLess:
		for i := range a {
			is |= bit(T(a[i]) < T(b[i])) << i
		}
	case isLess | isEqual:
		for i := range a {
			is |= bit(T(a[i]) <= T(b[i])) << i
		}
	case isGreater:
		for i := range a {
			is |= bit(T(a[i]) > T(b[i])) << i
		}
	case isGreater | isEqual:
		for i := range a {
			is |= bit(T(a[i]) >= T(b[i])) << i
		}
	case isEqual:
		for i := range a {
			is |= bit(T(a[i]) == T(b[i])) << i
		}
	default:
		for i := range a {
			is |= bit(T(a[i]) != T(b[i])) << i
		}
	}
	return is
}

func runCompareInteger(in *instr, a, b *vector) uint32 {
	switch ptx.Type(in.count) {
	case ptx.S32:
		return compareIntegers[int32](in.compare, a, b)
	case ptx.U32, ptx.B32:
		return compareIntegers[uint32](in.compare, a, b)
	case ptx.S64:
		return compareIntegers[int64](in.compare, a, b)
	case ptx.U64, ptx.B64:
		return compareIntegers[uint64](in.compare, a, b)
	case ptx.S16:
		return compareIntegers[int16](in.compare, a, b)
	}
	return compareIntegers[uint16](in.compare, a, b)
}

func compareFloat32(how comparison, a, b *vector) (is uint32) {
	for i := range a {
		x, y := float(a[i]), float(b[i])
		is |= bit(how&isLess != 0 && x < y || how&isGreater != 0 && x > y || how&isEqual != 0 && x == y || how&isUnordered != 0 && (x != x || y != y)) << i
	}
	return is
}
