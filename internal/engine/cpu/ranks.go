package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// ranks are the tensor-parallel ranks of a backend. Each rank holds the KV of an equal
// share of the heads in its own memory, and computes the query heads of that share.
type ranks []cache

// of returns the rank that holds a KV head, and the index of the head there.
func (rs ranks) of(head int) (c *cache, own int) {
	n := rs[0].shape.KVHeads
	return &rs[head/n], head % n
}

// write stores K (kv 0) or V (kv 1) of one token. values holds all heads, one after the
// other.
func (rs ranks) write(level kernel.Level, w *writing, block int32, layer, kv, token int, values []float32) {
	n := rs[0].shape.KVHeads * rs[0].shape.HeadDim
	for i := range rs {
		rs[i].write(level, w, block, layer, kv, token, values[i*n:(i+1)*n])
	}
}
