package kernels

// MatMul is the product of activations with the rows of a weight matrix.
type MatMul struct {
	Out    uint64 // bf16 [Tokens][Rows], or float32 with Wide
	X      uint64 // bf16 [Tokens][In]
	W      uint64 // bf16 [Rows][In]
	Bias   uint64 // bf16 [Rows], or 0
	Tokens int
	Rows   int
	In     int // a multiple of 8
	// Wide leaves results in float32, for logits.
	Wide bool
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
	kernel := "gemv_8"
	switch {
	case o.Tokens == 1:
		kernel = "gemv_1"
	case o.Tokens == 2:
		kernel = "gemv_2"
	case o.Tokens <= 4:
		kernel = "gemv_4"
	}
	o.args(q)
	return q.run(kernel, blocks(o.Rows, gemvThreads/32*gemvRows), 1, 1, gemvThreads, 0)
}

// GEMM computes products of any number of tokens, on tensor cores. A token's result does
// not depend on the others.
func (q *Queue) GEMM(o MatMul) error {
	s := o.shape("GEMM")
	if s.err != nil || o.Tokens == 0 {
		return s.err
	}
	o.args(q)
	if o.Tokens <= fewTokens {
		return q.run("gemm_64", blocks(o.Rows, fewTokensTile), 1, 1, 128, DynamicShared("gemm_64"))
	}
	return q.run("gemm", blocks(o.Rows, gemmTile), blocks(o.Tokens, gemmTile), 1, 256, DynamicShared("gemm"))
}

func (o *MatMul) shape(op string) shape {
	s := shape{op: op}
	s.count("tokens", o.Tokens)
	s.size("rows", o.Rows, 1)
	s.size("inputs", o.In, 8)
	s.aligned(o.Out, o.X, o.W)
	s.require(o.Bias%2 == 0, "the bias is at %#x", o.Bias)
	return s
}

func (o *MatMul) args(q *Queue) {
	var wide int32
	if o.Wide {
		wide = 1
	}
	q.args().Pointer(o.Out).Pointer(o.X).Pointer(o.W).Pointer(o.Bias).Int32(int32(o.Tokens)).Int32(int32(o.Rows)).Int32(int32(o.In)).Int32(wide)
}
