package cpu

import "math"

// expf is e to the x in float32, with a relative error below 2e-7 and the same
// bits on every machine, which math.Exp does not promise. Range reduction and
// polynomial are those of expf in the Cephes library (S. Moshier).
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

// pow2 is 2 to the n for -126 ≤ n ≤ 127.
func pow2(n int32) float32 { return math.Float32frombits(uint32(n+127) << 23) }

// silu is x times its logistic function.
func silu(x float32) float32 {
	return x / (1 + expf(-x))
}
