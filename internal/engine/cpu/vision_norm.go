package cpu

import (
	"math"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
)

// apply writes x, scaled to a mean of zero and a variance of one, times weight plus bias; without
// a bias the mean stays. dst may be x.
func (n *layerNorm) apply(level kernel.Level, dst, x []float32, eps float64) {
	dst = dst[:len(x)]
	if n.bias == nil {
		rmsNorm(level, dst, x, n.weight, eps)
		return
	}
	mean := sum(x) / float32(len(x))
	for i, v := range x {
		dst[i] = v - mean
	}
	if level == kernel.Portable {
		scale := float32(1 / math.Sqrt(float64(dot(dst, dst)/float32(len(x)))+eps))
		for i, v := range dst {
			dst[i] = float32(v*scale) * n.weight[i]
		}
	} else {
		variance := level.SumSquares(dst) / float32(len(x))
		level.ScaleBy(dst, dst, n.weight, float32(1/math.Sqrt(float64(variance)+eps)))
	}
	add(dst, n.bias)
}

// sum adds all values, in four sums.
//
//go:norace
func sum(x []float32) float32 {
	var s0, s1, s2, s3 float32
	for ; len(x) >= 4; x = x[4:] {
		s0 += x[0]
		s1 += x[1]
		s2 += x[2]
		s3 += x[3]
	}
	for _, v := range x {
		s0 += v
	}
	return (s0 + s1) + (s2 + s3)
}

// gelu applies an activation of towers.
func gelu(level kernel.Level, act model.Activation, x []float32) {
	// ½(1 + tanh(y)) is the logistic function of 2y.
	const rootEightOverPi = 1.5957691216057308
	switch act {
	case model.GELUTanh:
		gated(level, x, rootEightOverPi, rootEightOverPi*0.044715)
	case model.QuickGELU:
		gated(level, x, 1.702, 0)
	default:
		for i, v := range x {
			x[i] = geluErf(v)
		}
	}
}

// gated multiplies x with the logistic function of x · (linear + cubic · x²).
func gated(level kernel.Level, x []float32, linear, cubic float32) {
	n := 0
	if level != kernel.Portable {
		n = level.GELU(x, linear, cubic)
	}
	for i, v := range x[n:] {
		x[n+i] = v / (1 + expf(-float32(v*(linear+float32(float32(v*v)*cubic)))))
	}
}

// geluErf returns x times the normal distribution function.
func geluErf(x float32) float32 { return 0.5 * x * (1 + erff(x*float32(math.Sqrt2/2))) }

// erff returns the error function in float32, with the same bits on every machine. The
// polynomials are those of erff and erfcf in the Cephes library, that for values from 1 to 2
// also for larger ones, where the error function differs from 1 by little.
func erff(x float32) float32 {
	abs := float32(math.Abs(float64(x)))
	if abs > 1 {
		y := 1 - erfcf(abs)
		if x < 0 {
			return -y
		}
		return y
	}
	z := float32(x * x)
	return float32(x * polynomial(z, erfT[:]))
}

// erfcf returns 1 - erf(x) for x above 1.
func erfcf(x float32) float32 {
	inverse := 1 / x
	return float32(expf(-float32(x*x)) * inverse * polynomial(float32(inverse*inverse), erfcP[:]))
}

var (
	erfT = [...]float32{7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2,
		1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710}
	erfcP = [...]float32{2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1,
		6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1, 5.638259427386472e-1}
)

// polynomial returns the sum of coefficients times powers of x, the highest power first.
func polynomial(x float32, coefficients []float32) (y float32) {
	for _, c := range coefficients {
		y = float32(y*x) + c
	}
	return y
}
