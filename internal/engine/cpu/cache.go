package cpu

import (
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// cache reads and writes K and V in the block pool.
type cache struct {
	shape  engine.KVShape
	elems  int // per block
	blocks int
	f32    []float32 // one of the two views of the memory
	bf16   []uint16
}

func newCache(shape engine.KVShape, blocks int, data []byte) cache {
	c := cache{shape: shape, elems: int(shape.BlockBytes()) / shape.ElemBytes(), blocks: blocks}
	if shape.DType == "bf16" {
		c.bf16 = halves(data)
	} else {
		c.f32 = floats(data)
	}
	return c
}

// write stores K (kv 0) or V (kv 1) of one token: values has the heads one after
// the other.
func (c *cache) write(block int32, layer, kv, token int, values []float32) {
	dim := c.shape.HeadDim
	for head := range c.shape.KVHeads {
		at := int(block)*c.elems + c.shape.Offset(layer, kv, head, token)
		if c.f32 != nil {
			copy(c.f32[at:at+dim], values[head*dim:])
		} else {
			narrowBF16(c.bf16[at:at+dim], values[head*dim:])
		}
	}
}

// read gives K or V of n tokens of one block and head, [token][head dim]: the
// memory itself or buf filled from it.
func (c *cache) read(level kernel.Level, buf []float32, block int32, layer, kv, head, token, n int) []float32 {
	at := int(block)*c.elems + c.shape.Offset(layer, kv, head, token)
	n *= c.shape.HeadDim
	if c.f32 != nil {
		return c.f32[at : at+n]
	}
	buf = buf[:n]
	if level == kernel.Portable {
		widenBF16(buf, c.bf16[at:])
	} else {
		level.WidenBF16(buf, c.bf16[at:])
	}
	return buf
}
