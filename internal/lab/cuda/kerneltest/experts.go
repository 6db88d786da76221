package kerneltest

import (
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// run is struct Pairs of the sources.
type run struct{ expert, first, past, unused int32 }

func route(c *fake.Call) {
	experts, shares, logits := c.Pointer(), c.Pointer(), c.Pointer()
	tokens, count, active, normalize := int(c.Int32()), int(c.Int32()), int(c.Int32()), c.Int32() != 0
	for t := range tokens {
		row := read[float32](c, at[float32](logits, t*count), count)
		chosen := write[int32](c, at[int32](experts, t*active), active)
		share := write[float32](c, at[float32](shares, t*active), active)
		all := make([]int, count)
		for e := range all {
			all[e] = e
		}
		slices.SortStableFunc(all, func(a, b int) int {
			switch x, y := row[a], row[b]; {
			case x > y, x == x && y != y:
				return -1
			case x < y, x != x && y == y:
				return 1
			}
			return 0
		})
		top := float64(row[all[0]])
		var sum, some float64
		for _, l := range row {
			sum += math.Exp(float64(l) - top)
		}
		for rank, e := range all[:active] {
			chosen[rank] = int32(e)
			some += math.Exp(float64(row[e])-top) / sum
		}
		for rank, e := range all[:active] {
			s := math.Exp(float64(row[e])-top) / sum
			if normalize {
				s /= some
			}
			share[rank] = float32(s)
		}
	}
}

func planExperts(c *fake.Call) {
	runCount, runs, order, experts := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	pairs, count, tile := int(c.Int32()), c.Int32(), int(c.Int32())
	chosen := read[int32](c, experts, pairs)
	sorted := write[int32](c, order, pairs)
	first, n := 0, 0
	for e := range count {
		past := first
		for i, x := range chosen {
			if x == e {
				sorted[past] = int32(i)
				past++
			}
		}
		for ; first < past; first = min(first+tile, past) {
			write[run](c, at[run](runs, n), 1)[0] = run{e, int32(first), int32(min(first+tile, past)), 0}
			n++
		}
	}
	write[int32](c, runCount, 1)[0] = int32(n)
}

func combineExperts(c *fake.Call) {
	out, x, shares := c.Pointer(), c.Pointer(), c.Pointer()
	active, hidden, wide := int(c.Int32()), int(c.Int32()), c.Int32() != 0
	for t := range int(c.Grid.Y) {
		sum := make([]float64, hidden)
		for rank, share := range read[float32](c, at[float32](shares, t*active), active) {
			for i, v := range read[BF16](c, at[BF16](x, (t*active+rank)*hidden), hidden) {
				sum[i] += float64(share) * v.Float()
			}
		}
		if wide {
			to := write[float32](c, at[float32](out, t*hidden), hidden)
			for i, v := range sum {
				to[i] = float32(v)
			}
			continue
		}
		rounded(write[BF16](c, at[BF16](out, t*hidden), hidden), sum)
	}
}
