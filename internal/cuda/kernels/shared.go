package kernels

// dynamicShared are the bytes of shared memory that launches of a kernel ask for: two
// tiles of K and of V, or the stages of a product.
var dynamicShared = map[string]int{
	"gemm":                  gemmShared,
	"gemm_64":               fewTokensShared,
	"expert_gemm":           expertShared,
	"expert_gemm_16":        fewPairsShared,
	"prefill_attention_64":  2 * 2 * attentionStep * 64 * 2,
	"prefill_attention_128": 2 * 2 * attentionStep * 128 * 2,
	"prefill_attention_256": 2 * 2 * attentionStep * 256 * 2,
}

// DynamicShared is how many bytes of shared memory launches of a kernel ask for. More than
// 48 KiB must be allowed by FuncSetMaxDynamicShared before the first one.
func DynamicShared(kernel string) int { return dynamicShared[kernel] }
