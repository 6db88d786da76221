package cpu

import (
	"math"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// rmsNorm writes x scaled to a root mean square of one, times weight. dst may be x.
func rmsNorm(level kernel.Level, dst, x, weight []float32, eps float64) {
	if level != kernel.Portable {
		mean := level.SumSquares(x) / float32(len(x))
		level.ScaleBy(dst, x, weight, float32(1/math.Sqrt(float64(mean)+eps)))
		return
	}
	mean := dot(x, x) / float32(len(x))
	scale := float32(1 / math.Sqrt(float64(mean)+eps))
	dst, weight = dst[:len(x)], weight[:len(x)]
	for i, v := range x {
		dst[i] = float32(v*scale) * weight[i]
	}
}

// angles fills in the cosines and sines of one position. As in the reference the angle is
// a float32 product. factor is 1 unless yarn scales the rotation.
func angles(cos, sin, invFreq []float32, position int, factor float64) {
	cos, sin = cos[:len(invFreq)], sin[:len(invFreq)]
	for i, f := range invFreq {
		s, c := math.Sincos(float64(float32(position) * f))
		cos[i], sin[i] = float32(c*factor), float32(s*factor)
	}
}

// rotate turns each pair (x[i], x[i+half]) of the first 2 × len(cos) values of one
// head by its angle and scales all values.
func rotate(level kernel.Level, x, cos, sin []float32, scale float32) {
	half := len(cos)
	lo, hi := x[:half], x[half:2*half]
	cos, sin = cos[:half], sin[:half]
	n := 0
	if level != kernel.Portable {
		n = level.Rotate(lo, hi, cos, sin, scale)
	}
	for i := n; i < half; i++ {
		a, b, c, s := lo[i], hi[i], cos[i], sin[i]
		lo[i] = (float32(a*c) - float32(b*s)) * scale
		hi[i] = (float32(b*c) + float32(a*s)) * scale
	}
	if rest := x[2*half:]; scale != 1 {
		for i := range rest {
			rest[i] *= scale
		}
	}
}
