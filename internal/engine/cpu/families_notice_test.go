package cpu

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestGoldensNotice changes one field of a recorded checkpoint's configuration at
// a time: the logits must differ from the recorded ones. It shows that the
// comparison in TestFamilies would see an engine that passes over the field.
func TestGoldensNotice(t *testing.T) {
	if patience.RaceDetector {
		t.Skip(sameGoroutines)
	}
	type object = map[string]any
	tests := []struct {
		golden string
		change object
	}{
		{"llama2", object{"rope_theta": 20000.0}},
		{"llama2", object{"rms_norm_eps": 3e-3}},
		{"llama3", object{"rope_scaling": nil}},
		{"llama3", object{"rope_scaling": object{"rope_type": "linear", "factor": 8.0}}},
		{"llama3", object{"rope_scaling": object{"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
			"high_freq_factor": 4.0, "original_max_position_embeddings": 8192}}},
		{"llama-linear-biases", object{"attention_bias": false}},
		{"llama-linear-biases", object{"mlp_bias": false}},
		{"llama-linear-biases", object{"rope_scaling": nil}},
		{"llama-yarn", object{"rope_scaling": object{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
			"beta_fast": 4.0, "truncate": true, "mscale": 0.7, "mscale_all_dim": 1.2}}},
		{"llama-yarn", object{"rope_scaling": object{"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 32,
			"beta_fast": 4.0, "truncate": false}}},
		{"mistral", object{"sliding_window": 10}},
		{"mistral", object{"sliding_window": 12}},
		{"mistral", object{"sliding_window": nil}},
		{"mistral-no-window", object{"sliding_window": 40}},
		{"mixtral", object{"num_experts_per_tok": 1}},
		{"mixtral-window", object{"sliding_window": nil}},
		{"mixtral-window", object{"num_experts_per_tok": 2}},
		{"qwen2", object{"use_sliding_window": true}},
		{"qwen2", object{"rope_scaling": nil}},
		{"qwen2-window", object{"use_sliding_window": false}},
		{"qwen2-window", object{"max_window_layers": 0}},
		{"qwen2-window", object{"max_window_layers": 2}},
		{"qwen2-window", object{"max_window_layers": 4}},
		{"qwen2-vl", object{"rope_theta": 10000.0}},
		{"qwen2-vl", object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{1, 2, 3}}}},
		{"qwen2-vl", object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{2, 3, 1}}}},
		{"qwen2.5-vl", object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{6, 0, 0}}}},
		{"qwen3-moe", object{"norm_topk_prob": false}},
		{"qwen3-moe", object{"num_experts_per_tok": 2}},
		{"qwen3-moe-stacked", object{"norm_topk_prob": true}},
		{"gemma2", object{"query_pre_attn_scalar": 16}},
		{"gemma2", object{"sliding_window": 9}},
		{"gemma2", object{"attn_logit_softcapping": nil}},
		{"gemma2", object{"final_logit_softcapping": nil}},
		{"gemma2", object{"layer_types": []string{"full_attention", "sliding_attention", "full_attention"}}},
		{"gemma2", object{"hidden_activation": "silu"}},
		{"gemma2-one-cap", object{"attn_logit_softcapping": 50.0}},
		{"gemma2-one-cap", object{"final_logit_softcapping": 50.0}}, // absent in the file: 30
		{"gemma3", object{"sliding_window_pattern": 2}},
		{"gemma3", object{"rope_local_base_freq": 10000.0}},
		{"gemma3", object{"rope_theta": 10000.0}},
		{"gemma3", object{"rope_scaling": nil}},
		{"gemma3", object{"query_pre_attn_scalar": 16}},
		{"phi3-long", object{"original_max_position_embeddings": 512}},
		{"phi3-long", object{"max_position_embeddings": 1024}}, // stretches further
		{"phi3-short", object{"original_max_position_embeddings": 127}},
		{"phi3-partial", object{"partial_rotary_factor": 0.5}},
		{"phi3-partial", object{"sliding_window": nil}},
	}
	for _, tt := range tests {
		g := readGolden(t, "testdata/families/"+tt.golden+".json")
		config := make(object)
		if err := json.Unmarshal(g.Config, &config); err != nil {
			t.Fatal(err)
		}
		maps.Copy(config, tt.change)
		g.Config, _ = json.Marshal(config)
		m, err := model.Open(g.write(t), model.Options{})
		if errors.Is(err, model.ErrWeights) || errors.Is(err, model.ErrConfig) || errors.Is(err, model.ErrUnsupported) {
			t.Errorf("%s with %v: refused, so it shows nothing: %v", tt.golden, tt.change, err)
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, m, 1, 16, Options{BlockSize: 8, MaxContext: g.ServedContext})
		logits, want := r.newLogits(), floats(g.Logits)
		r.step(t, engine.BatchSeq{Tokens: g.Prompt, Blocks: table(0, 16), Logits: logits})
		top, worst := 0.0, 0.0
		for v, w := range want[len(want)-len(logits):] {
			top, worst = max(top, math.Abs(float64(w))), max(worst, math.Abs(float64(logits[v]-w)))
		}
		if worst < 1e-3*top {
			t.Errorf("%s with %v: logits differ by %v of %v only", tt.golden, tt.change, worst, top)
		}
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	}
}
