package ggufmodel_test

import (
	"encoding/json"
	"errors"
	"maps"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/ggufmodel"
)

// keys of a small model; names that begin with a dot get the architecture.
type keys map[string]any

func llama() keys {
	return keys{
		"general.architecture": "llama", ".block_count": uint32(2), ".embedding_length": uint32(32), ".feed_forward_length": uint32(64),
		".attention.head_count": uint32(4), ".attention.head_count_kv": uint32(2), ".context_length": uint32(512),
		".attention.layer_norm_rms_epsilon": float32(1e-5), ".rope.freq_base": float32(5e5),
	}
}

// with changes some keys; nil removes one.
func (k keys) with(more keys) keys {
	out := maps.Clone(k)
	for name, v := range more {
		if out[name] = v; v == nil {
			delete(out, name)
		}
	}
	return out
}

func full(arch, name string) string {
	if strings.HasPrefix(name, ".") {
		return arch + name
	}
	return name
}

type tensors map[string][]int

// open writes a file with the keys and with tensors of zeros, beside the embedding.
func open(t *testing.T, k keys, more tensors) *ggufmodel.Checkpoint {
	t.Helper()
	var b gguftest.Builder
	arch, _ := k["general.architecture"].(string)
	for _, name := range slices.Sorted(maps.Keys(k)) {
		b.Key(full(arch, name), k[name])
	}
	if more == nil {
		more = tensors{}
	}
	if _, set := more["token_embd.weight"]; !set {
		more["token_embd.weight"] = []int{10, 32}
	}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		n := 1
		for _, d := range more[name] {
			n *= d
		}
		if n > 0 {
			values := make([]float32, n)
			for i := range values {
				values[i] = float32(i + 1)
			}
			b.Tensor(name, gguf.F32, more[name], gguftest.Quantize(gguf.F32, values))
		}
	}
	return openFile(t, &b)
}

func openFile(t *testing.T, b *gguftest.Builder) *ggufmodel.Checkpoint {
	t.Helper()
	path := filepath.Join(t.TempDir(), "m.gguf")
	b.Write(t, path)
	c, err := ggufmodel.Open(path, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func config(t *testing.T, c *ggufmodel.Checkpoint) map[string]any {
	t.Helper()
	out := map[string]any{}
	if err := json.Unmarshal(c.Files()["config.json"], &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// modelProblems returns the problems other than the missing tokenizer of these files.
func modelProblems(c *ggufmodel.Checkpoint) []error {
	return slices.DeleteFunc(slices.Clone(c.Problems()), func(err error) bool { return strings.Contains(err.Error(), "read vocabulary") })
}

func TestConfig(t *testing.T) {
	tests := []struct {
		name    string
		keys    keys
		tensors tensors
		want    map[string]any // some of the fields
	}{
		{"llama", llama(), nil, map[string]any{
			"architectures": []any{"LlamaForCausalLM"}, "model_type": "llama", "num_hidden_layers": 2.0, "hidden_size": 32.0, "intermediate_size": 64.0,
			"num_attention_heads": 4.0, "num_key_value_heads": 2.0, "head_dim": 8.0, "max_position_embeddings": 512.0, "rms_norm_eps": 1e-5,
			"rope_theta": 5e5, "rope_scaling": nil, "vocab_size": 10.0, "tie_word_embeddings": true, "attention_bias": false, "mlp_bias": false,
			"torch_dtype": "float32",
		}},
		{"a head of its own, biases", llama(), tensors{"output.weight": {10, 32}, "blk.0.attn_q.bias": {32}, "blk.0.ffn_up.bias": {64}}, map[string]any{
			"tie_word_embeddings": false, "attention_bias": true, "mlp_bias": true,
		}},
		{"size of a head", llama().with(keys{".attention.key_length": uint32(16), ".attention.value_length": uint32(16)}), nil, map[string]any{"head_dim": 16.0}},
		{"no kv heads", llama().with(keys{".attention.head_count_kv": nil, ".rope.freq_base": nil}), nil, map[string]any{
			"num_key_value_heads": nil, "rope_theta": 1e4,
		}},
		{"the same in each layer", llama().with(keys{".attention.head_count_kv": []int32{2, 2}}), nil, map[string]any{"num_key_value_heads": 2.0}},
		{"partial rotation", llama().with(keys{".rope.dimension_count": uint32(4)}), nil, map[string]any{"partial_rotary_factor": 0.5}},
		{"linear", llama().with(keys{".rope.scaling.type": "linear", ".rope.scaling.factor": float32(4)}), nil, map[string]any{
			"rope_scaling": map[string]any{"rope_type": "linear", "factor": 4.0},
		}},
		{"linear, old spelling", llama().with(keys{".rope.scale_linear": float32(2)}), nil, map[string]any{
			"rope_scaling": map[string]any{"rope_type": "linear", "factor": 2.0},
		}},
		{"no scaling", llama().with(keys{".rope.scaling.type": "none"}), nil, map[string]any{"rope_scaling": nil}},
		{"yarn", llama().with(keys{
			".rope.scaling.type": "yarn", ".rope.scaling.factor": float32(4), ".rope.scaling.original_context_length": uint32(128),
			".rope.scaling.yarn_beta_fast": float32(16),
		}), nil, map[string]any{
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128.0, "beta_fast": 16.0},
		}},
		{"yarn with a factor of its own", llama().with(keys{
			".rope.scaling.type": "yarn", ".rope.scaling.factor": float32(4), ".rope.scaling.attn_factor": float32(0.5),
		}), nil, map[string]any{
			"rope_scaling": map[string]any{"rope_type": "yarn", "factor": 4.0, "attention_factor": 0.5 * (0.1*math.Log(4) + 1)},
		}},
		{"divisors that are no known rule", llama(), tensors{"rope_freqs.weight": {4}}, map[string]any{
			"rope_scaling": map[string]any{
				"rope_type": "longrope", "short_factor": []any{1.0, 2.0, 3.0, 4.0}, "long_factor": []any{1.0, 2.0, 3.0, 4.0},
				"attention_factor": 1.0, "original_max_position_embeddings": 512.0,
			},
		}},
		{"longrope", llama().with(keys{"general.architecture": "phi3"}), tensors{"rope_factors_long.weight": {4}, "rope_factors_short.weight": {4}}, map[string]any{
			"model_type": "phi3", "rope_scaling": map[string]any{
				"rope_type": "longrope", "short_factor": []any{1.0, 2.0, 3.0, 4.0}, "long_factor": []any{1.0, 2.0, 3.0, 4.0},
			},
		}},
		{"qwen2", llama().with(keys{"general.architecture": "qwen2"}), nil, map[string]any{
			"architectures": []any{"Qwen2ForCausalLM"}, "model_type": "qwen2", "attention_bias": nil,
		}},
		{"qwen3", llama().with(keys{"general.architecture": "qwen3"}), nil, map[string]any{"model_type": "qwen3", "attention_bias": false}},
		{"qwen3moe", llama().with(keys{
			"general.architecture": "qwen3moe", ".expert_count": uint32(8), ".expert_used_count": uint32(2), ".expert_feed_forward_length": uint32(16),
		}), nil, map[string]any{
			"model_type": "qwen3_moe", "num_experts": 8.0, "num_experts_per_tok": 2.0, "moe_intermediate_size": 16.0, "norm_topk_prob": true,
		}},
		{"mixtral", llama().with(keys{".expert_count": uint32(8), ".expert_used_count": uint32(2)}), nil, map[string]any{
			"model_type": "mixtral", "num_local_experts": 8.0, "num_experts_per_tok": 2.0,
		}},
		{"gemma2", llama().with(keys{
			"general.architecture": "gemma2", ".attention.sliding_window": uint32(64), ".attn_logit_softcapping": float32(50), ".final_logit_softcapping": float32(30),
		}), nil, map[string]any{
			"sliding_window": 64.0, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": 8.0,
		}},
		{"gemma2 27B", llama().with(keys{"general.architecture": "gemma2", ".block_count": uint32(46), ".attention.key_length": uint32(16)}), nil, map[string]any{
			"head_dim": 16.0, "query_pre_attn_scalar": 8.0,
		}},
		{"window as wide as the context", llama().with(keys{".attention.sliding_window": uint32(512)}), nil, map[string]any{"sliding_window": nil}},
		{"neutral values", llama().with(keys{".expert_count": uint32(0), ".logit_scale": float32(1), ".attention.causal": true}), nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, tt.keys, tt.tensors)
			if p := modelProblems(c); len(p) > 0 {
				t.Fatalf("problems: %v", p)
			}
			got := config(t, c)
			for name, want := range tt.want {
				if !reflect.DeepEqual(got[name], want) {
					t.Errorf("%s is %v, want %v", name, got[name], want)
				}
			}
		})
	}
}

// TestLlama3Frequencies recognizes the divisors that converters compute for Llama
// 3.1 and 3.2.
func TestLlama3Frequencies(t *testing.T) {
	for _, factor := range []float64{8, 32} {
		const theta, dim = 5e5, 128
		divisors := make([]float32, dim/2)
		for i := range divisors {
			wavelength := 2 * math.Pi * math.Pow(theta, float64(2*i)/dim)
			switch {
			case wavelength < 8192.0/4:
				divisors[i] = 1
			case wavelength > 8192:
				divisors[i] = float32(factor)
			default:
				smooth := (8192/wavelength - 1) / 3
				divisors[i] = float32(1 / ((1-smooth)/factor + smooth))
			}
		}
		build := func() *ggufmodel.Checkpoint {
			var b gguftest.Builder
			for name, v := range llama().with(keys{".attention.key_length": uint32(dim)}) {
				b.Key(full("llama", name), v)
			}
			b.Tensor("token_embd.weight", gguf.F16, []int{4, 32}, make([]byte, 256))
			b.Tensor("rope_freqs.weight", gguf.F32, []int{dim / 2}, gguftest.Quantize(gguf.F32, divisors))
			return openFile(t, &b)
		}
		c := build()
		if p := modelProblems(c); len(p) > 0 {
			t.Fatal(p)
		}
		want := map[string]any{
			"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192.0,
		}
		if got := config(t, c); !reflect.DeepEqual(got["rope_scaling"], want) || got["torch_dtype"] != "float16" {
			t.Errorf("rope_scaling %v, want %v; type %v", got["rope_scaling"], want, got["torch_dtype"])
		}
		if slices.Contains(c.Names(), "rope_freqs.weight") {
			t.Error("the divisors are still a tensor")
		}
		divisors[40] *= 1.01
		if got := config(t, build())["rope_scaling"].(map[string]any); got["rope_type"] != "longrope" {
			t.Errorf("other divisors are %v", got["rope_type"])
		}
	}
}

func TestProblems(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		name    string
		keys    keys
		tensors tensors
		kind    error
		want    string
	}{
		{"no architecture", llama().with(keys{"general.architecture": nil}), nil, ggufmodel.ErrConfig, "general.architecture is missing"},
		{"architecture is a number", llama().with(keys{"general.architecture": uint32(1)}), nil, gguf.ErrKey, "general.architecture"},
		{"unknown architecture", llama().with(keys{"general.architecture": "rwkv6"}), nil, ggufmodel.ErrUnsupported, `"rwkv6"; known are llama, qwen2`},
		{"an adapter", llama().with(keys{"general.type": "adapter"}), nil, ggufmodel.ErrUnsupported, "not a model by itself"},
		{"part of a model", llama().with(keys{"split.count": uint16(3)}), nil, ggufmodel.ErrUnsupported, "split.count 3"},
		{"old quantization", llama().with(keys{"general.quantization_version": uint32(1)}), nil, ggufmodel.ErrUnsupported, "quantization_version 1"},
		{"no layers", llama().with(keys{".block_count": nil}), nil, ggufmodel.ErrConfig, "llama.block_count is missing"},
		{"no width", llama().with(keys{".embedding_length": nil}), nil, ggufmodel.ErrConfig, "llama.embedding_length is missing"},
		{"no heads", llama().with(keys{".attention.head_count": nil}), nil, ggufmodel.ErrConfig, "head_count is missing"},
		{"no inner size", llama().with(keys{".feed_forward_length": nil}), nil, ggufmodel.ErrConfig, "feed_forward_length is missing"},
		{"no context", llama().with(keys{".context_length": nil}), nil, ggufmodel.ErrConfig, "context_length is missing"},
		{"no epsilon", llama().with(keys{".attention.layer_norm_rms_epsilon": nil}), nil, ggufmodel.ErrConfig, "rms_epsilon is missing"},
		{"epsilon is text", llama().with(keys{".attention.layer_norm_rms_epsilon": "x"}), nil, gguf.ErrKey, "rms_epsilon"},
		{"epsilon is no number", llama().with(keys{".attention.layer_norm_rms_epsilon": nan}), nil, ggufmodel.ErrConfig, "is NaN"},
		{"theta is no number", llama().with(keys{".rope.freq_base": float32(math.Inf(1))}), nil, ggufmodel.ErrConfig, "freq_base is +Inf"},
		{"layers are text", llama().with(keys{".block_count": "2"}), nil, gguf.ErrKey, "llama.block_count"},
		{"layers are negative", llama().with(keys{".block_count": int32(-2)}), nil, gguf.ErrKey, "llama.block_count"},
		{"layers that differ", llama().with(keys{".attention.head_count_kv": []int32{2, 4}}), nil, ggufmodel.ErrUnsupported, "not the same in all layers"},
		{"empty list", llama().with(keys{".feed_forward_length": []int32{}}), nil, ggufmodel.ErrConfig, "feed_forward_length is missing"},
		{"heads that do not divide", llama().with(keys{".attention.head_count": uint32(5)}), nil, ggufmodel.ErrConfig, "not a multiple of 5 heads"},
		{"values of another size", llama().with(keys{".attention.key_length": uint32(8), ".attention.value_length": uint32(4)}), nil, ggufmodel.ErrUnsupported, "they differ"},
		{"experts", llama().with(keys{"general.architecture": "qwen2", ".expert_count": uint32(4)}), nil, ggufmodel.ErrUnsupported, "qwen2.expert_count is 4"},
		{"window", llama().with(keys{".attention.sliding_window": uint32(64)}), nil, ggufmodel.ErrUnsupported, "attention.sliding_window is 64"},
		{"logit scale", llama().with(keys{".logit_scale": float32(0.5)}), nil, ggufmodel.ErrUnsupported, "logit_scale is 0.5"},
		{"bidirectional", llama().with(keys{".attention.causal": false}), nil, ggufmodel.ErrUnsupported, "attention.causal is false"},
		{"parallel residual", llama().with(keys{".use_parallel_residual": true}), nil, ggufmodel.ErrUnsupported, "use_parallel_residual is true"},
		{"no embedding", llama(), tensors{"token_embd.weight": {0}}, ggufmodel.ErrConfig, "token_embd.weight is missing"},
		{"embedding of one dimension", llama(), tensors{"token_embd.weight": {320}}, ggufmodel.ErrConfig, "is no matrix"},
		{"unknown scaling", llama().with(keys{".rope.scaling.type": "ntk"}), nil, ggufmodel.ErrUnsupported, `"ntk"; known are none`},
		{"factor of zero", llama().with(keys{".rope.scaling.type": "linear", ".rope.scaling.factor": float32(0)}), nil, ggufmodel.ErrConfig, "not above 0"},
		{"too few divisors", llama(), tensors{"rope_freqs.weight": {3}}, ggufmodel.ErrConfig, "3 numbers for 4 pairs"},
		{"divisors and a scaling", llama().with(keys{".rope.scaling.type": "linear"}), tensors{"rope_freqs.weight": {4}}, ggufmodel.ErrUnsupported, "rope_freqs.weight beside"},
		{"one of two tables", llama(), tensors{"rope_factors_long.weight": {4}}, ggufmodel.ErrConfig, "rope_factors_short.weight is missing"},
		{"huge table", llama(), tensors{"rope_freqs.weight": {1 << 18, 2}}, ggufmodel.ErrConfig, "has 2097152 bytes"},
		{"name twice", llama(), tensors{"model.norm.weight": {32}, "output_norm.weight": {32}}, ggufmodel.ErrConfig, "both model.norm.weight"},
		{"no tokenizer", llama(), nil, nil, "the file has no tokenizer"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := open(t, tt.keys, tt.tensors)
			for _, err := range c.Problems() {
				if strings.Contains(err.Error(), tt.want) {
					if tt.kind != nil && !errors.Is(err, tt.kind) {
						t.Errorf("err = %v, want %v", err, tt.kind)
					}
					return
				}
			}
			t.Errorf("problems %v, want one that says %q", c.Problems(), tt.want)
		})
	}
}

// TestAllProblems finds several at once.
func TestAllProblems(t *testing.T) {
	c := open(t, llama().with(keys{".block_count": nil, ".logit_scale": float32(3), ".rope.scaling.type": "ntk"}), nil)
	for _, want := range []string{"block_count", "logit_scale", `"ntk"`, "no tokenizer"} {
		if !slices.ContainsFunc(c.Problems(), func(err error) bool { return strings.Contains(err.Error(), want) }) {
			t.Errorf("nothing about %s in %v", want, c.Problems())
		}
	}
}
