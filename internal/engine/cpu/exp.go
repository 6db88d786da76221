package cpu

import "math"

// expf returns e to the x in float32, with a relative error below 2e-7. It gives the same
// bits on every machine, which math.Exp does not promise. Range reduction and polynomial
// are those of expf in the Cephes library (S. Moshier).
func expf(x float32) float32 {
	const (
		log2e = 1.44269504088896341
		ln2Hi = 0.693359375 // exact in few bits, so n × ln2Hi does not round
		ln2Lo = -2.12194440e-4
	)
	switch {
	case x != x:
		return x
	case x > 88.72283:
		return float32(math.Inf(1))
	case x < -87.33654: // results below the smallest normal number are taken as 0
		return 0
	}
	n := float32(math.Floor(float64(float32(x*log2e) + 0.5)))
	x -= float32(n * ln2Hi)
	x -= float32(n * ln2Lo)
	y := float32(1.9875691500e-4)
	y = float32(y*x) + 1.3981999507e-3
	y = float32(y*x) + 8.3334519073e-3
	y = float32(y*x) + 4.1665795894e-2
	y = float32(y*x) + 1.6666665459e-1
	y = float32(y*x) + 5.0000001201e-1
	y = float32(y*float32(x*x)) + x + 1
	// In two steps, because 2 to the 128 is not a float32.
	half := int32(n) / 2
	return y * pow2(half) * pow2(int32(n)-half)
}

// pow2 returns 2 to the n for -126 ≤ n ≤ 127.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// silu returns x times its logistic function.
func silu(x float32) float32 {
	return x / (1 + expf(-x))
}

// tanhf returns the hyperbolic tangent in float32, with the same bits on every machine.
// The polynomial for small values is that of tanhf in the Cephes library.
func tanhf(x float32) float32 {
	abs := float32(math.Abs(float64(x)))
	if abs >= 0.625 {
		y := 1 - 2/(float32(expf(2*abs))+1)
		if x < 0 {
			return -y
		}
		return y
	}
	z := float32(x * x)
	y := float32(-5.70498872745e-3)
	y = float32(y*z) + 2.06390887954e-2
	y = float32(y*z) - 5.37397155531e-2
	y = float32(y*z) + 1.33314422036e-1
	y = float32(y*z) - 3.33332819422e-1
	return float32(float32(y*z)*x) + x
}

// geluTanh returns the approximation of x times the normal distribution function that
// model.GELUTanh names.
func geluTanh(x float32) float32 {
	const rootTwoOverPi = 0.7978845608028654
	cube := float32(float32(x*x) * x)
	return 0.5 * x * (1 + tanhf(rootTwoOverPi*(x+float32(0.044715*cube))))
}

// bend caps values smoothly: limit × tanh(v / limit).
func bend(values []float32, limit float32) {
	for i, v := range values {
		values[i] = limit * tanhf(v/limit)
	}
}
