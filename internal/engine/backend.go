package engine

import (
	"context"
	"time"
)

// KVShape fixes the memory layout of one KV block. A block is one contiguous
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
type KVShape struct {
	Layers    int    `json:"layers"`
	KVHeads   int    `json:"kv_heads"`
	HeadDim   int    `json:"head_dim"`
	BlockSize int    `json:"block_size"` // tokens
	DType     string `json:"dtype"`      // "f32", "bf16" or "int8"
}

// Layout names the type of the elements and how they lie in a block. Blocks of
// another layout mean something else, even when they have the same size.
func (s KVShape) Layout() string { return s.DType + "/16h" }

// ElemBytes is the size of one element.
func (s KVShape) ElemBytes() int {
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
func (s KVShape) RowBytes() int { return sixteens(s.HeadDim) * s.ElemBytes() }

// ScaleOffset is where the scales of an int8 region begin, in bytes.
func (s KVShape) ScaleOffset() int { return sixteens(s.BlockSize) * s.RowBytes() }

// RegionBytes is the size of one region.
func (s KVShape) RegionBytes() int {
	if s.DType == "int8" {
		return s.ScaleOffset() + 4*sixteens(s.BlockSize)
	}
	return s.ScaleOffset()
}

// BlockBytes is the size of one block.
func (s KVShape) BlockBytes() int64 {
	return int64(s.Layers) * 2 * int64(s.KVHeads) * int64(s.RegionBytes())
}

// Region returns the offset of a region inside a block, in bytes; kv is 0 for K and
// 1 for V.
func (s KVShape) Region(layer, kv, head int) int {
	return ((head*s.Layers+layer)*2 + kv) * s.RegionBytes()
}

// KVMemory is the memory of one rank of a block pool, block-major, off the Go heap and
// page-aligned. It stays at its address until Close.
type KVMemory interface {
	// Bytes returns the memory itself, or nil when the host cannot address it.
	Bytes() []byte
	// Close releases the memory. Nobody may read or write it afterwards.
	Close() error
}

// BatchSeq is the part of one sequence that a step computes. Several entries of a
// batch may belong to the same sequence, with the same blocks and in order of
// position: the later see the KV of the earlier, as if they were one.
type BatchSeq struct {
	// Tokens are the new tokens; the first stands at position Start. KV of all
	// earlier positions is in the blocks. len(Tokens) is 1 for decode and more for
	// a prefill chunk.
	Tokens []uint32
	Start  int
	// Blocks is the block table: Blocks[p/BlockSize] holds position p.
	Blocks []int32
	// Logits, when not nil, has VocabSize room and receives the logits that follow
	// the last token.
	Logits []float32
	// Choice, when not nil, asks for the token that follows the last one, in place of
	// logits. Only a [Chooser] gets it.
	Choice *Choice
}

// Backend executes batch steps over a block pool. It knows nothing of requests,
// scheduling or caches. Results must not depend on what else is in the batch nor
// on how a prompt was cut into chunks: the same tokens give the same bits, so that a
// sequence that is moved, preempted or verified in drafts goes on as it would have. A
// backend that keeps to that only up to the last bits of logits says so: answers then
// differ where two tokens are about equally likely.
type Backend interface {
	// Info describes the loaded model; it never changes.
	Info() BackendInfo
	// AllocKV allocates the memory of a pool of n blocks, a piece for each rank. It is
	// called once, before the first Step. The backend does not free it: the caller
	// closes it.
	AllocKV(n int) (KVPool, error)
	// Step computes all sequences of the batch: it writes K and V of every new
	// token into the blocks and fills the requested logits. It returns when the
	// results are readable. It is never called twice at once. A cancelled ctx makes
	// it return early with the context's error and undefined results.
	Step(ctx context.Context, batch []BatchSeq) error
	// Close releases what the backend holds; the last call.
	Close() error
}

// BusyTimer is implemented by backends that share their device with others, so that
// a step may wait for its turn. The engine learns from it how long work takes;
// without it, from the whole duration of steps.
type BusyTimer interface {
	// Busy returns how long the last Step computed, waiting left out. It is called
	// after a Step that succeeded, before the next one.
	Busy() time.Duration
}

// BackendInfo describes a loaded model.
type BackendInfo struct {
	Device     string // "cpu:0"
	DeviceName string // "cpu 2c"
	VocabSize  int    // rows of the output head; ids at or above TokenLimit are masked
	TokenLimit int    // ids the tokenizer knows
	MaxContext int    // positions
	// TensorParallel is the number of ranks that share the heads of each layer, at least 1.
	TensorParallel int
	KV             KVShape // of all ranks together
	// BatchTokens and Seqs are what [Config.MaxBatchTokens] and [Config.MaxSeqs] should be
	// where nobody says it; 0 stands for the engine's defaults.
	BatchTokens, Seqs int
}
