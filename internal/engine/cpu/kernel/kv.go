package kernel

import "math"

// NarrowBF16 rounds to nearest even; what is no number stays none. The length is a multiple of 16.
func (l Level) NarrowBF16(dst []uint16, src []float32) {
	if len(src) == 0 {
		return
	}
	dst = dst[:len(src)]
	if l == Portable {
		narrowBF16Go(dst, src)
	} else {
		l.narrowBF16(dst, src)
	}
}

// QuantizeI8 rounds src / scale to int8, to nearest even, and returns the scale, at
// which the largest absolute value becomes 127. The scale is no number when a value
// is not finite, and values too small for a scale become zero. The length is a
// multiple of 16.
func (l Level) QuantizeI8(dst []int8, src []float32) (scale float32) {
	if len(src) == 0 {
		return 0
	}
	dst = dst[:len(src)]
	var top float32
	if l == Portable {
		top = largestGo(src)
	} else {
		top = l.largest(src)
	}
	factor := 127 / top
	switch {
	case !(top <= math.MaxFloat32):
		scale, factor = float32(math.NaN()), 0
	case factor > math.MaxFloat32:
		scale, factor = 0, 0
	default:
		scale = top / 127
	}
	if factor == 0 {
		clear(dst)
		return scale
	}
	if l == Portable {
		roundI8Go(dst, src, factor)
	} else {
		l.roundI8(dst, src, factor)
	}
	return scale
}
