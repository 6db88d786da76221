package kerneltest

import (
	"math"

	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/lab/cuda/fake"
)

// cache is one layer of a block pool.
type cache struct {
	c     *fake.Call
	pool  uint64
	shape kvlayout.Shape
	layer int
}

// layout reads struct KVLayout of the sources.
func layout(c *fake.Call, pool uint64) *cache {
	c.Int64() // bytes of a block: the shape knows
	k := &cache{c: c, pool: pool}
	k.shape.Layers, k.layer = int(c.Int32()), int(c.Int32())
	k.shape.KVHeads, k.shape.HeadDim, k.shape.BlockSize = int(c.Int32()), int(c.Int32()), int(c.Int32())
	k.shape.DType = "bf16"
	if c.Int32() != 0 {
		k.shape.DType = "int8"
	}
	return k
}

// region is the address of K (0) or V (1) of a head in a block.
func (k *cache) region(block, kv, head int) uint64 {
	return k.pool + uint64(block)*uint64(k.shape.BlockBytes()) + uint64(k.shape.Region(k.layer, kv, head))
}

// values is K or V of a head in a block.
type values struct {
	bf16   []BF16
	int8   []int8
	scales []float32 // of the tokens, for int8
}

// open gives the values for reading or writing.
func (k *cache) open(block, kv, head int, bytes func(address uint64, n int64) []byte) (v values) {
	n := k.shape.BlockSize * k.shape.HeadDim
	region := bytes(k.region(block, kv, head), int64(k.shape.RegionBytes()))
	if k.shape.DType == "bf16" {
		v.bf16 = view[BF16](region, n)
	} else {
		v.int8, v.scales = view[int8](region, n), view[float32](region[n:], k.shape.BlockSize)
	}
	return v
}

// float is a value of a token.
func (v *values) float(index, token int) float64 {
	if v.int8 != nil {
		return float64(v.int8[index]) * float64(v.scales[token])
	}
	return v.bf16[index].Float()
}

// index returns the index of a token's value in its region.
func (k *cache) index(kv, token, dim int) int { return KVIndex(k.shape, kv, token, dim) }

// KVIndex returns the index of a token's value in the region of K (0) or V (1).
func KVIndex(s kvlayout.Shape, kv, token, dim int) int {
	switch {
	case kv == 1:
		return token*s.HeadDim + dim
	case s.DType == "int8":
		return token/16*16*s.HeadDim + dim*16 + token%16
	}
	return token/16*16*s.HeadDim + (dim/2*16+token%16)*2 + dim%2
}

// put stores K or V of the token in a slot: for int8 in 127ths of the largest, which is the
// scale; no number if one of them is none, and zero if they are too small for one.
func (k *cache) put(slot, kv, head int, x []float64) {
	token := slot % k.shape.BlockSize
	to := k.open(slot/k.shape.BlockSize, kv, head, k.c.Write)
	if to.int8 == nil {
		for d, v := range x {
			to.bf16[k.index(kv, token, d)] = Round(v)
		}
		return
	}
	var top float64
	for _, v := range x {
		if top = max(top, math.Abs(v)); v-v != 0 { // no number, or infinite
			top = math.NaN()
		}
	}
	if 127/top > math.MaxFloat32 {
		top = 0
	}
	to.scales[token] = float32(top / 127)
	for d, v := range x {
		var q int8
		if top > 0 {
			q = int8(math.RoundToEven(v / top * 127))
		}
		to.int8[k.index(kv, token, d)] = q
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
