package cpu

import "math"

// widenBF16 converts bf16 to float32; every value is exact.
//
//go:norace
func widenBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = math.Float32frombits(uint32(src[i]) << 16)
	}
}

// widenF16 converts IEEE half precision to float32; every value is exact.
//
//go:norace
func widenF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = fromF16(src[i])
	}
}

func fromF16(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	bits := uint32(h&0x7FFF) << 13
	switch {
	case bits >= 0x7C00<<13: // infinity or NaN
		bits |= 0x7F800000
	case bits >= 0x0400<<13:
		bits += (127 - 15) << 23
	default: // subnormal: a multiple of 2^-24
		bits = math.Float32bits(float32(h&0x03FF) * 0x1p-24)
	}
	return math.Float32frombits(sign | bits)
}

// narrowBF16 rounds float32 to bf16, to nearest even.
func narrowBF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = toBF16(src[i])
	}
}

func toBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v { // rounding could turn a NaN into a number
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}

// roundF16 rounds a value between 2^-14 and 65504 to half precision, to nearest
// even.
func roundF16(v float32) float32 {
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 0xFFF + bits>>13&1) &^ 0x1FFF)
}
