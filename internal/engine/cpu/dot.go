package cpu

import "math"

// The products below are the arithmetic of all linear layers and of attention scores.
// Every output element is one running sum over k from first to last, in float32, whatever
// tile it is computed in. Results therefore do not depend on batch, chunks or threads.
// Several sums run side by side in a tile only to keep the adder busy; the compiler keeps
// four in registers. The explicit conversion rounds each product, so that no compiler
// fuses it with the sum in one tile and not in another.
//
// The inner loops are excluded from race detection, which would make all tests of the
// project many times slower. They write only memory of their own lane, and the detector
// still watches memory that their callers share.

// dot2x2 multiplies two rows with two vectors of the same length.
//
//go:norace
func dot2x2(w0, w1, x, y []float32) (x0, x1, y0, y1 float32) {
	w0, w1, y = w0[:len(x)], w1[:len(x)], y[:len(x)]
	for k := range x {
		p, q := x[k], y[k]
		v, u := w0[k], w1[k]
		x0 += float32(v * p)
		y0 += float32(v * q)
		x1 += float32(u * p)
		y1 += float32(u * q)
	}
	return x0, x1, y0, y1
}

// dot4 multiplies four rows with one vector.
//
//go:norace
func dot4(w0, w1, w2, w3, x []float32) (x0, x1, x2, x3 float32) {
	w0, w1, w2, w3 = w0[:len(x)], w1[:len(x)], w2[:len(x)], w3[:len(x)]
	for k, p := range x {
		x0 += float32(w0[k] * p)
		x1 += float32(w1[k] * p)
		x2 += float32(w2[k] * p)
		x3 += float32(w3[k] * p)
	}
	return x0, x1, x2, x3
}

// dot multiplies one row with one vector.
//
//go:norace
func dot(w, x []float32) (sum float32) {
	w = w[:len(x)]
	for k, p := range x {
		sum += float32(w[k] * p)
	}
	return sum
}

// dot4BF16 is dot4 for rows of bf16. For a single vector this is faster than
// widening the rows first.
//
//go:norace
func dot4BF16(w0, w1, w2, w3 []uint16, x []float32) (x0, x1, x2, x3 float32) {
	w0, w1, w2, w3 = w0[:len(x)], w1[:len(x)], w2[:len(x)], w3[:len(x)]
	for k, p := range x {
		x0 += float32(math.Float32frombits(uint32(w0[k])<<16) * p)
		x1 += float32(math.Float32frombits(uint32(w1[k])<<16) * p)
		x2 += float32(math.Float32frombits(uint32(w2[k])<<16) * p)
		x3 += float32(math.Float32frombits(uint32(w3[k])<<16) * p)
	}
	return x0, x1, x2, x3
}

// axpy4 adds four weighted vectors to sum, one after the other for each element.
//
//go:norace
func axpy4(sum, v0, v1, v2, v3 []float32, p *[4]float32) {
	v0, v1, v2, v3 = v0[:len(sum)], v1[:len(sum)], v2[:len(sum)], v3[:len(sum)]
	p0, p1, p2, p3 := p[0], p[1], p[2], p[3]
	for d, s := range sum {
		s += float32(p0 * v0[d])
		s += float32(p1 * v1[d])
		s += float32(p2 * v2[d])
		s += float32(p3 * v3[d])
		sum[d] = s
	}
}

// axpy adds one weighted vector to sum.
//
//go:norace
func axpy(sum, v []float32, p float32) {
	v = v[:len(sum)]
	for d := range sum {
		sum[d] += float32(p * v[d])
	}
}
