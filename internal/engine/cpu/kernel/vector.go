package kernel

// SumSquares adds the squares of all values: those of the first multiple of 16 in
// sixteen sums of fused multiply-adds, element i in sum i % 16, which are added in
// halves (i and i+8, then i+4, i+2, i+1); then the rest one by one.
func (l Level) SumSquares(x []float32) float32 {
	n := len(x) &^ 15
	var sum float32
	if n > 0 {
		sum = l.sumSquares(x[:n])
	}
	for _, v := range x[n:] {
		sum = fma(v, v, sum)
	}
	return sum
}

// ScaleBy sets dst to x · scale · weight. dst may be x.
func (l Level) ScaleBy(dst, x, weight []float32, scale float32) {
	dst, weight = dst[:len(x)], weight[:len(x)]
	n := len(x) &^ 15
	if n > 0 {
		l.scaleBy(dst[:n], x, weight, scale)
	}
	for i := n; i < len(x); i++ {
		dst[i] = float32(x[i]*scale) * weight[i]
	}
}

// Swiglu replaces gate by silu(gate) · up for the first multiple of 16 elements and
// returns how many that are. Its exponential is that of package cpu, bit by bit.
func (l Level) Swiglu(gate, up []float32) int {
	n := len(gate) &^ 15
	if n > 0 {
		l.swiglu(gate[:n], up[:n])
	}
	return n
}

// GELU replaces x by x times the logistic function of x · (linear + cubic · x²) for the first
// multiple of 16 elements and returns how many that are. The exponential is that of
// Swiglu.
func (l Level) GELU(x []float32, linear, cubic float32) int {
	n := len(x) &^ 15
	if n > 0 {
		l.gelu(x[:n], linear, cubic)
	}
	return n
}

// Rotate turns each pair (lo[i], hi[i]) by its angle and scales it, for the first
// multiple of 16 pairs, and returns how many that are. All slices have the same
// length.
func (l Level) Rotate(lo, hi, cos, sin []float32, scale float32) int {
	n := len(lo) &^ 15
	if n > 0 {
		l.rotate(lo[:n], hi[:n], cos[:n], sin[:n], scale)
	}
	return n
}

// Blend sets sum to sum · keep + part · take, rounding each product. The length is
// a multiple of 16.
func (l Level) Blend(sum, part []float32, keep, take float32) {
	if len(sum) > 0 {
		l.blend(sum, part[:len(sum)], keep, take)
	}
}

// Scale sets dst to x · factor.
func (l Level) Scale(dst, x []float32, factor float32) {
	x = x[:len(dst)]
	n := len(dst) &^ 15
	if n > 0 {
		l.scale(dst[:n], x[:n], factor)
	}
	for i := n; i < len(dst); i++ {
		dst[i] = x[i] * factor
	}
}

// WidenBF16 converts exactly.
func (l Level) WidenBF16(dst []float32, src []uint16) {
	src = src[:len(dst)]
	n := len(dst) &^ 15
	if n > 0 {
		l.widenBF16(dst[:n], src[:n])
	}
	for i := n; i < len(dst); i++ {
		dst[i] = widen(src[i])
	}
}
