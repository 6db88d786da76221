package model_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

// TestGGUFRefuses damages a small file in one place each.
func TestGGUFRefuses(t *testing.T) {
	type file struct {
		keys    map[string]any
		tensors map[string][]int
		kind    map[string]gguf.Type
	}
	tests := []struct {
		name   string
		damage func(f file)
		kind   error
		want   string
	}{
		{"nothing", func(file) {}, nil, ""},
		{"unknown architecture", func(f file) { f.keys["general.architecture"] = "mamba" }, model.ErrUnsupported, `m.gguf: unsupported model: unsupported GGUF model: general.architecture "mamba"`},
		{"unknown tokenizer", func(f file) { f.keys["tokenizer.ggml.model"] = "t5" }, model.ErrUnsupported, `tokenizer.ggml.model "t5"`},
		{"unknown split pattern", func(f file) { f.keys["tokenizer.ggml.pre"] = "default" }, model.ErrUnsupported, `tokenizer.ggml.pre "default"`},
		{"key missing", func(f file) { delete(f.keys, "qwen3.block_count") }, model.ErrConfig, "qwen3.block_count is missing"},
		{"key of another type", func(f file) { f.keys["qwen3.block_count"] = "1" }, model.ErrConfig, "qwen3.block_count"},
		{"no tokenizer", func(f file) { delete(f.keys, "tokenizer.ggml.tokens") }, model.ErrConfig, "tokens is missing"},
		{"more layers than a model can have", func(f file) { f.keys["qwen3.block_count"] = uint32(1 << 20) }, model.ErrConfig, "m.gguf: read config.json: invalid model configuration: num_hidden_layers"},
		{"odd heads", func(f file) { f.keys["qwen3.attention.key_length"] = uint32(15) }, model.ErrConfig, "head_dim: 15 is odd"},
		{"tensor missing", func(f file) { delete(f.tensors, "blk.0.attn_q_norm.weight") }, model.ErrWeights, "1 tensors are missing: model.layers.0.self_attn.q_norm.weight"},
		{"tensor of another shape", func(f file) { f.tensors["output_norm.weight"] = []int{31} }, model.ErrWeights, "model.norm.weight\" of m.gguf has shape [31], want [32]"},
		{"tensor of whole numbers", func(f file) { f.kind["output_norm.weight"] = 26 }, model.ErrWeights, "has type I32; known are F32, F16, BF16, Q8_0"},
		{"quantization that is not known", func(f file) { f.kind["blk.0.ffn_up.weight"] = 6 }, model.ErrWeights, "has type Q5_0"},
		{"token past the rows", func(f file) { f.tensors["token_embd.weight"] = []int{2, 32} }, model.ErrConfig, "uses id 2, vocab_size in config.json is 2"},
		{"not in the file", func(f file) { f.keys["general.alignment"] = uint32(7) }, gguf.ErrFormat, "general.alignment 7"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := file{
				keys: map[string]any{
					"general.architecture": "qwen3", "qwen3.block_count": uint32(1), "qwen3.embedding_length": uint32(32),
					"qwen3.feed_forward_length": uint32(32), "qwen3.attention.head_count": uint32(2), "qwen3.context_length": uint32(64),
					"qwen3.attention.layer_norm_rms_epsilon": float32(1e-6),
					"tokenizer.ggml.model":                   "gpt2", "tokenizer.ggml.pre": "qwen2", "tokenizer.ggml.tokens": []string{"a", "b", "ab"},
					"tokenizer.ggml.merges": []string{"a b"},
				},
				tensors: map[string][]int{
					"token_embd.weight": {3, 32}, "output_norm.weight": {32}, "blk.0.attn_norm.weight": {32}, "blk.0.ffn_norm.weight": {32},
					"blk.0.attn_q_norm.weight": {16}, "blk.0.attn_k_norm.weight": {16}, "blk.0.attn_q.weight": {32, 32}, "blk.0.attn_k.weight": {32, 32},
					"blk.0.attn_v.weight": {32, 32}, "blk.0.attn_output.weight": {32, 32}, "blk.0.ffn_gate.weight": {32, 32},
					"blk.0.ffn_up.weight": {32, 32}, "blk.0.ffn_down.weight": {32, 32},
				},
				kind: map[string]gguf.Type{},
			}
			tt.damage(f)
			var b gguftest.Builder
			for name, v := range f.keys {
				b.Key(name, v)
			}
			for name, shape := range f.tensors {
				n := 1
				for _, d := range shape {
					n *= d
				}
				kind := f.kind[name]
				b.Tensor(name, kind, shape, make([]byte, n/kind.BlockWeights()*kind.BlockBytes()))
			}
			path := filepath.Join(t.TempDir(), "m.gguf")
			b.Write(t, path)
			m, err := model.Open(path, model.Options{})
			if tt.kind == nil && err == nil {
				_ = m.Close()
				return
			}
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %v with %q", err, tt.kind, tt.want)
			}
		})
	}
}
