package cpu

import (
	"fmt"
	"math"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/model"
)

// Types of KV for [Options].
const (
	// KVAuto selects the type that [model.Model.KVDType] recommends.
	KVAuto = "auto"
	KVF32  = "f32"
	KVBF16 = "bf16"
	// KVInt8 stores int8 values with one scale for each token and head.
	KVInt8 = "int8"
)

// kvTypes maps names to the types of KV that can be stored.
var kvTypes = map[string]kernel.KVType{KVF32: kernel.KVF32, KVBF16: kernel.KVBF16, KVInt8: kernel.KVI8}

// KVDType returns the type of KV that a name in [Options] selects for a model. It fails
// for other names.
func KVDType(m *model.Model, name string) (string, error) {
	switch {
	case name == "":
		return KVF32, nil
	case name == KVAuto:
		return m.KVDType(), nil
	}
	if _, ok := kvTypes[name]; !ok {
		return "", fmt.Errorf("kv dtype %q is not one of auto, f32, bf16, int8", name)
	}
	return name, nil
}

// cache reads and writes K and V in the block pool of one rank; see [kvlayout.Shape] for
// the layout.
type cache struct {
	shape  kvlayout.Shape
	kind   kernel.KVType
	blocks int
	data   []byte
	// Sizes in bytes.
	block, region, row, scales int
}

func newCache(shape kvlayout.Shape, blocks int, data []byte) cache {
	return cache{
		shape: shape, kind: kvTypes[shape.DType], blocks: blocks, data: data,
		block: int(shape.BlockBytes()), region: shape.RegionBytes(), row: shape.RowBytes(), scales: shape.ScaleOffset(),
	}
}

// at returns the offset of a region in the memory.
func (c *cache) at(block int32, layer, kv, head int) int {
	return int(block)*c.block + ((head*c.shape.Layers+layer)*2+kv)*c.region
}

// view returns part of the memory as n values of another type.
func view[T any](c *cache, at, n int) []T {
	var zero T
	bytes := c.data[at : at+n*int(unsafe.Sizeof(zero))]
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(bytes))), n)
}

// writing is the working memory of writes: one head with its padding, as float32 and in
// the type of the cache.
type writing struct {
	padded []float32
	bf16   []uint16
	int8   []int8
}

// write stores K (kv 0) or V (kv 1) of one token. values holds the heads one after the
// other.
func (c *cache) write(level kernel.Level, w *writing, block int32, layer, kv, token int, values []float32) {
	dim := c.shape.HeadDim
	w.padded = grow(w.padded, padded(dim))
	for head := range c.shape.KVHeads {
		x := values[head*dim : (head+1)*dim]
		if dim != padded(dim) {
			x = w.padded[:padded(dim)]
			clear(x[copy(x, values[head*dim:(head+1)*dim]):])
		}
		at := c.at(block, layer, kv, head)
		switch c.kind {
		case kernel.KVBF16:
			w.bf16 = grow(w.bf16, len(x))
			level.NarrowBF16(w.bf16, x)
			if kv == 1 {
				copy(view[uint16](c, at+token*c.row, len(x)), w.bf16)
			} else {
				spreadPairs(view[uint32](c, at+token/kernel.KVGroup*kernel.KVGroup*c.row, len(x)/2*kernel.KVGroup), w.bf16, token%kernel.KVGroup)
			}
		case kernel.KVI8:
			w.int8 = grow(w.int8, len(x))
			view[float32](c, at+c.scales, token+1)[token] = level.QuantizeI8(w.int8, x)
			if kv == 1 {
				copy(view[int8](c, at+token*c.row, len(x)), w.int8)
			} else {
				spread(view[int8](c, at+token/kernel.KVGroup*kernel.KVGroup*c.row, len(x)*kernel.KVGroup), w.int8, token%kernel.KVGroup)
			}
		default:
			if kv == 1 {
				copy(view[float32](c, at+token*c.row, len(x)), x)
			} else {
				spread(view[float32](c, at+token/kernel.KVGroup*kernel.KVGroup*c.row, len(x)*kernel.KVGroup), x, token%kernel.KVGroup)
			}
		}
	}
}

// spread writes the values of one token into a group of keys.
func spread[T any](group, values []T, token int) {
	group = group[token:]
	for d, v := range values[:(len(group)+kernel.KVGroup-1)/kernel.KVGroup] {
		group[d*kernel.KVGroup] = v
	}
}

// spreadPairs is spread for two dimensions at a time.
func spreadPairs(group []uint32, values []uint16, token int) {
	for d := token; d < len(group); d += kernel.KVGroup {
		group[d] = uint32(values[0]) | uint32(values[1])<<16
		values = values[2:]
	}
}

// keys returns a group of keys as float32, [dim][token]: the memory itself, or buf filled
// from it.
func (c *cache) keys(buf []float32, block int32, layer, head, group int) []float32 {
	at, n := c.at(block, layer, 0, head), padded(c.shape.HeadDim)*kernel.KVGroup
	values := at + group*kernel.KVGroup*c.row
	switch c.kind {
	case kernel.KVBF16:
		pairs := view[uint32](c, values, n/2)
		for i, v := range pairs {
			d := i / kernel.KVGroup * 2 * kernel.KVGroup
			buf[d+i%kernel.KVGroup] = math.Float32frombits(v << 16)
			buf[d+i%kernel.KVGroup+kernel.KVGroup] = math.Float32frombits(v &^ 0xFFFF)
		}
	case kernel.KVI8:
		scales := view[float32](c, at+c.scales+group*kernel.KVGroup*4, kernel.KVGroup)
		for i, v := range view[int8](c, values, n) {
			buf[i] = float32(v) * scales[i%kernel.KVGroup]
		}
	default:
		return view[float32](c, values, n)
	}
	return buf[:n]
}

// values returns V of n tokens of one block and head as float32, [token][dim]: the memory
// itself, or buf filled from it.
func (c *cache) values(buf []float32, block int32, layer, head, token, n int) []float32 {
	at, d := c.at(block, layer, 1, head), padded(c.shape.HeadDim)
	switch c.kind {
	case kernel.KVBF16:
		widenBF16(buf[:n*d], view[uint16](c, at+token*c.row, n*d))
	case kernel.KVI8:
		scales := view[float32](c, at+c.scales+token*4, n)
		for i, v := range view[int8](c, at+token*c.row, n*d) {
			buf[i] = float32(v) * scales[i/d]
		}
	default:
		return view[float32](c, at+token*c.row, n*d)
	}
	return buf[:n*d]
}
