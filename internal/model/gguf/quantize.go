package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrValue is returned for weights that cannot be quantized: infinities, NaNs, and
// those too large for the scale of a block, which is a half.
var ErrValue = errors.New("weight cannot be quantized")

// Quantizes reports whether [Quantize] knows a type.
func (t Type) Quantizes() bool { return t == Q8_0 || t == Q4_0 }

// Quantize writes weights as whole blocks of type t, Q8_0 or Q4_0. dst must hold
// exactly the blocks of src.
//
// The blocks are those of ggml's reference, to the bit, where a multiplication and an
// addition round one by one, as they do on x86-64. In a ggml that fuses the two a
// weight of Q4_0 that lies between two levels may get the other one.
func Quantize(dst []byte, t Type, src []float32) error {
	block := quantizeQ8_0
	switch t {
	case Q8_0:
	case Q4_0:
		block = quantizeQ4_0
	default:
		return fmt.Errorf("%w: %s; Q8_0 and Q4_0 can be made", ErrType, t)
	}
	l, _ := layoutOf(t)
	if len(src)%l.weights != 0 || len(src)/l.weights*l.bytes != len(dst) {
		return fmt.Errorf("quantize to %s: %d weights are not %d bytes", t, len(src), len(dst))
	}
	for i := 0; len(src) > 0; i, src, dst = i+l.weights, src[l.weights:], dst[l.bytes:] {
		if err := block(dst[:l.bytes], src[:l.weights]); err != nil {
			return fmt.Errorf("%w, one of %d to %d", err, i, i+l.weights-1)
		}
	}
	return nil
}

// quantizeQ8_0: the scale is the largest magnitude / 127, and levels are rounded to
// nearest, halves away from zero.
func quantizeQ8_0(b []byte, src []float32) error {
	src = src[:32]
	most := uint32(0)
	for _, v := range src {
		most = max(most, math.Float32bits(v)&magnitude)
	}
	inverse, err := putScale(b, math.Float32frombits(most)/127)
	if err != nil {
		return err
	}
	b = b[2:34]
	for i, v := range src {
		bits := math.Float32bits(float32(v * inverse))
		// The sum is exact in float64, as far as its whole part goes.
		q := int32(float64(math.Float32frombits(bits&magnitude)) + 0.5)
		sign := int32(bits) >> 31
		b[i] = byte(q ^ sign - sign)
	}
	return nil
}

// quantizeQ4_0: the scale is such that the weight of the largest magnitude, the first
// among equals, is level −8 of −8 to 7.
func quantizeQ4_0(b []byte, src []float32) error {
	src = src[:32]
	most, at := uint32(0), 0
	for i, v := range src {
		if m := math.Float32bits(v) & magnitude; m > most {
			most, at = m, i
		}
	}
	inverse, err := putScale(b, src[at]/-8)
	if err != nil {
		return err
	}
	low, high := src[:16], src[16:32]
	b = b[2:18]
	for i := range b {
		b[i] = level4(low[i], inverse) | level4(high[i], inverse)<<4
	}
	return nil
}

// level4 is the level of a weight, from 0 to 15. The conversions keep the compiler
// from fusing.
func level4(v, inverse float32) byte {
	return byte(min(int32(float32(float32(v*inverse)+8.5)), 15))
}

// magnitude is all bits of a float32 but the sign. What is not finite compares as
// larger than everything that is.
const magnitude = 0x7FFFFFFF

// putScale writes the scale of a block and returns its inverse, 0 for a scale that is
// 0 or has none.
func putScale(b []byte, d float32) (inverse float32, err error) {
	h := toHalf(d)
	binary.LittleEndian.PutUint16(b, h)
	switch {
	case math.Float32bits(d)&magnitude >= 0x7F800000:
		return 0, fmt.Errorf("%w: it is no finite number", ErrValue)
	case h&0x7FFF == 0x7C00:
		return 0, fmt.Errorf("%w: it is too large", ErrValue)
	case d == 0:
		return 0, nil
	}
	if inverse = 1 / d; math.IsInf(float64(inverse), 0) {
		inverse = 0 // the half is 0, whatever the levels are
	}
	return inverse, nil
}

// toHalf rounds to IEEE half precision, to nearest even, large values to infinity.
func toHalf(v float32) uint16 {
	bits := math.Float32bits(v)
	sign := uint16(bits >> 16 & 0x8000)
	switch bits &= 0x7FFFFFFF; {
	case bits > 0x7F800000: // NaN
		return sign | 0x7E00
	case bits >= (127+16)<<23:
		return sign | 0x7C00
	case bits < (127-14)<<23: // subnormal: a multiple of 2^-24
		// Adding 1/2 leaves the multiple in the lowest bits, rounded.
		return sign | uint16(math.Float32bits(math.Float32frombits(bits)+0.5)-math.Float32bits(0.5))
	}
	bits -= (127 - 15) << 23
	return sign | uint16((bits+0xFFF+bits>>13&1)>>13)
}
