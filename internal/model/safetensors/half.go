package safetensors

import "math"

// FromF16 widens IEEE half precision; every value is exact.
func FromF16(h uint16) float32 {
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

// FromBF16 widens bf16; every value is exact.
func FromBF16(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// ToBF16 rounds to the nearest value of bf16, ties to even.
func ToBF16(v float32) uint16 {
	bits := math.Float32bits(v)
	if v != v { // rounding could turn a NaN into a number
		return uint16(bits>>16) | 0x40
	}
	return uint16((bits + 0x7FFF + bits>>16&1) >> 16)
}
