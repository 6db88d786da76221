// Package modeltest makes checkpoints with random weights for tests.
//
// Start with [Generate]. The generator itself is [model.Synthetic], which commands
// use; this package ties it to a test's temporary folder. [GGUF] writes a checkpoint
// as a GGUF file, with tables of its own, so that reading it back proves something.
//
// It owns nothing and does not open what it writes.
package modeltest

import (
	"maps"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
)

// Spec describes a checkpoint.
type Spec = model.Synthetic

// Generate writes a checkpoint into a temporary folder of the test and returns
// the folder.
func Generate(t testing.TB, spec Spec) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := spec.Write(dir); err != nil {
		t.Fatal(err)
	}
	return dir
}

// Open generates a checkpoint and opens it until the end of the test.
func Open(t testing.TB, spec Spec) *model.Model {
	t.Helper()
	return open(t, Generate(t, spec))
}

// Families gives a small checkpoint of every family, by name, some in more than one
// form. Windows are shorter than a few dozen tokens, and sizes differ from each
// other, so that tests of equal results cover what families add to the plain
// decoder.
func Families() map[string]Spec {
	spec := func(family string, change func(s *Spec), extra map[string]any) Spec {
		s := Spec{Family: family, Layers: 3, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 48, Vocab: 260, Seed: 11, Extra: extra}
		if change != nil {
			change(&s)
		}
		return s
	}
	bf16 := func(s *Spec) { s.DType = "bf16" }
	return map[string]Spec{
		"llama":   spec("llama", nil, nil),
		"mistral": spec("mistral", func(s *Spec) { s.Heads, s.KVHeads, s.HeadDim = 6, 3, 10 }, map[string]any{"sliding_window": 21}),
		"mixtral": spec("mixtral", bf16, map[string]any{"num_local_experts": 5, "sliding_window": nil}),
		"qwen2": spec("qwen2", func(s *Spec) { s.Tied = true }, map[string]any{
			"use_sliding_window": true, "sliding_window": 18, "max_window_layers": 1}),
		"qwen3": spec("qwen3", func(s *Spec) { s.DType, s.Tied = "bf16", true }, nil),
		"qwen3_moe": spec("qwen3_moe", nil, map[string]any{
			"num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 20, "norm_topk_prob": true, "mlp_only_layers": []int{1}}),
		"qwen3_moe stacked": spec("qwen3_moe", func(s *Spec) { s.DType, s.Stacked = "bf16", true }, map[string]any{
			"num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24}),
		"gemma2": spec("gemma2", bf16, map[string]any{"sliding_window": 19, "query_pre_attn_scalar": 10}),
		"gemma3_text": spec("gemma3_text", nil, map[string]any{
			"sliding_window": 17, "sliding_window_pattern": 3, "query_pre_attn_scalar": 10, "tie_word_embeddings": true,
			"rope_scaling": map[string]any{"rope_type": "linear", "factor": 8.0}}),
		"phi3": spec("phi3", nil, map[string]any{
			"partial_rotary_factor": 0.75, "sliding_window": 23, "original_max_position_embeddings": 64,
			"rope_scaling": map[string]any{"type": "longrope", "short_factor": []float64{1, 1.1, 1.2}, "long_factor": []float64{1, 3, 8}}}),
		"smolvlm":    Vision()["smolvlm"],
		"idefics3":   Vision()["idefics3"],
		"llava":      Vision()["llava"],
		"llava_next": Vision()["llava_next"],
		"qwen2_vl":   Vision()["qwen2_vl"],
		"qwen2_5_vl": Vision()["qwen2_5_vl"],
	}
}

// Vision gives a small checkpoint of every family that reads images, by name. A whole view
// has 24 × 24 pixels and 36 patches, but that of llava, whose tower has 5 × 5 patches of
// 14 pixels. Those of Qwen's models take any size in squares of 8 pixels, which make a row.
func Vision() map[string]Spec {
	spec := func(family string, images map[string]any) Spec {
		return Spec{Family: family, Layers: 3, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 48, Vocab: 260, Seed: 11, Images: images}
	}
	tower := func(image, patch int) map[string]any {
		return map[string]any{"hidden_size": 24, "intermediate_size": 40, "num_attention_heads": 3, "num_hidden_layers": 3, "image_size": image, "patch_size": patch}
	}
	gemma := spec("gemma3_text", map[string]any{"vision_config": tower(24, 4), "mm_tokens_per_image": 9, "image_token_index": 250})
	gemma.DType, gemma.Tied = "bf16", true
	grid := func(family string, tower map[string]any) Spec {
		maps.Copy(tower, map[string]any{"depth": 3, "num_heads": 2, "patch_size": 4})
		s := spec(family, map[string]any{"vision_config": tower, "image_token_id": 250})
		s.RopeScaling = map[string]any{"type": "mrope", "mrope_section": []int{1, 1, 2}}
		return s
	}
	return map[string]Spec{
		"smolvlm":     spec("smolvlm", map[string]any{"vision_config": tower(24, 4), "scale_factor": 3, "image_token_id": 250}),
		"idefics3":    spec("idefics3", map[string]any{"vision_config": tower(24, 4), "image_token_id": 250}),
		"llava":       spec("llava", map[string]any{"vision_config": tower(70, 14), "image_token_index": 250}),
		"llava_next":  spec("llava_next", map[string]any{"vision_config": tower(70, 14), "image_token_index": 250, "image_grid_pinpoints": [][]int{{70, 140}, {140, 70}}}),
		"gemma3_text": gemma,
		"qwen2_vl":    grid("qwen2_vl", map[string]any{"embed_dim": 24, "mlp_ratio": 2, "hidden_size": 32}),
		"qwen2_5_vl": grid("qwen2_5_vl", map[string]any{
			"hidden_size": 24, "intermediate_size": 40, "out_hidden_size": 32, "window_size": 16, "fullatt_block_indexes": []int{1}}),
	}
}
