package kerneltest

import (
	"github.com/dynctl/dynctl/internal/cuda/fake"
	"github.com/dynctl/dynctl/internal/engine"
)

// cache is one layer of a block pool.
type cache struct {
	c     *fake.Call
	pool  uint64
	shape engine.KVShape
	layer int
}

// layout reads struct KVLayout of the sources.
func layout(c *fake.Call, pool uint64) *cache {
	c.Int64() // bytes of a block: the shape knows
	k := &cache{c: c, pool: pool}
	k.shape.DType = "bf16"
	k.shape.Layers, k.layer = int(c.Int32()), int(c.Int32())
	k.shape.KVHeads, k.shape.HeadDim, k.shape.BlockSize = int(c.Int32()), int(c.Int32()), int(c.Int32())
	c.Int32()
	return k
}

// region is the address of K (0) or V (1) of a head in a block.
func (k *cache) region(block, kv, head int) uint64 {
	return k.pool + uint64(block)*uint64(k.shape.BlockBytes()) + uint64(k.shape.Region(k.layer, kv, head))
}

// index is where a value of a token lies in its region.
func (k *cache) index(kv, token, dim int) int {
	if kv == 1 {
		return token*k.shape.HeadDim + dim
	}
	return token/16*16*k.shape.HeadDim + (dim/2*16+token%16)*2 + dim%2
}

// put stores K or V of the token in a slot.
func (k *cache) put(slot, kv, head int, values []float64) {
	region := write[BF16](k.c, k.region(slot/k.shape.BlockSize, kv, head), k.shape.BlockSize*k.shape.HeadDim)
	for d, x := range values {
		region[k.index(kv, slot%k.shape.BlockSize, d)] = Round(x)
	}
}

func ropeAppend(c *fake.Call) {
	q, pool, qkv, qWeight, kWeight := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	cosines, sines, positions, slots := c.Pointer(), c.Pointer(), c.Pointer(), c.Pointer()
	k := layout(c, pool)
	queryHeads, rotary, eps, offset := int(c.Int32()), int(c.Int32()), float64(c.Float32()), float64(c.Float32())
	tokens, dim := int(c.Grid.X), k.shape.HeadDim
	total := queryHeads + 2*k.shape.KVHeads
	slot := read[int32](c, slots, tokens)
	for t, position := range read[int32](c, positions, tokens) {
		var cos, sin []float32
		if rotary > 0 {
			row := int(position) * (rotary / 2)
			cos, sin = read[float32](c, at[float32](cosines, row), rotary/2), read[float32](c, at[float32](sines, row), rotary/2)
		}
		for head := range total {
			x := Floats(read[BF16](c, at[BF16](qkv, (t*total+head)*dim), dim))
			weight := qWeight
			if head >= queryHeads {
				weight = kWeight
			}
			if v := head - queryHeads - k.shape.KVHeads; v >= 0 {
				if slot[t] >= 0 {
					k.put(int(slot[t]), 1, v, x)
				}
				continue
			}
			if weight != 0 {
				normalize(x, read[BF16](c, weight, dim), eps, offset)
			}
			for i := range cos {
				a, b := x[i], x[i+rotary/2]
				x[i], x[i+rotary/2] = a*float64(cos[i])-b*float64(sin[i]), b*float64(cos[i])+a*float64(sin[i])
			}
			switch {
			case head < queryHeads:
				rounded(write[BF16](c, at[BF16](q, (t*queryHeads+head)*dim), dim), x)
			case slot[t] >= 0:
				k.put(int(slot[t]), 0, head-queryHeads, x)
			}
		}
	}
}
