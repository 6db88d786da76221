package safetensors

// DType names an element type as the header spells it.
type DType string

// The element types that weights of language models use.
const (
	F32  DType = "F32"
	F16  DType = "F16"
	BF16 DType = "BF16"
	// F8_E4M3 is fp8, which has scales beside it; see [Scales].
	F8_E4M3 DType = "F8_E4M3" //nolint:revive // the format's own name
)

// Quantized types: rows of whole blocks as ggml lays them out, see package gguf. No
// safetensors file has them; tensors of other sources and caches do.
//
//nolint:revive // the names are ggml's
const (
	Q8_0 DType = "Q8_0" // blocks of 32 weights
	Q4_0 DType = "Q4_0" // blocks of 32 weights
	Q4_K DType = "Q4_K" // blocks of 256 weights
	Q5_K DType = "Q5_K" // blocks of 256 weights
	Q6_K DType = "Q6_K" // blocks of 256 weights
)

// Block returns the size of a storage block of the type, in weights and in bytes:
// one weight in plain types. Both are 0 for unknown types and types smaller than a byte.
func (d DType) Block() (weights, bytes int) {
	switch d {
	case Q8_0:
		return 32, 34
	case Q4_0:
		return 32, 18
	case Q4_K:
		return 256, 144
	case Q5_K:
		return 256, 176
	case Q6_K:
		return 256, 210
	}
	if bits := d.Bits(); bits > 0 && bits%8 == 0 {
		return 1, int(bits / 8)
	}
	return 0, 0
}

// Quantized reports whether the weights of a type lie in blocks.
func (d DType) Quantized() bool {
	weights, _ := d.Block()
	return weights > 1
}

// Bytes is the size of n elements that are whole blocks; see [DType.Block].
func (d DType) Bytes(n int) int {
	weights, bytes := d.Block()
	return n / max(weights, 1) * bytes
}

// Bits is the size of one element in bits, 0 for an unknown type and for quantized
// ones, which no header may name. Types below a byte are packed, so a tensor of them
// must still fill whole bytes.
func (d DType) Bits() uint64 {
	switch d {
	case "F4":
		return 4
	case "F6_E2M3", "F6_E3M2":
		return 6
	case "BOOL", "U8", "I8", F8_E4M3, "F8_E5M2", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ":
		return 8
	case "I16", "U16", F16, BF16:
		return 16
	case "I32", "U32", F32:
		return 32
	case "I64", "U64", "F64", "C64":
		return 64
	}
	return 0
}
