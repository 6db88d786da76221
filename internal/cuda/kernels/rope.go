package kernels

import (
	"github.com/dynctl/dynctl/internal/cuda/driver"
	"github.com/dynctl/dynctl/internal/kvlayout"
)

// KV is one layer of a block pool.
type KV struct {
	Pool  uint64 // its first block
	Shape kvlayout.Shape
	Layer int
}

// maxHeadDim is MAX_HEAD_DIM of the kernels.
const maxHeadDim = 256

// MaxHeadDim returns the largest head dimension, a multiple of 16, with KV of a type.
func MaxHeadDim(kvType string) int {
	if kvType == "int8" {
		return 128
	}
	return maxHeadDim
}

func (s *shape) kv(k KV) {
	s.require(k.Shape.DType == "bf16" || k.Shape.DType == "int8", "KV is %s, kernels know bf16 and int8", k.Shape.DType)
	s.size("tokens of a KV block", k.Shape.BlockSize, 16)
	s.size("head dimension", k.Shape.HeadDim, 16)
	s.size("KV heads", k.Shape.KVHeads, 1)
	s.require(k.Shape.HeadDim <= MaxHeadDim(k.Shape.DType), "heads have %d dimensions, kernels know up to %d with KV of %s", k.Shape.HeadDim, MaxHeadDim(k.Shape.DType), k.Shape.DType)
	s.require(k.Layer >= 0 && k.Layer < k.Shape.Layers, "no layer %d of %d", k.Layer, k.Shape.Layers)
	s.aligned(k.Pool)
}

// layout appends struct KVLayout of kv.h.
func (k KV) layout(a *driver.Args) *driver.Args {
	var int8s int32
	if k.Shape.DType == "int8" {
		int8s = 1
	}
	return a.Int64(k.Shape.BlockBytes()).Int32(int32(k.Shape.Layers)).Int32(int32(k.Layer)).
		Int32(int32(k.Shape.KVHeads)).Int32(int32(k.Shape.HeadDim)).Int32(int32(k.Shape.BlockSize)).Int32(int8s)
}

// RopeAppend turns the product of the qkv matrix into queries and KV: it normalizes the
// heads of queries and keys where there are weights, rotates them, and stores keys and
// values.
type RopeAppend struct {
	Q   uint64 // bf16 [Tokens][QueryHeads][head dim]: the queries
	QKV uint64 // bf16 [Tokens][QueryHeads + 2 KV heads][head dim]: queries, keys, values
	KV  KV
	// QWeight and KWeight are bf16 [head dim] of the norms of heads, or 0.
	QWeight, KWeight uint64
	// Cosines and Sines are float32 [position][Rotary / 2].
	Cosines, Sines uint64
	Positions      uint64 // int32 [Tokens]; the tables have them all
	// Slots are int32 [Tokens]: block * block size + token in the block; a negative one
	// stores nothing.
	Slots       uint64
	Tokens      int
	QueryHeads  int
	Rotary      int // the first values of a head that are rotated, in halves; even
	Eps, Offset float32
}

const headsPerBlock = 4

// RopeAppend computes queries and appends KV.
func (q *Queue) RopeAppend(o RopeAppend) error {
	s := shape{op: "rope"}
	s.count("tokens", o.Tokens)
	s.size("query heads", o.QueryHeads, 1)
	s.kv(o.KV)
	s.require(o.Rotary >= 0 && o.Rotary%2 == 0 && o.Rotary <= o.KV.Shape.HeadDim, "%d of %d dimensions are rotated", o.Rotary, o.KV.Shape.HeadDim)
	s.aligned(o.Q, o.QKV)
	s.present(o.Positions, o.Slots)
	if o.Rotary > 0 {
		s.present(o.Cosines, o.Sines)
	}
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	a := q.args().Pointer(o.Q).Pointer(o.KV.Pool).Pointer(o.QKV).Pointer(o.QWeight).Pointer(o.KWeight).Pointer(o.Cosines).Pointer(o.Sines).
		Pointer(o.Positions).Pointer(o.Slots)
	o.KV.layout(a).Int32(int32(o.QueryHeads)).Int32(int32(o.Rotary)).Float32(o.Eps).Float32(o.Offset)
	return q.run("rope_append", o.Tokens, blocks(o.QueryHeads+2*o.KV.Shape.KVHeads, headsPerBlock), 1, 32*headsPerBlock, 0)
}
