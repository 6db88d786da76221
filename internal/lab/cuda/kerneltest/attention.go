package kerneltest

import (
	"math"

	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// attention holds the operands that decode and prefill have in common.
type attention struct {
	*cache
	tables       uint64
	tableBlocks  int
	queryHeads   int
	window       int
	scale, limit float64
}

func (a *attention) scores() {
	a.scale, a.limit = float64(a.c.Float32()), float64(a.c.Float32())
}

// attend computes one query head of the token at a position.
func (a *attention) attend(sequence, head, position int, q []BF16) []float64 {
	dim, size := a.shape.HeadDim, a.shape.BlockSize
	kvHead := head / (a.queryHeads / a.shape.KVHeads)
	first := 0
	if a.window > 0 {
		first = max(0, position-a.window+1)
	}
	out := make([]float64, dim)
	if position < 0 {
		return out
	}
	// Softmax in two passes: scores, then weights.
	scores := make([]float64, position+1-first)
	table := read[int32](a.c, at[int32](a.tables, sequence*a.tableBlocks), position/size+1)
	top := math.Inf(-1)
	var k, v values // of the block at hand
	for i := range scores {
		token := first + i
		if i == 0 || token%size == 0 {
			k = a.open(int(table[token/size]), 0, kvHead, a.c.Read)
		}
		var x float64
		for d, y := range q {
			x += y.Float() * k.float(a.index(0, token%size, d), token%size)
		}
		x *= a.scale
		if a.limit > 0 {
			x = a.limit * math.Tanh(x/a.limit)
		}
		scores[i], top = x, max(top, x)
	}
	var norm float64
	for i, x := range scores {
		token := first + i
		if i == 0 || token%size == 0 {
			v = a.open(int(table[token/size]), 1, kvHead, a.c.Read)
		}
		w := math.Exp2(x - top)
		norm += w
		for d := range out {
			out[d] += w * v.float(a.index(1, token%size, d), token%size)
		}
	}
	for d := range out {
		out[d] /= norm
	}
	return out
}

// decodeAttention computes all at once, where the kernel leaves parts to be joined.
func decodeAttention(c *fake.Call) {
	out, partial, q, pool := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	a := attention{tables: c.Pointer()}
	lengths := c.Pointer()
	a.cache = layout(c, pool)
	a.tableBlocks, a.queryHeads = int(c.Int32()), int(c.Int32())
	splits := int(c.Int32())
	a.window = int(c.Int32())
	a.scores()
	dim, sequences := a.shape.HeadDim, int(c.Grid.Z)
	for s, length := range read[int32](c, lengths, sequences) {
		for head := range a.queryHeads {
			row := s*a.queryHeads + head
			result := a.attend(s, head, int(length)-1, read[BF16](c, at[BF16](q, row*dim), dim))
			if splits == 1 {
				rounded(write[BF16](c, at[BF16](out, row*dim), dim), result)
				continue
			}
			// The result in float32 takes the place of the first part.
			part := write[float32](c, at[float32](partial, row*splits*(dim+2)), dim)
			for d, v := range result {
				part[d] = float32(v)
			}
		}
	}
}

func joinAttention(c *fake.Call) {
	out, partial := c.Pointer(), c.Pointer()
	c.Pointer()
	c.Pointer()
	c.Pointer()
	c.Pointer()
	k := layout(c, 0)
	c.Int32()
	queryHeads, splits := int(c.Int32()), int(c.Int32())
	dim := k.shape.HeadDim
	for row := range int(c.Grid.Y) * queryHeads {
		part := read[float32](c, at[float32](partial, row*splits*(dim+2)), dim)
		to := write[BF16](c, at[BF16](out, row*dim), dim)
		for d, v := range part {
			to[d] = Round(float64(v))
		}
	}
}

func prefillAttention(c *fake.Call) {
	out, q, pool := c.Pointer(), c.Pointer(), c.Pointer()
	a := attention{tables: c.Pointer()}
	startsAt, lengths := c.Pointer(), c.Pointer()
	a.cache = layout(c, pool)
	a.tableBlocks, a.queryHeads, a.window = int(c.Int32()), int(c.Int32()), int(c.Int32())
	c.Int32()
	a.scores()
	dim, sequences := a.shape.HeadDim, int(c.Grid.Z)
	starts := read[int32](c, startsAt, sequences+1)
	for s, length := range read[int32](c, lengths, sequences) {
		for t := starts[s]; t < starts[s+1]; t++ {
			for head := range a.queryHeads {
				row := int(t)*a.queryHeads + head
				result := a.attend(s, head, int(length-starts[s+1]+t), read[BF16](c, at[BF16](q, row*dim), dim))
				rounded(write[BF16](c, at[BF16](out, row*dim), dim), result)
			}
		}
	}
}
