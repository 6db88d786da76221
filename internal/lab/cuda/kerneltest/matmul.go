package kerneltest

import (
	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

func matMul(c *fake.Call, m matrix) {
	out, x := c.Pointer(), c.Pointer()
	m.place(c)
	bias := c.Pointer()
	tokens, rows, in, wide := int(c.Int32()), int(c.Int32()), int(c.Int32()), c.Int32() != 0
	matMulOf(c, out, x, m, bias, tokens, rows, in, wide)
}

// tileTokens are the tokens of the largest tile.
const tileTokens = 128

// matMulTiles is matMul with tensor maps for both matrices.
func matMulTiles(c *fake.Call) {
	x, w := c.TensorMap(), c.TensorMap()
	out, bias := c.Pointer(), c.Pointer()
	tokens, rows, in, wide := int(c.Int32()), int(c.Int32()), int(c.Int32()), c.Int32() != 0
	if x.Rows < uint64(tokens) || x.Columns != uint64(in) || w.Rows != uint64(rows) || w.Columns != uint64(in) {
		c.Mistake("tensor maps of %d x %d and %d x %d for %d tokens and %d rows of %d values", x.Rows, x.Columns, w.Rows, w.Columns, tokens, rows, in)
		return
	}
	// Whole tiles are copied, also those of rows that are no tokens, as far as the map has them.
	copied := min(int64(x.Rows), int64(tokens+tileTokens-1)/tileTokens*tileTokens)
	c.Read(x.Address, (copied-1)*int64(x.Stride)+int64(2*in))
	m := matrix{kind: kernels.BF16, at: w.Address}
	matMulOf(c, out, x.Address, m, bias, tokens, rows, in, wide)
}

// gatedTiles is matMulTiles of gates and of what they gate, and glu of the results.
func gatedTiles(c *fake.Call) {
	x, w := c.TensorMap(), c.TensorMap()
	out, bias := c.Pointer(), c.Pointer()
	tokens, inner, in, act := int(c.Int32()), int(c.Int32()), int(c.Int32()), kernels.Activation(c.Int32())
	if x.Rows < uint64(tokens) || x.Columns != uint64(in) || w.Rows != uint64(2*inner) || w.Columns != uint64(in) {
		c.Mistake("tensor maps of %d x %d and %d x %d for %d tokens and twice %d rows of %d values", x.Rows, x.Columns, w.Rows, w.Columns, tokens, inner, in)
		return
	}
	m := matrix{kind: kernels.BF16, at: w.Address}
	weights, add := m.rows(c, 0, 2*inner, in), make([]float64, 2*inner)
	if bias != 0 {
		add = Floats(read[BF16](c, bias, 2*inner))
	}
	inputs := Floats(read[BF16](c, x.Address, tokens*in))
	both := make([]BF16, 2*inner)
	for t := range tokens {
		sums := product(weights, inputs[t*in:][:in])
		for n, b := range add {
			sums[n] += b
		}
		rounded(both, sums)
		v := Floats(both)
		for i, u := range v[inner:] {
			v[i] = activate(act, v[i]) * u
		}
		rounded(write[BF16](c, at[BF16](out, t*inner), inner), v[:inner])
	}
}

func matMulOf(c *fake.Call, out, x uint64, m matrix, bias uint64, tokens, rows, in int, wide bool) {
	weights := m.rows(c, 0, rows, in)
	add := make([]float64, rows)
	if bias != 0 {
		add = Floats(read[BF16](c, bias, rows))
	}
	inputs := Floats(read[BF16](c, x, tokens*in))
	for t := range tokens {
		sums := product(weights, inputs[t*in:][:in])
		for n, b := range add {
			sums[n] += b
		}
		if !wide {
			rounded(write[BF16](c, at[BF16](out, t*rows), rows), sums)
			continue
		}
		to := write[float32](c, at[float32](out, t*rows), rows)
		for n, v := range sums {
			to[n] = float32(v)
		}
	}
}

func expertMatMul(c *fake.Call, m matrix) {
	out, x := c.Pointer(), c.Pointer()
	m.place(c)
	runCount, runs, order := c.Pointer(), c.Pointer(), c.Pointer()
	each, rows, in := int(c.Int32()), int(c.Int32()), int(c.Int32())
	for _, r := range read[run](c, runs, int(read[int32](c, runCount, 1)[0])) {
		weights := m.rows(c, int(r.expert)*rows, rows, in)
		for _, pair := range read[int32](c, at[int32](order, int(r.first)), int(r.past-r.first)) {
			row := Floats(read[BF16](c, at[BF16](x, int(pair)/each*in), in))
			rounded(write[BF16](c, at[BF16](out, int(pair)*rows), rows), product(weights, row))
		}
	}
}

// product multiplies a row with those of a matrix, four at a time: each sum is in order, and
// none waits for another.
func product(weights, x []float64) []float64 {
	n, in := 0, len(x)
	sums := make([]float64, len(weights)/in)
	for ; n+4 <= len(sums); n += 4 {
		w0, w1, w2, w3 := weights[n*in:][:in], weights[(n+1)*in:][:in], weights[(n+2)*in:][:in], weights[(n+3)*in:][:in]
		var s0, s1, s2, s3 float64
		for i, v := range x {
			s0 += v * w0[i]
			s1 += v * w1[i]
			s2 += v * w2[i]
			s3 += v * w3[i]
		}
		sums[n], sums[n+1], sums[n+2], sums[n+3] = s0, s1, s2, s3
	}
	for ; n < len(sums); n++ {
		for i, v := range x {
			sums[n] += v * weights[n*in+i]
		}
	}
	return sums
}
