package kernels

// MatMul is the product of activations with the rows of a weight matrix.
type MatMul struct {
	Out    uint64 // bf16 [Tokens][Rows], or float32 with Wide
	X      uint64 // bf16 [Tokens][In]
	W      uint64 // of Type, [Rows][In]
	Scales uint64 // those of Type, or 0
	Bias   uint64 // bf16 [Rows], or 0
	Tokens int
	Rows   int
	In     int // a multiple of 8, or what Type asks for
	Type   WeightType
	// Wide leaves results in float32, for logits.
	Wide bool
	// Capacity is the number of rows that X has memory for, where that is more than Tokens: products
	// of different Tokens then share one tensor map of X.
	Capacity int
}

// MaxGEMV is the number of tokens up to which [Queue.GEMV] computes.
const MaxGEMV = 8

const (
	gemvThreads = 128
	gemvRows    = 2 // of a warp

	// A block's tokens, rows of the matrix, and bytes of its stages.
	gemmTile        = 128
	gemmShared      = 4 * (128 + 128) * 32 * 2
	fewTokens       = 64
	fewTokensTile   = 32
	fewTokensShared = 6 * (64 + 32) * 64 * 2
)

// GEMV computes products of up to MaxGEMV tokens, which wait for the weights only. It sums
// in another order than [Queue.GEMM]: where results must not depend on the batch, neither
// may the choice.
func (q *Queue) GEMV(o MatMul) error {
	s := o.shape("GEMV")
	s.require(o.Tokens <= MaxGEMV, "%d tokens, at most %d", o.Tokens, MaxGEMV)
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	// Kernels are for 1, 2, 4 and perhaps 8 tokens; the largest is for several times as many.
	names, i := weightTypes[o.Type].gemv, 0
	for i < len(names)-1 && 1<<i < o.Tokens {
		i++
	}
	o.args(q)
	return q.run(names[i], blocks(o.Rows, gemvThreads/32*gemvRows), blocks(o.Tokens, 1<<i), 1, gemvThreads, 0)
}

// GEMM computes products of any number of tokens, on tensor cores. A token's result does
// not depend on the others, and depends on their number only where kernels for compute
// capability 9.0 are used, see [Tuning].
func (q *Queue) GEMM(o MatMul) error {
	s := o.shape("GEMM")
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	if t := q.tile(&o); t != nil {
		return q.gemmTiles(t, &o)
	}
	o.args(q)
	kernel := weightTypes[o.Type].gemm
	if o.Tokens <= fewTokens {
		kernel = weightTypes[o.Type].gemmFew
		return q.run(kernel, blocks(o.Rows, fewTokensTile), 1, 1, 128, DynamicShared(kernel))
	}
	return q.run(kernel, blocks(o.Rows, gemmTile), blocks(o.Tokens, gemmTile), 1, 256, DynamicShared(kernel))
}

func (o *MatMul) shape(op string) shape {
	s := shape{op: op}
	s.count("tokens", o.Tokens)
	s.size("rows", o.Rows, 1)
	s.weights(o.Type, o.W, o.Scales, o.In)
	s.aligned(o.Out, o.X)
	s.require(o.Bias%2 == 0, "the bias is at %#x", o.Bias)
	return s
}

func (o *MatMul) args(q *Queue) {
	var wide int32
	if o.Wide {
		wide = 1
	}
	a := q.args().Pointer(o.Out).Pointer(o.X).Pointer(o.W)
	if o.Type != BF16 {
		a.Pointer(o.Scales)
	}
	a.Pointer(o.Bias).Int32(int32(o.Tokens)).Int32(int32(o.Rows)).Int32(int32(o.In)).Int32(wide)
}
