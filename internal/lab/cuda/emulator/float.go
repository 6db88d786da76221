package emulator

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// typedRounded takes the type, and leaves modifiers of rounding.
func (c *compiler) typedRounded() ptx.Type { return c.typed() }

// rounding takes a direction, to nearest without one.
func (c *compiler) rounding() rounding {
	if r := c.one("rn", "rz", "rm", "rp"); r != "" {
		return rounding(r)
	}
	return "rn"
}

const (
	flushes   = 1 << 0 // .ftz
	saturates = 1 << 1 // .sat
)

// how takes .ftz and .sat.
func (c *compiler) how() (flags uint64) {
	if c.has("ftz") {
		flags |= flushes
	}
	if c.has("sat") {
		flags |= saturates
	}
	return flags
}

// saturate puts a number between 0 and 1; NaN becomes 0.
func saturate(v float32) float32 {
	if !(v > 0) {
		return 0
	}
	return min(v, 1)
}

// floats makes the instruction a loop over float32.
func (c *compiler) floats(do arithmetic) {
	o := c.out
	o.op, o.compare = opFloat32, comparison(do)
	o.d = c.result(c.operand(0))
	for i, to := range []*int32{&o.a, &o.b, &o.c}[:max(0, len(c.at.Operands)-1)] {
		*to = c.value(c.operand(i+1), ptx.F32)
	}
}

// arithmetic3 is a*b + c in some format, rounded once.
func (c *compiler) fusedLane(t ptx.Type, how rounding, flags uint64) func(a, b, d uint64) uint64 {
	switch l, small := layoutOf(t); {
	case t == ptx.F32:
		return func(a, b, d uint64) uint64 {
			x, y, z := float(a), float(b), float(d)
			if flags&flushes != 0 {
				x, y, z = flush(x), flush(y), flush(z)
			}
			v := narrow(exactSum(float64(x)*float64(y), float64(z)), how)
			if flags&flushes != 0 {
				v = flush(v)
			}
			if flags&saturates != 0 {
				v = saturate(v)
			}
			return bits32(v)
		}
	case t == ptx.F64 && how == "rn" && flags == 0:
		return func(a, b, d uint64) uint64 {
			return math.Float64bits(math.FMA(math.Float64frombits(a), math.Float64frombits(b), math.Float64frombits(d)))
		}
	case small && how == "rn" && flags == 0:
		one := func(a, b, d uint64) uint64 {
			return l.narrow(exactSum(l.widen(a)*l.widen(b), l.widen(d)), how, false)
		}
		if t == ptx.F16 || t == ptx.BF16 {
			return one
		}
		return func(a, b, d uint64) uint64 {
			return one(a&0xffff, b&0xffff, d&0xffff) | one(a>>16, b>>16, d>>16)<<16
		}
	}
	c.fail(".%s of .%s is not understood", how, t)
	return nil
}

// one is the number 1 of a type, twice in those of two numbers.
func one(t ptx.Type) uint64 {
	switch t {
	case ptx.F64:
		return math.Float64bits(1)
	case ptx.F16:
		return 0x3c00
	case ptx.F16x2:
		return 0x3c003c00
	case ptx.BF16:
		return 0x3f80
	case ptx.BF16x2:
		return 0x3f803f80
	}
	return uint64(math.Float32bits(1))
}

// signs are the sign bits of a type.
func signs(t ptx.Type) uint64 {
	switch t.Bits() {
	case 16:
		return 1 << 15
	case 64:
		return 1 << 63
	}
	if t == ptx.F16x2 || t == ptx.BF16x2 {
		return 1<<31 | 1<<15
	}
	return 1 << 31
}

func compileFloatAdd(c *compiler, t ptx.Type) {
	how, flags := c.rounding(), c.how()
	c.operands(3)
	sub := c.at.Opcode == "sub"
	if t == ptx.F32 && how == "rn" && flags == 0 {
		if sub {
			c.floats(doSub)
		} else {
			c.floats(doAdd)
		}
		return
	}
	f := c.fusedLane(t, how, flags)
	unit, sign := one(t), signs(t)
	c.lanes(t, t, func(a, b, _ uint64) uint64 {
		if sub {
			b ^= sign
		}
		return f(a, unit, b)
	})
}

func compileFloatMultiply(c *compiler, t ptx.Type) {
	how, flags := c.rounding(), c.how()
	if c.at.Opcode == "mul" {
		c.operands(3)
		if t == ptx.F32 && how == "rn" && flags == 0 {
			c.floats(doMultiply)
			return
		}
		f := c.fusedLane(t, how, flags)
		zero := signs(t) // -0, which changes no product
		c.lanes(t, t, func(a, b, _ uint64) uint64 { return f(a, b, zero) })
		return
	}
	c.operands(4)
	if t == ptx.F32 && how == "rn" && flags == 0 {
		c.floats(doMultiplyAdd)
		return
	}
	c.lanes(t, t, c.fusedLane(t, how, flags))
}

// runFloat32 computes for all lanes.
func runFloat32(in *instr, d, a, b, c *vector) {
	switch arithmetic(in.compare) {
	case doAdd:
		for i := range d {
			d[i] = bits32(float(a[i]) + float(b[i]))
		}
	case doSub:
		for i := range d {
			d[i] = bits32(float(a[i]) - float(b[i]))
		}
	case doMultiply:
		for i := range d {
			d[i] = bits32(float(a[i]) * float(b[i]))
		}
	case doMultiplyAdd:
		for i := range d {
			d[i] = bits32(fused(float(a[i]), float(b[i]), float(c[i])))
		}
	case doDivide:
		for i := range d {
			d[i] = bits32(float(a[i]) / float(b[i]))
		}
	case doMax:
		for i := range d {
			d[i] = extreme32(a[i], b[i], false)
		}
	case doMin:
		for i := range d {
			d[i] = extreme32(a[i], b[i], true)
		}
	}
}

// extreme32 is the smaller or larger of two numbers; one that is NaN does not count, and
// -0 is less than 0.
func extreme32(a, b uint64, least bool) uint64 {
	x, y := float(a), float(b)
	switch {
	case x != x:
		return bits32(y)
	case y != y:
		return a
	case x == y:
		if (a>>31 != 0) == least {
			return a
		}
		return b
	case (x < y) == least:
		return a
	}
	return b
}

func compileFloatExtreme(c *compiler, t ptx.Type, least, nan bool) {
	flags := c.how()
	if t == ptx.F32 && flags == 0 && !nan {
		if least {
			c.floats(doMin)
		} else {
			c.floats(doMax)
		}
		return
	}
	one := func(a, b uint64) uint64 { return extreme32(a, b, least) }
	if l, small := layoutOf(t); small {
		one = func(a, b uint64) uint64 {
			wide := func(v uint64) uint64 { return uint64(math.Float32bits(float32(l.widen(v)))) }
			return l.narrow(float64(float(extreme32(wide(a), wide(b), least))), "rn", false)
		}
	}
	switch {
	case nan || flags != 0 || t == ptx.F64:
		c.fail("this form is not understood")
	case t == ptx.F16x2 || t == ptx.BF16x2:
		c.lanes(t, t, func(a, b, _ uint64) uint64 { return one(a&0xffff, b&0xffff) | one(a>>16, b>>16)<<16 })
	default:
		c.lanes(t, t, func(a, b, _ uint64) uint64 { return one(a, b) })
	}
}

func compileFloatSign(c *compiler, t ptx.Type, abs bool) {
	flags := c.how()
	sign := signs(t)
	c.lanes(t, t, func(a, _, _ uint64) uint64 {
		if flags&flushes != 0 && t == ptx.F32 {
			a = uint64(math.Float32bits(flush(float(a))))
		}
		if abs {
			return a &^ sign
		}
		return a ^ sign
	})
}

func compileFloatDivide(c *compiler, t ptx.Type) {
	c.one("approx", "full")
	how, flags := c.rounding(), c.how()
	c.operands(3)
	switch {
	case t == ptx.F64 && how == "rn":
		c.lanes(t, t, func(a, b, _ uint64) uint64 {
			return math.Float64bits(math.Float64frombits(a) / math.Float64frombits(b))
		})
	case t != ptx.F32 || how != "rn" || flags&saturates != 0:
		c.fail("this form is not understood")
	case flags == 0:
		c.floats(doDivide)
	default:
		c.lanes(t, t, func(a, b, _ uint64) uint64 { return bits32(flush(flush(float(a)) / flush(float(b)))) })
	}
}

// compileFunction takes functions of one number.
func compileFunction(c *compiler) {
	approx := c.has("approx")
	how, flags := c.rounding(), c.how()
	t := c.typed()
	c.operands(2)
	f, ok := map[string]func(float64) float64{
		"rcp": func(x float64) float64 { return 1 / x }, "rsqrt": func(x float64) float64 { return 1 / math.Sqrt(x) },
		"sqrt": math.Sqrt, "ex2": math.Exp2, "lg2": math.Log2, "sin": math.Sin, "cos": math.Cos, "tanh": math.Tanh,
	}[c.at.Opcode]
	exact := c.at.Opcode == "rcp" || c.at.Opcode == "sqrt" // rounded correctly: float64 has more than twice the digits
	if !ok || t != ptx.F32 || how != "rn" || flags&saturates != 0 || !approx && !exact {
		c.fail("this form is not understood")
		return
	}
	c.lanes(t, t, func(a, _, _ uint64) uint64 {
		x := float(a)
		if flags&flushes != 0 {
			return bits32(flush(float32(f(float64(flush(x))))))
		}
		return bits32(float32(f(float64(x))))
	})
}

func compileCopysign(c *compiler) {
	t := c.typed()
	c.operands(3)
	sign := signs(t)
	c.lanes(t, t, func(a, b, _ uint64) uint64 { return a&sign | b&^sign })
}
