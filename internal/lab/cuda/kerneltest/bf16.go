package kerneltest

import (
	"encoding/binary"
	"math"
)

// BF16 is a value of the device: the upper half of a float32.
type BF16 uint16

// Float is the value.
func (v BF16) Float() float64 { return float64(math.Float32frombits(uint32(v) << 16)) }

// Round returns the nearest BF16, the even one of two.
func Round(x float64) BF16 {
	u := math.Float32bits(float32(x))
	if u&0x7fffffff > 0x7f800000 {
		return 0x7fff // NaN
	}
	return BF16((u + 0x7fff + u>>16&1) >> 16)
}

// Floats are the values of many.
func Floats(v []BF16) []float64 {
	f := make([]float64, len(v))
	for i, x := range v {
		f[i] = x.Float()
	}
	return f
}

// rounded stores values.
func rounded(to []BF16, f []float64) {
	for i, x := range f {
		to[i] = Round(x)
	}
}

// Widen are values of bf16, as memory has them.
func Widen(b []byte) []float32 {
	values := make([]float32, len(b)/2)
	for i := range values {
		values[i] = float32(BF16(binary.LittleEndian.Uint16(b[2*i:])).Float())
	}
	return values
}

// Off is the size of a difference as a share of the size of what is wanted: a measure for
// results of many roundings, of which each alone may be off.
func Off(got, want []float32) float64 {
	var off, size float64
	for i, w := range want {
		off += math.Pow(float64(got[i]-w), 2)
		size += float64(w) * float64(w)
	}
	return math.Sqrt(off / size)
}
