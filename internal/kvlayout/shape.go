// Package kvlayout fixes how the KV of a model lies in the memory of a block: the one
// thing that the engine, its backends and CUDA kernels must agree on, and that workers
// compare before they exchange blocks.
//
// It is pure: sizes and offsets of a [Shape], no memory.
package kvlayout

// Shape fixes the memory layout of one KV block. A block is one contiguous
// piece of memory that holds all layers, in one region for each
//
//	[kv head][layer][K=0, V=1]
//
// Heads come first so that some heads of a block are one piece of it: workers of
// different tensor-parallel degrees exchange a block in as many pieces as the larger
// degree has ranks. Inside of a region tokens and dimensions are filled up to
// multiples of sixteen. Keys lie sixteen tokens side by side, so that one
// instruction works on as many positions; values lie token by token:
//
//	K  [token / 16][dim][token % 16]
//	   bf16: [token / 16][dim / 2][token % 16][dim % 2]
//	V  [token][dim]
//
// Behind the values of an int8 region are the scales, one float32 for each token: a
// value is int8 × scale. Regions, groups of sixteen keys and scales start at
// multiples of 64 bytes.
type Shape struct {
	Layers    int    `json:"layers"`
	KVHeads   int    `json:"kv_heads"`
	HeadDim   int    `json:"head_dim"`
	BlockSize int    `json:"block_size"` // tokens
	DType     string `json:"dtype"`      // "f32", "bf16" or "int8"
}

// Layout names the type of the elements and how they lie in a block. Blocks of
// another layout mean something else, even when they have the same size.
func (s Shape) Layout() string { return s.DType + "/16h" }

// ElemBytes is the size of one element.
func (s Shape) ElemBytes() int {
	switch s.DType {
	case "bf16":
		return 2
	case "int8":
		return 1
	}
	return 4
}

// sixteens is n filled up to a multiple of sixteen.
func sixteens(n int) int { return (n + 15) &^ 15 }

// RowBytes is the size of one token in a region, without its scale.
func (s Shape) RowBytes() int { return sixteens(s.HeadDim) * s.ElemBytes() }

// ScaleOffset returns the offset of the scales in an int8 region, in bytes.
func (s Shape) ScaleOffset() int { return sixteens(s.BlockSize) * s.RowBytes() }

// RegionBytes is the size of one region.
func (s Shape) RegionBytes() int {
	if s.DType == "int8" {
		return s.ScaleOffset() + 4*sixteens(s.BlockSize)
	}
	return s.ScaleOffset()
}

// BlockBytes is the size of one block.
func (s Shape) BlockBytes() int64 {
	return int64(s.Layers) * 2 * int64(s.KVHeads) * int64(s.RegionBytes())
}

// Region returns the offset of a region inside a block, in bytes; kv is 0 for K and
// 1 for V.
func (s Shape) Region(layer, kv, head int) int {
	return ((head*s.Layers+layer)*2 + kv) * s.RegionBytes()
}

// Rank is the shape of what each of n ranks has of a block. n divides KVHeads.
func (s Shape) Rank(n int) Shape {
	s.KVHeads /= n
	return s
}
