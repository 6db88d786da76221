package ggufmodel_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// TestBlocks compares the layouts that tensors and files know.
func TestBlocks(t *testing.T) {
	for _, kind := range []gguf.Type{gguf.F32, gguf.F16, gguf.BF16, gguf.Q8_0, gguf.Q4_0, gguf.Q4K, gguf.Q5K, gguf.Q6K} {
		d := safetensors.DType(kind.String())
		weights, bytes := d.Block()
		if weights != kind.BlockWeights() || bytes != kind.BlockBytes() || d.Quantized() != (weights > 1) {
			t.Errorf("%s: blocks of %d weights in %d bytes, want %d in %d", kind, weights, bytes, kind.BlockWeights(), kind.BlockBytes())
		}
		if n := d.Bytes(512); n != 512/weights*bytes {
			t.Errorf("%s: 512 weights are %d bytes", kind, n)
		}
		if back, ok := gguf.ParseType(kind.String()); !ok || back != kind {
			t.Errorf("%s is parsed as %s, %v", kind, back, ok)
		}
		if d.Quantized() && d.Bits() != 0 {
			t.Errorf("a header of safetensors may name %s", d)
		}
	}
	if _, ok := gguf.ParseType("Q5_0"); ok || safetensors.DType("Q5_0").Quantized() || safetensors.DType("F4").Bytes(2) != 0 {
		t.Error("types are known that nobody computes with")
	}
}

// TestAsStored asks what becomes of tensors of each shape and type.
func TestAsStored(t *testing.T) {
	var b gguftest.Builder
	for name, v := range llama() {
		b.Key(full("llama", name), v)
	}
	add := func(name string, kind gguf.Type, shape ...int) {
		n := 1
		for _, d := range shape {
			n *= d
		}
		values := make([]float32, n)
		for i := range values {
			values[i] = float32(i % 97)
		}
		b.Tensor(name, kind, shape, gguftest.Quantize(kind, values))
	}
	add("token_embd.weight", gguf.Q4_0, 10, 32)
	add("blk.0.attn_q.weight", gguf.Q8_0, 32, 32)
	add("blk.0.attn_v.weight", gguf.Q8_0, 32, 32)
	add("blk.0.attn_v.bias", gguf.Q8_0, 32)
	add("blk.0.attn_q.bias", gguf.Q8_0, 32)
	add("blk.0.attn_k.bias", gguf.F32, 32)
	add("blk.1.attn_k.weight", gguf.F16, 16, 32)
	c := openFile(t, &b)
	for name, want := range map[string]struct {
		dtype         safetensors.DType
		bytes, copied int64
	}{
		"model.embed_tokens.weight":              {safetensors.Q4_0, 180, 0},
		"model.layers.0.self_attn.q_proj.weight": {safetensors.Q8_0, 1088, 1088}, // rows in another order
		"model.layers.0.self_attn.v_proj.weight": {safetensors.Q8_0, 1088, 0},
		"model.layers.0.self_attn.v_proj.bias":   {safetensors.F32, 128, 128}, // a vector
		"model.layers.0.self_attn.q_proj.bias":   {safetensors.Q8_0, 34, 0},   // cannot be put in order: refused above
		"model.layers.0.self_attn.k_proj.bias":   {safetensors.F32, 128, 128},
		"model.layers.1.self_attn.k_proj.weight": {safetensors.F16, 1024, 1024},
	} {
		described, _ := c.Lookup(name)
		got, ok := c.Tensor(name)
		if !ok || got.DType != want.dtype || described.DType != want.dtype || int64(len(got.Data)) != want.bytes || c.CopiedBytes(name) != want.copied {
			t.Errorf("%s is %s of %d bytes, %d copied; want %+v", name, got.DType, len(got.Data), c.CopiedBytes(name), want)
		}
	}
}
