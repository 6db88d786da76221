package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// ranks are the tensor-parallel ranks of a backend: each has the KV of an equal share of
// the heads in memory of its own, and the query heads that go with them.
type ranks []cache

// of is the rank that has a KV head, and the number of the head there.
func (rs ranks) of(head int) (c *cache, own int) {
	n := rs[0].shape.KVHeads
	return &rs[head/n], head % n
}

// write stores K (kv 0) or V (kv 1) of one token: values has all heads, one after the
// other.
func (rs ranks) write(level kernel.Level, w *writing, block int32, layer, kv, token int, values []float32) {
	n := rs[0].shape.KVHeads * rs[0].shape.HeadDim
	for i := range rs {
		rs[i].write(level, w, block, layer, kv, token, values[i*n:(i+1)*n])
	}
}
