package emulator

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// compileConvert takes cvt: results first, then sources; two sources become one register.
func compileConvert(c *compiler) {
	to, from := c.typed(), c.typed()
	whole := c.one("rni", "rzi", "rmi", "rpi")
	finite := c.has("satfinite")
	how, flags := c.rounding(), c.how()
	relu := c.has("relu")
	if relu {
		c.fail(".relu is not understood")
	}
	switch {
	case len(c.at.Operands) == 3:
		compilePack(c, to, from, how, finite)
	case to.Kind() != ptx.Float && from.Kind() != ptx.Float && to.Kind() != ptx.Untyped && from.Kind() != ptx.Untyped:
		c.operands(2)
		compileIntegerConvert(c, to, from, flags)
	case to.Kind() != ptx.Float && from == ptx.F32 || from == ptx.F64 && to.Kind() != ptx.Float:
		c.operands(2)
		f := integerOf(to, whole)
		c.lanes(from, to, func(a, _, _ uint64) uint64 {
			if from == ptx.F64 {
				return f(math.Float64frombits(a))
			}
			x := float(a)
			if flags&flushes != 0 {
				x = flush(x)
			}
			return f(float64(x))
		})
	case to == ptx.F32 && from.Kind() != ptx.Float:
		c.operands(2)
		if how != "rn" {
			c.fail("only .rn is understood")
		}
		c.lanes(from, to, func(a, _, _ uint64) uint64 {
			if from.Kind() == ptx.Signed {
				return bits32(float32(signExtend(a, from.Bits())))
			}
			return bits32(float32(a & ones(from.Bits())))
		})
	case to == ptx.F64 && from.Kind() != ptx.Float:
		c.operands(2)
		c.lanes(from, to, func(a, _, _ uint64) uint64 {
			if from.Kind() == ptx.Signed {
				return math.Float64bits(float64(signExtend(a, from.Bits())))
			}
			return math.Float64bits(float64(a & ones(from.Bits())))
		})
	default:
		compileFloatConvert(c, to, from, how, whole, flags, finite)
	}
}

// compilePack rounds two float32 to one register, the first into its upper half.
func compilePack(c *compiler, to, from ptx.Type, how rounding, finite bool) {
	l, ok := layoutOf(to)
	if !ok || from != ptx.F32 || how != "rn" && how != "rz" || finite == l.infinite && to != ptx.E5M2x2 {
		c.fail("this form is not understood")
		return
	}
	half := to.Bits() / 2
	c.lanes(from, to, func(a, b, _ uint64) uint64 {
		return l.narrow(float64(float(a)), how, finite)<<half | l.narrow(float64(float(b)), how, finite)
	})
	if to == ptx.BF16x2 && how == "rn" {
		c.out.op = opPackBF16
	}
}

func compileIntegerConvert(c *compiler, to, from ptx.Type, flags uint64) {
	o := c.out
	if from.Kind() == ptx.Unsigned && flags == 0 {
		o.op, o.d, o.a, o.mask = opMask, c.result(c.operand(0)), c.value(c.operand(1), from), ones(min(from.Bits(), to.Bits()))
		return
	}
	if from == ptx.S32 && to.Bits() == 64 && flags == 0 {
		o.op, o.d, o.a = opSignExtend, c.result(c.operand(0)), c.value(c.operand(1), from)
		return
	}
	wide := max(c.width(c.operand(0)), to.Bits()) // the sign goes through the whole register
	least, most := int64(math.MinInt64), int64(math.MaxInt64)
	if flags&saturates != 0 {
		if to.Bits() == 64 || from.Bits() == 64 && from.Kind() == ptx.Unsigned {
			c.fail("this form is not understood")
		}
		if least, most = 0, int64(ones(to.Bits())); to.Kind() == ptx.Signed {
			least, most = -1<<(to.Bits()-1), 1<<(to.Bits()-1)-1
		}
	}
	c.lanes(from, to, func(a, _, _ uint64) uint64 {
		v := int64(a & ones(from.Bits()))
		if from.Kind() == ptx.Signed {
			v = signExtend(a, from.Bits())
		}
		v = max(least, min(most, v))
		if to.Kind() == ptx.Signed {
			return uint64(signExtend(uint64(v), to.Bits()))
		}
		return uint64(v) & ones(to.Bits())
	})
	o.mask = ones(wide)
}

// integerOf rounds to a whole number; what does not fit becomes the nearest that does, and
// NaN 0.
func integerOf(to ptx.Type, how string) func(v float64) uint64 {
	round := map[string]func(float64) float64{"rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil, "rni": math.RoundToEven}[how]
	if round == nil {
		round = math.Trunc
	}
	size := to.Bits()
	return func(v float64) uint64 {
		if v != v {
			return 0
		}
		v = round(v)
		if to.Kind() == ptx.Signed {
			switch limit := math.Ldexp(1, size-1); {
			case v >= limit:
				return ones(size - 1)
			case v < -limit:
				return 1 << (size - 1)
			}
			return uint64(int64(v)) & ones(size)
		}
		switch {
		case v <= 0:
			return 0
		case v >= math.Ldexp(1, size):
			return ones(size)
		}
		return uint64(v)
	}
}

// compileFloatConvert takes conversions between formats.
func compileFloatConvert(c *compiler, to, from ptx.Type, how rounding, whole string, flags uint64, finite bool) {
	c.operands(2)
	l, small := layoutOf(to)
	source, smallSource := layoutOf(from)
	pairs := from == ptx.E4M3x2 || from == ptx.E5M2x2 || to == ptx.E4M3x2 || to == ptx.E5M2x2
	switch {
	case pairs && small && smallSource && how == "rn" && flags == 0: // two numbers each
		a, b := from.Bits()/2, to.Bits()/2
		c.lanes(from, to, func(v, _, _ uint64) uint64 {
			return l.narrow(source.widen(v>>a&ones(a)), how, finite)<<b | l.narrow(source.widen(v&ones(a)), how, finite)
		})
		return
	case pairs || finite:
		c.fail("this form is not understood")
		return
	}
	widen := func(v uint64) float64 {
		switch {
		case smallSource:
			return source.widen(v)
		case from == ptx.F64:
			return math.Float64frombits(v)
		case flags&flushes != 0:
			return float64(flush(float(v)))
		}
		return float64(float(v))
	}
	rounded := map[string]func(float64) float64{"": func(v float64) float64 { return v }, "rzi": math.Trunc, "rmi": math.Floor, "rpi": math.Ceil, "rni": math.RoundToEven}[whole]
	switch {
	case small && flags == 0 && (how == "rn" || how == "rz"):
		c.lanes(from, to, func(a, _, _ uint64) uint64 { return l.narrow(widen(a), how, false) })
	case to == ptx.F32:
		c.lanes(from, to, func(a, _, _ uint64) uint64 {
			v := narrow(rounded(widen(a)), how)
			if flags&flushes != 0 {
				v = flush(v)
			}
			if flags&saturates != 0 {
				v = saturate(v)
			}
			return bits32(v)
		})
	case to == ptx.F64 && flags&saturates == 0:
		c.lanes(from, to, func(a, _, _ uint64) uint64 { return math.Float64bits(rounded(widen(a))) })
	default:
		c.fail("this form is not understood")
	}
}
