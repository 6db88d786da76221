package kerneltest

import "github.com/dynctl/dynctl/internal/cuda/fake"

func matMul(c *fake.Call) {
	out, x, w, bias := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	tokens, rows, in, wide := int(c.Int32()), int(c.Int32()), int(c.Int32()), c.Int32() != 0
	weights := Floats(read[BF16](c, w, rows*in))
	add := make([]float64, rows)
	if bias != 0 {
		add = Floats(read[BF16](c, bias, rows))
	}
	for t := range tokens {
		row := Floats(read[BF16](c, at[BF16](x, t*in), in))
		sums := make([]float64, rows)
		for n := range sums {
			for i, v := range weights[n*in:][:in] {
				sums[n] += v * row[i]
			}
			sums[n] += add[n]
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
