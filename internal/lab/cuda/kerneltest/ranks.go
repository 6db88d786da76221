package kerneltest

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// sumRanks adds in float32, as the kernel does: the sums are the same bits.
func sumRanks(c *fake.Call) {
	var sums, parts [kernels.MaxRanks]uint64
	for i := range sums {
		sums[i] = c.Pointer()
	}
	for i := range parts {
		parts[i] = c.Pointer()
	}
	first, n := int(8*c.Int64()), int(8*c.Int64())
	stores, ranks := int(c.Int32()), int(c.Int32())
	total := append([]float32(nil), read[float32](c, at[float32](parts[0], first), n)...)
	for _, p := range parts[1:ranks] {
		for i, v := range read[float32](c, at[float32](p, first), n) {
			total[i] += v
		}
	}
	for _, p := range sums[:stores] {
		out := write[BF16](c, at[BF16](p, first), n)
		for i, v := range total {
			out[i] = Round(float64(v))
		}
	}
}

func rankCases() (all []Case) {
	for _, c := range []struct{ ranks, stores, values, first, count int }{
		{2, 1, 8, 0, 8}, {2, 2, 4096, 2056, 2040}, {3, 1, 520, 8, 512}, {4, 4, 1 << 16, 0, 1 << 16},
		{5, 1, 64, 0, 64}, {6, 2, 64, 0, 64}, {7, 7, 64, 0, 64}, {8, 8, 8 * 4096, 4096, 4096}, {8, 1, 2048 * 4096, 0, 2048 * 4096},
	} {
		all = append(all, Case{
			Name: fmt.Sprintf("ranks/ranks=%d,stores=%d,first=%d,values=%d", c.ranks, c.stores, c.first, c.count), Large: c.count > 1<<20,
			Prepare: func(l *Lab) func(q *kernels.Queue) error {
				o := kernels.SumRanks{First: c.first, Count: c.count}
				for r := range c.ranks {
					part := make([]float32, c.values)
					for i := range part {
						part[i] = float32(l.NormFloat64())
					}
					o.Parts = append(o.Parts, l.Float32s(part...))
					if r < c.stores {
						o.Sums = append(o.Sums, l.Out(fmt.Sprintf("sums of rank %d", r), 2*c.values, Exact))
					}
				}
				return func(q *kernels.Queue) error { return q.SumRanks(o) }
			},
		})
	}
	return all
}
