package kerneltest

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

func embed(c *fake.Call, table matrix) {
	out := c.Pointer()
	table.place(c)
	ids := c.Pointer()
	hidden, rows, scale := int(c.Int32()), c.Int32(), float64(c.Float32())
	tokens := int(c.Grid.X)
	for t, id := range read[int32](c, ids, tokens) {
		to := write[BF16](c, at[BF16](out, t*hidden), hidden)
		clear(to)
		if id >= 0 && id < rows {
			for i, v := range table.rows(c, int(id), 1, hidden) {
				to[i] = Round(v * scale)
			}
		}
	}
}

func rmsNorm(c *fake.Call) {
	out, residual, x, weight := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	hidden, eps, offset := int(c.Int32()), float64(c.Float32()), float64(c.Float32())
	w := read[BF16](c, weight, hidden)
	for row := range int(c.Grid.X) {
		v := Floats(read[BF16](c, at[BF16](x, row*hidden), hidden))
		if residual != 0 {
			sum := write[BF16](c, at[BF16](residual, row*hidden), hidden)
			for i := range v {
				sum[i] = Round(sum[i].Float() + v[i])
			}
			v = Floats(sum)
		}
		normalize(v, w, eps, offset)
		rounded(write[BF16](c, at[BF16](out, row*hidden), hidden), v)
	}
}

// normalize divides values by their root mean square and multiplies them by weights.
func normalize(v []float64, weight []BF16, eps, offset float64) {
	var squares float64
	for _, x := range v {
		squares += x * x
	}
	scale := 1 / math.Sqrt(squares/float64(len(v))+eps)
	for i := range v {
		v[i] *= scale * (weight[i].Float() + offset)
	}
}

func glu(c *fake.Call) {
	out, in := c.Pointer(), c.Pointer()
	inner, act := int(c.Int32()), kernels.Activation(c.Int32())
	for row := range int(c.Grid.Y) {
		v := Floats(read[BF16](c, at[BF16](in, row*2*inner), 2*inner))
		for i, u := range v[inner:] {
			v[i] = activate(act, v[i]) * u
		}
		rounded(write[BF16](c, at[BF16](out, row*inner), inner), v[:inner])
	}
}

func activate(act kernels.Activation, x float64) float64 {
	if act == kernels.GELUTanh {
		return 0.5 * x * (1 + math.Tanh(math.Sqrt(2/math.Pi)*(x+0.044715*x*x*x)))
	}
	return x / (1 + math.Exp(-x))
}
