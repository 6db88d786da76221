package kernels

import "fmt"

// WeightType is the storage format of a matrix's weights. Products with all formats have
// activations in bf16 and sums in float32. Weights of eight bits become bf16 in registers,
// which is exact: tensor cores of compute capability 8.9 and later multiply fp8 themselves,
// which needs PTX 8.4, CUDA 12.4.
type WeightType int32

const (
	// BF16 has no scales.
	BF16 WeightType = iota
	// Q8_0 are int8, with a float16 scale for each 32 of a row: the numbers of ggml's Q8_0, as
	// [SplitQ8_0] separates them. Rows have a multiple of 32, and rows of scales an even number:
	// the last one may stand for nothing.
	Q8_0
	// E4M3 are floats of eight bits, fn in the terms of others, with a float32 scale for each
	// row. Rows have a multiple of 16. The codes of no number, 0x7f and 0xff, must not be among
	// them.
	E4M3
	// E4M3Blocks are the same with a float32 scale for each 128 of a row; the last ones may be
	// fewer. Checkpoints have one scale for that many rows, too; here each has its own, three bytes of
	// a hundred, so that matrices of any height can lie below each other.
	E4M3Blocks
)

// E4M3Columns is how many weights of E4M3Blocks have one scale.
const E4M3Columns = 128

// q8Block is how many weights of Q8_0 have one scale, and q8BlockBytes what they are in ggml's
// order.
const (
	q8Block      = 32
	q8BlockBytes = 2 + q8Block
)

// weightTypes describes the types: what rows are multiples of, and the kernels.
var weightTypes = [...]struct {
	columns             int
	gemv                []string // for 1, 2, 4 and more tokens
	gemm, gemmFew       string
	experts, expertsFew string
}{
	BF16:       {8, []string{"gemv_1", "gemv_2", "gemv_4", "gemv_8"}, "gemm", "gemm_64", "expert_gemm", "expert_gemm_16"},
	Q8_0:       {q8Block, []string{"gemv_1_q8", "gemv_2_q8", "gemv_4_q8"}, "gemm_q8", "gemm_64_q8", "expert_gemm_q8", "expert_gemm_16_q8"},
	E4M3:       {16, []string{"gemv_1_e4m3", "gemv_2_e4m3", "gemv_4_e4m3"}, "gemm_e4m3", "gemm_64_e4m3", "expert_gemm_e4m3", "expert_gemm_16_e4m3"},
	E4M3Blocks: {16, []string{"gemv_1_e4m3b", "gemv_2_e4m3b", "gemv_4_e4m3b"}, "gemm_e4m3b", "gemm_64_e4m3b", "expert_gemm_e4m3b", "expert_gemm_16_e4m3b"},
}

// Columns returns the number that the length of a row must be a multiple of.
func (t WeightType) Columns() int { return weightTypes[t].columns }

// Bytes returns the size of a matrix of [rows][in] and of its scales, in bytes.
func (t WeightType) Bytes(rows, in int) (weights, scales int64) {
	n := int64(rows) * int64(in)
	switch t {
	case Q8_0:
		return n, int64(rows) * int64(q8Scales(in)) * 2
	case E4M3:
		return n, int64(rows) * 4
	case E4M3Blocks:
		return n, int64(rows) * int64(blocks(in, E4M3Columns)) * 4
	}
	return 2 * n, 0
}

// q8Scales is how many scales a row has.
func q8Scales(in int) int { return (in/q8Block + 1) / 2 * 2 }

// SplitQ8_0 separates whole rows of in weights each, as ggml and GGUF files have them, into
// weights and scales of [WeightType.Bytes].
func SplitQ8_0(weights, scales, rows []byte, in int) error {
	width := in / q8Block * q8BlockBytes
	if in < 1 || in%q8Block != 0 || len(rows)%width != 0 {
		return fmt.Errorf("split Q8_0: %d bytes are not rows of %d weights in blocks of %d", len(rows), in, q8Block)
	}
	n := len(rows) / width
	if w, s := Q8_0.Bytes(n, in); int64(len(weights)) != w || int64(len(scales)) != s {
		return fmt.Errorf("split Q8_0: %d rows of %d weights have %d bytes and scales %d, there is room for %d and %d", n, in, w, s, len(weights), len(scales))
	}
	for ; len(rows) > 0; rows = rows[width:] {
		for b := range in / q8Block {
			block := rows[b*q8BlockBytes:][:q8BlockBytes]
			copy(scales[2*b:], block[:2])
			copy(weights[b*q8Block:], block[2:])
		}
		clear(scales[2*(in/q8Block) : 2*q8Scales(in)])
		weights, scales = weights[in:], scales[2*q8Scales(in):]
	}
	return nil
}

// weights checks a matrix.
func (s *shape) weights(t WeightType, w, scales uint64, in int) {
	if t < 0 || int(t) >= len(weightTypes) {
		s.require(false, "no type of weights %d", t)
		return
	}
	s.size("inputs", in, weightTypes[t].columns)
	s.aligned(w)
	if t != BF16 {
		s.aligned(scales)
	}
}
