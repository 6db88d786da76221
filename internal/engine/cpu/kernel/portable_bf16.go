package kernel

import (
	"math"
	"unsafe"
)

// flush is v, or zero with its sign where v is below the smallest normal number.
func flush(v float32) float32 {
	if bits := math.Float32bits(v); bits&0x7F800000 == 0 {
		return math.Float32frombits(bits & (1 << 31))
	}
	return v
}

// fmaBF16 is x·y + z for bf16 x and y, rounded once, with numbers below the smallest
// normal one as zeros. Those of results are found after a rounding to 24 bits that
// knows no smallest exponent.
//
// The product is exact in float64 with 16 bits. The sum is exact, too, or one of the
// two is so much larger that it is the result.
func fmaBF16(x, y uint16, z float32) float32 {
	s := float64(flush(widen(x)))*float64(flush(widen(y))) + float64(flush(z))
	return roundFlushed(s)
}

// addFlushed is x + y in the same way.
func addFlushed(x, y float32) float32 { return roundFlushed(float64(flush(x)) + float64(flush(y))) }

func roundFlushed(s float64) float32 {
	if math.Abs(s) < 0x1p-126-0x1p-151 {
		return float32(math.Copysign(0, s))
	}
	return float32(s)
}

// roundOdd rounds s + rest, of which s is the nearest float64, to the next float32 toward
// zero, or to the one after that where the last bit would be 0 and something is lost.
// What is smaller than the smallest normal number becomes zero, and what is as large as
// the next power of two after the largest one infinite.
func roundOdd(s, rest float64) float32 {
	switch abs := math.Abs(s); {
	case s != s:
		return float32(s)
	case abs >= 0x1p128:
		return float32(math.Copysign(math.Inf(1), s))
	case abs < 0x1p-126:
		return float32(math.Copysign(0, s))
	}
	const lost = 1<<29 - 1
	bits := math.Float64bits(s)
	if rest != 0 && bits&1 == 0 { // first to an odd float64, which is another one then
		if math.Signbit(rest) == math.Signbit(s) {
			bits++
		} else {
			bits--
		}
	}
	if bits&lost != 0 {
		bits = bits&^lost | (lost + 1)
	}
	return float32(math.Float64frombits(bits))
}

// mulOdd is x·y, and addOdd x + y, for BFDOT.
func mulOdd(x, y uint16) float32 {
	return roundOdd(float64(flush(widen(x)))*float64(flush(widen(y))), 0)
}

func addOdd(x, y float32) float32 {
	a, b := float64(flush(x)), float64(flush(y))
	s := a + b
	t := s - a
	return roundOdd(s, (a-(s-t))+(b-t)) // the second is what the sum has lost
}

// toBF16 rounds to nearest, ties to even.
func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v { // rounding could turn a NaN into a number
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}

func roundBF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		dst[i] = toBF16(v)
	}
}

// row is one of the call's rows, with its padding to whole tiles.
func (c *CallBF16) row(i int) []uint16 {
	return unsafe.Slice((*uint16)(unsafe.Add(unsafe.Pointer(c.Src), i*c.Stride)), (c.Cols+tileCols-1)&^(tileCols-1))
}

// weight is that of one output and k in the call's panel, and zero beyond it.
func (c *CallBF16) weight(output, k int) uint16 {
	if k >= c.Cols {
		return 0
	}
	return unsafe.Slice((*uint16)(c.Panel), (c.Cols+1)&^1*Width)[k/2*2*Width+2*output+k%2]
}

func pairsBF16Go(c *CallBF16) {
	for i := range c.Dst {
		x, out := c.row(i), unsafe.Slice(c.Dst[i], Width)
		for o := range out {
			var sum float32
			for k := 0; k < c.Cols; k += 2 {
				sum = fmaBF16(x[k+1], c.weight(o, k+1), sum)
				sum = fmaBF16(x[k], c.weight(o, k), sum)
			}
			out[o] = sum
		}
	}
}

func dotsBF16Go(c *CallBF16) {
	for i := range c.Dst {
		x, out := c.row(i), unsafe.Slice(c.Dst[i], Width)
		for o := range out {
			var sum float32
			for k := 0; k < c.Cols; k += 2 { // BFDOT
				pair := addOdd(mulOdd(x[k], c.weight(o, k)), mulOdd(x[k+1], c.weight(o, k+1)))
				sum = addOdd(sum, pair)
			}
			out[o] = sum
		}
	}
}

func tilesBF16Go(c *CallBF16) {
	for i := range c.Dst {
		x, out := c.row(i), unsafe.Slice(c.Dst[i], Width)
		for o := range out {
			var sum float32
			for s := 0; s < c.Cols; s += tileCols { // TDPBF16PS
				var even, odd float32
				for k := s; k < s+tileCols; k += 2 {
					even = fmaBF16(x[k], c.weight(o, k), even)
					odd = fmaBF16(x[k+1], c.weight(o, k+1), odd)
				}
				sum = addFlushed(sum, addFlushed(even, odd))
			}
			out[o] = sum
		}
	}
}

// productBF16Go is what ProductBF16 computes at a level.
func productBF16Go(l Level, c *CallBF16) {
	switch l {
	case AMX:
		tilesBF16Go(c)
	case NEON:
		dotsBF16Go(c)
	default:
		pairsBF16Go(c)
	}
}
