package emulator

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// rounding is a direction: "rn", "rz", "rm" or "rp".
type rounding string

// nan32 is the NaN that instructions make.
const nan32 = 0x7fffffff

func float(v uint64) float32 { return math.Float32frombits(uint32(v)) }

// bits32 are the bits of a result.
func bits32(v float32) uint64 {
	if v != v {
		return nan32
	}
	return uint64(math.Float32bits(v))
}

// flush makes zeros of numbers that are too small for full precision.
func flush(v float32) float32 {
	if v > -0x1p-126 && v < 0x1p-126 {
		return math.Float32frombits(math.Float32bits(v) & (1 << 31))
	}
	return v
}

// exactSum is a + b, rounded such that every rounding to fewer digits is that of the exact
// sum: its last bit is 1 unless it is exact.
func exactSum(a, b float64) float64 {
	s := a + b
	if math.IsInf(s, 0) || s != s {
		return s
	}
	t := s - a
	rest := (a - (s - t)) + (b - t)
	if rest != 0 && math.Float64bits(s)&1 == 0 {
		if (rest > 0) == (s > 0) {
			return math.Float64frombits(math.Float64bits(s) + 1)
		}
		return math.Float64frombits(math.Float64bits(s) - 1)
	}
	return s
}

// fused is a*b + c, rounded once to nearest.
func fused(a, b, c float32) float32 {
	p, d := float64(a)*float64(b), float64(c) // exact
	s := p + d
	// A sum that is halfway between two float32 may be there by its own rounding only.
	if math.Float64bits(s)&(1<<29-1) == 1<<28 || s > -0x1p-125 && s < 0x1p-125 {
		return float32(exactSum(p, d))
	}
	return float32(s)
}

// narrow rounds a number in some direction. What was rounded before must have been by
// exactSum.
func narrow(v float64, how rounding) float32 {
	f := float32(v)
	switch {
	case float64(f) == v || v != v:
		return f
	case how == "rm" && float64(f) > v, how == "rz" && v > 0 && float64(f) > v:
		return math.Nextafter32(f, float32(math.Inf(-1)))
	case how == "rp" && float64(f) < v, how == "rz" && v < 0 && float64(f) < v:
		return math.Nextafter32(f, float32(math.Inf(1)))
	}
	return f
}

// layout is a small floating-point format.
type layout struct {
	exponent, mantissa int
	infinite           bool   // the largest exponent is infinity and NaN; else one NaN
	nan                uint64 // that conversions make
}

var (
	half  = layout{5, 10, true, 0x7fff}
	brain = layout{8, 7, true, 0x7fff}
	e4m3  = layout{4, 3, false, 0x7f}
	e5m2  = layout{5, 2, true, 0x7f}
)

func (l layout) bias() int { return 1<<(l.exponent-1) - 1 }

// widen is the value of a number of the format.
func (l layout) widen(v uint64) float64 {
	m := float64(v & ones(l.mantissa))
	e := int(v >> l.mantissa & ones(l.exponent))
	var size float64
	switch top := 1<<l.exponent - 1; {
	case e == top && l.infinite && m == 0:
		size = math.Inf(1)
	case e == top && (l.infinite || v&ones(l.mantissa) == ones(l.mantissa)):
		size = math.NaN()
	case e == 0:
		size = math.Ldexp(m, 1-l.bias()-l.mantissa)
	default:
		size = math.Ldexp(m+float64(uint64(1)<<l.mantissa), e-l.bias()-l.mantissa)
	}
	if v>>(l.exponent+l.mantissa)&1 != 0 {
		return -size
	}
	return size
}

// narrow rounds to the format, to nearest or towards zero. What is too large becomes
// infinity, or the largest number with finite.
func (l layout) narrow(v float64, how rounding, finite bool) uint64 {
	sign := math.Float64bits(v) >> 63 << (l.exponent + l.mantissa)
	size := math.Abs(v)
	largest := ones(l.exponent)<<l.mantissa - 1 // below infinity
	if !l.infinite {
		largest = ones(l.exponent+l.mantissa) - 1
	}
	switch {
	case v != v:
		return l.nan
	case math.IsInf(v, 0) && !finite:
		if !l.infinite {
			return sign | l.nan
		}
		return sign | (largest + 1)
	}
	_, e := math.Frexp(size)
	e = max(e-1, 1-l.bias()) // of the first digit
	scaled := math.Ldexp(size, l.mantissa-e)
	whole := math.RoundToEven(scaled)
	if how == "rz" {
		whole = math.Trunc(scaled)
	}
	if size == 0 || whole == 0 {
		return sign
	}
	// A carry into the next exponent comes by itself.
	out := float64(e+l.bias()-1)*float64(uint64(1)<<l.mantissa) + whole
	if out > float64(largest) {
		if finite || how == "rz" {
			return sign | largest
		}
		return sign | (largest + 1)
	}
	return sign | uint64(out)
}

// narrowBF16 is brain.narrow to nearest, of float32.
func narrowBF16(v float32) uint64 {
	u := math.Float32bits(v)
	if v != v {
		return brain.nan
	}
	return uint64((u + 0x7fff + u>>16&1) >> 16)
}

// layoutOf is the format of one of a type's values.
func layoutOf(t ptx.Type) (layout, bool) {
	switch t {
	case ptx.F16, ptx.F16x2:
		return half, true
	case ptx.BF16, ptx.BF16x2:
		return brain, true
	case ptx.E4M3x2:
		return e4m3, true
	case ptx.E5M2x2:
		return e5m2, true
	}
	return layout{}, false
}
