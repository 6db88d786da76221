package kernels

// dynamicShared are the bytes of shared memory that launches of a kernel ask for, at most: two
// tiles of K and of V, or the stages of a product.
var dynamicShared = map[string]int{
	"gemm":                  gemmShared,
	gatedKernel:             gatedTile.shared(),
	"gemm_64":               fewTokensShared,
	"expert_gemm":           expertShared,
	"expert_gemm_16":        fewPairsShared,
	"gemm_q8":               4 * stage8(128, 128, Q8_0),
	"gemm_64_q8":            8 * stage8(64, 32, Q8_0),
	"expert_gemm_q8":        4 * stage8(64, 128, Q8_0),
	"expert_gemm_16_q8":     6 * stage8(16, 64, Q8_0),
	"gemm_e4m3":             4 * stage8(128, 128, E4M3),
	"gemm_e4m3b":            4 * stage8(128, 128, E4M3Blocks),
	"gemm_64_e4m3":          8 * stage8(64, 32, E4M3),
	"gemm_64_e4m3b":         8 * stage8(64, 32, E4M3Blocks),
	"expert_gemm_e4m3":      4 * stage8(64, 128, E4M3),
	"expert_gemm_e4m3b":     4 * stage8(64, 128, E4M3Blocks),
	"expert_gemm_16_e4m3":   6 * stage8(16, 64, E4M3),
	"expert_gemm_16_e4m3b":  6 * stage8(16, 64, E4M3Blocks),
	"prefill_attention_64":  prefillShared(64),
	"prefill_attention_128": prefillShared(128),
	"prefill_attention_256": prefillShared(256),
	"prefill_attention_any": prefillShared(maxHeadDim),
	"prefill_attention_i8":  prefillShared8(),
}

// stage8 is a stage of a product with weights of eight bits: 64 values of rows of
// activations and of weights, and a word of scales for each row of these.
func stage8(x, w int, t WeightType) int {
	n := x*64*2 + w*64
	if t != E4M3 {
		n += w * 4
	}
	return n
}

// DynamicShared returns the most shared memory that launches of a kernel ask for, in bytes. More than
// 48 KiB must be allowed by FuncSetMaxDynamicShared before the first one.
func DynamicShared(kernel string) int {
	for i := range Tiles {
		if Tiles[i].Kernel == kernel {
			return Tiles[i].shared()
		}
	}
	return dynamicShared[kernel]
}
