package cpu

import (
	"math"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// widenBF16 converts bf16 to float32; every value is exact.
//
//go:norace
func widenBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = safetensors.FromBF16(src[i])
	}
}

// widenF16 converts IEEE half precision to float32; every value is exact.
//
//go:norace
func widenF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = safetensors.FromF16(src[i])
	}
}

// narrowBF16 rounds float32 to bf16, to nearest even.
func narrowBF16(dst []uint16, src []float32) {
	src = src[:len(dst)]
	for i := range dst {
		dst[i] = safetensors.ToBF16(src[i])
	}
}

// roundF16 rounds a value between 2^-14 and 65504 to half precision, to nearest
// even.
func roundF16(v float32) float32 {
	bits := math.Float32bits(v)
	return math.Float32frombits((bits + 0xFFF + bits>>13&1) &^ 0x1FFF)
}
