package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// lane is the working memory of one worker of the pool. Only that worker uses it. It
// grows to the needs of the largest model of the device.
type lane struct {
	rows [4][]float32 // widened weight rows

	// Products with packed weights: the call, and room for the last outputs of a matrix
	// with the padding of their panel.
	call kernel.Call
	edge [len(kernel.Call{}.Dst)][kernel.Width]float32
	bf16 bf16Room
	// The same for quantized weights, and one of their rows where they are not
	// packed.
	blockCall kernel.BlockCall
	row       kernel.Row
	int8      int8Room // many rows with quantized weights on tiles

	// Attention, for the query rows of one tile.
	keys   []float32 // K of a group of tokens or V of a segment, as float32
	scores []float32 // [row][position in segment]
	part   partial   // of one segment
	total  partial   // of all segments so far
	panel  panel     // with kernels
	write  writing
}

// forget drops the addresses that kernels were given. Weights and KV memory may be
// unmapped before the lane is used again. The garbage collector must not find stale
// addresses that now belong to other memory.
func (l *lane) forget() {
	l.call, l.panel.score, l.panel.mix = kernel.Call{}, kernel.Score{}, kernel.Mix{}
	l.bf16.forget()
	l.int8.forget()
	c := &l.blockCall
	clear(c.Src[:])
	clear(c.Dst[:])
	c.Panel = nil
}

func (l *lane) reserveRows(cols int) {
	for i := range l.rows {
		l.rows[i] = grow(l.rows[i], cols)
	}
}

func (l *lane) reserveQueries(rows, headDim int) {
	d := padded(headDim)
	l.keys = grow(l.keys, segment*d)
	l.scores = grow(l.scores, rows*segment)
	l.part.reserve(rows, d)
	l.total.reserve(rows, d)
}

// grow returns a slice of at least n elements: the old one if it is large enough, else a
// new one without its content.
func grow[T any](s []T, n int) []T {
	if len(s) >= n {
		return s
	}
	return make([]T, n)
}
