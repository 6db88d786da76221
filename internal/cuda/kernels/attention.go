package kernels

import "math"

// Attend holds the parameters that decode and prefill attention share.
type Attend struct {
	Out uint64 // bf16 [token][QueryHeads][head dim]
	Q   uint64 // bf16, as Out; may not be Out
	KV  KV     // holds the new tokens already
	// Tables are int32 [Sequences][TableBlocks]: the blocks of each sequence.
	Tables uint64
	// Lengths are int32 [Sequences]: tokens in the cache, the new ones included. A sequence
	// without any gets zeros.
	Lengths     uint64
	Sequences   int
	TableBlocks int
	QueryHeads  int
	Window      int     // tokens that a query sees, its own included; 0: all
	Scale       float32 // of scores
	Limit       float32 // soft cap of scores, 0 for none
}

// DecodeAttention is the attention of one new token of each sequence.
type DecodeAttention struct {
	Attend
	// MaxLength bounds all Lengths. Splits are those of the longest sequence.
	MaxLength int
	// Partial is working memory of [DecodeAttention.PartialBytes], or 0 when that is 0.
	Partial uint64
}

const (
	attentionThreads = 128
	// split is the number of tokens per block of decode attention; splits begin at its
	// multiples, so that a result does not depend on the batch.
	split       = 512
	decodeRows  = 16  // queries of a block
	decodeDims  = 128 // dimensions of a block's result
	prefillRows = 64
	// attentionStep is the number of tokens in a tile of prefill attention.
	attentionStep = 32
)

// prefillShared is two tiles of K and of V, whose rows have room for a multiple of 64
// dimensions.
func prefillShared(headDim int) int { return 2 * 2 * attentionStep * blocks(headDim, 64) * 64 * 2 }

// prefillShared8 is the same for int8, whose rows have room for 128 dimensions, with scales.
func prefillShared8() int { return 2 * 2 * attentionStep * (128 + 4) }

func (o *DecodeAttention) splits() int { return max(1, blocks(o.MaxLength, split)) }

// PartialBytes is the size of working memory: none when there is one split.
func (o *DecodeAttention) PartialBytes() int {
	if o.splits() == 1 {
		return 0
	}
	return o.Sequences * o.QueryHeads * o.splits() * (o.KV.Shape.HeadDim + 2) * 4
}

// DecodeAttention computes attention of one token of each sequence.
func (q *Queue) DecodeAttention(o DecodeAttention) error {
	s, kernel := o.shape("decode attention")
	s.require(o.MaxLength >= 0 && o.MaxLength <= o.TableBlocks*o.KV.Shape.BlockSize, "%d tokens in %d blocks of %d", o.MaxLength, o.TableBlocks, o.KV.Shape.BlockSize)
	if o.splits() > 1 {
		s.present(o.Partial)
	}
	if s.err != nil || o.Sequences == 0 {
		return s.err
	}
	args := func() {
		a := q.args().Pointer(o.Out).Pointer(o.Partial).Pointer(o.Q).Pointer(o.KV.Pool).Pointer(o.Tables).Pointer(o.Lengths)
		o.KV.layout(a).Int32(int32(o.TableBlocks)).Int32(int32(o.QueryHeads)).Int32(int32(o.splits())).Int32(int32(o.Window))
		a.Float32(o.Scale * math.Log2E).Float32(o.Limit * math.Log2E)
	}
	heads := o.KV.Shape.KVHeads
	args()
	shares := blocks(o.KV.Shape.HeadDim, decodeDims)
	if err := q.run("decode_attention_"+kernel, o.splits(), heads*blocks(o.QueryHeads/heads, decodeRows)*shares, o.Sequences, attentionThreads, 0); err != nil || o.splits() == 1 {
		return err
	}
	args()
	return q.run("decode_attention_join", o.QueryHeads, o.Sequences, 1, maxHeadDim, 0)
}

// PrefillAttention is the attention of several new tokens of each sequence.
type PrefillAttention struct {
	Attend
	// Starts are int32 [Sequences + 1]: where the new tokens of a sequence begin in Q. The
	// last of them stands at the end of its length.
	Starts uint64
	// MaxTokens bounds the new tokens of each sequence.
	MaxTokens int
}

// PrefillAttention computes attention of the new tokens of each sequence.
func (q *Queue) PrefillAttention(o PrefillAttention) error {
	s, kernel := o.shape("prefill attention")
	s.count("new tokens", o.MaxTokens)
	s.present(o.Starts)
	if s.err != nil || o.Sequences == 0 || o.MaxTokens == 0 {
		return s.err
	}
	a := q.args().Pointer(o.Out).Pointer(o.Q).Pointer(o.KV.Pool).Pointer(o.Tables).Pointer(o.Starts).Pointer(o.Lengths)
	o.KV.layout(a).Int32(int32(o.TableBlocks)).Int32(int32(o.QueryHeads)).Int32(int32(o.Window)).Int32(0)
	a.Float32(o.Scale * math.Log2E).Float32(o.Limit * math.Log2E)
	heads := o.KV.Shape.KVHeads
	bytes := prefillShared(o.KV.Shape.HeadDim)
	if o.KV.Shape.DType == "int8" {
		bytes = prefillShared8()
	}
	return q.run("prefill_attention_"+kernel, blocks(o.MaxTokens*(o.QueryHeads/heads), prefillRows), heads, o.Sequences, attentionThreads, bytes)
}

// shape checks what decode and prefill have in common, and names the kernel's size.
func (o *Attend) shape(op string) (s shape, kernel string) {
	s = shape{op: op}
	s.kv(o.KV)
	s.count("sequences", o.Sequences)
	s.size("blocks of a table", o.TableBlocks, 1)
	s.size("query heads", o.QueryHeads, max(1, o.KV.Shape.KVHeads))
	s.require(o.Window >= 0 && o.Limit >= 0, "a window of %d tokens and a limit of %g", o.Window, o.Limit)
	s.aligned(o.Out, o.Q)
	s.present(o.Tables, o.Lengths)
	s.require(o.Out != o.Q, "the result overwrites the queries")
	switch dim := o.KV.Shape.HeadDim; {
	case o.KV.Shape.DType == "int8":
		kernel = "i8"
	case dim == 64:
		kernel = "64"
	case dim == 128:
		kernel = "128"
	case dim == 256:
		kernel = "256"
	default: // as slow as the next larger ones
		kernel = "any"
	}
	return s, kernel
}
