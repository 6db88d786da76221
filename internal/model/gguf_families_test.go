package model_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestGGUFFamilies opens the families that have more than Llama and Qwen3 from a
// folder and from a GGUF file.
func TestGGUFFamilies(t *testing.T) {
	patience.OneGoroutine(t)
	scaled := map[string]any{"rope_type": "linear", "factor": 8.0}
	for name, tt := range map[string]struct {
		family string
		extra  map[string]any
	}{
		"mixtral":   {"mixtral", map[string]any{"num_local_experts": 3, "num_experts_per_tok": 2, "sliding_window": nil}},
		"qwen2":     {"qwen2", nil},
		"qwen3 moe": {"qwen3_moe", map[string]any{"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "norm_topk_prob": true}},
		"gemma2": {"gemma2", map[string]any{
			"sliding_window": 32, "query_pre_attn_scalar": 16, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "tie_word_embeddings": true,
		}},
		"gemma3": {"gemma3_text", map[string]any{
			"sliding_window": 32, "query_pre_attn_scalar": 16, "rope_theta": 1e6, "rope_scaling": scaled, "tie_word_embeddings": true,
		}},
		"phi3": {"phi3", map[string]any{"sliding_window": 32}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := modeltest.Generate(t, modeltest.Spec{Family: tt.family, KVHeads: 2, HeadDim: 16, Vocab: 300, Extra: tt.extra})
			want, got := openGGUF(t, dir), openGGUF(t, modeltest.GGUF(t, dir, gguf.F32))
			sameConfig(t, got.Config(), want.Config())
			if strings.HasPrefix(tt.family, "gemma") {
				roundedNorms(t, got, want)
			} else {
				sameWeights(t, got, want)
			}
			sameText(t, got, want)
		})
	}
}

// roundedNorms is sameWeights for files that hold one more than each weight of a
// norm: adding it and taking it away have rounded.
func roundedNorms(t *testing.T, got, want *model.Model) {
	t.Helper()
	for _, info := range want.Inventory() {
		a, err1 := got.Tensor(info.Name)
		b, err2 := want.Tensor(info.Name)
		if err := errors.Join(err1, err2); err != nil {
			t.Error(err)
			continue
		}
		unit := 0.0
		if strings.HasSuffix(info.Name, "norm.weight") {
			unit = 0x1p-23
		}
		x, y := modeltest.Floats(t, a), modeltest.Floats(t, b)
		if !slices.EqualFunc(x, y, func(v, w float32) bool {
			return math.Abs(float64(v)-float64(w)) <= unit*math.Abs(float64(w)+1)
		}) {
			t.Errorf("%s differs", info.Name)
		}
	}
}
