package ggufmodel

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
)

// fuzzTexts are text models, one for each architecture that goes with a projector.
func fuzzTexts() (texts []*converter, added map[string]uint32) {
	added = map[string]uint32{}
	for i, token := range []string{"<image>", "<fake_token_around_image>", "<image_soft_token>", "<start_of_image>", "<end_of_image>", "<|image_pad|>"} {
		added[token] = uint32(i)
	}
	for _, a := range archs() {
		if !slices.Contains([]string{"llama", "gemma3", "qwen2vl"}, a.name) || a.withExperts {
			continue
		}
		texts = append(texts, &converter{
			arch: a, config: map[string]any{"hidden_size": 4, "model_type": a.modelType},
			keys: gguf.Keys{"qwen2vl.rope.dimension_sections": []int64{1, 1, 0, 0}},
		})
	}
	return texts, added
}

// FuzzMmproj reads the keys of any mmproj file, and makes the tensors of those that are well
// formed.
func FuzzMmproj(f *testing.F) {
	texts, added := fuzzTexts()
	common := map[string]any{
		"general.architecture": "clip", "clip.use_gelu": true,
		"clip.vision.image_mean": []float32{0.5, 0.5, 0.5}, "clip.vision.image_std": []float32{0.5, 0.5, 0.5},
		"clip.vision.embedding_length": uint32(2), "clip.vision.block_count": uint32(1), "clip.vision.attention.head_count": uint32(1),
		"clip.vision.image_size": uint32(4), "clip.vision.patch_size": uint32(2), "clip.vision.attention.layer_norm_epsilon": float32(1e-6),
	}
	for _, more := range []struct {
		text    string // its architecture
		keys    map[string]any
		tensors map[string][]int
	}{
		{"llama", map[string]any{
			"clip.projector_type": "mlp", "clip.vision.feature_layer": []int32{1}, "clip.vision.image_grid_pinpoints": []int32{4, 8, 8, 4},
		}, map[string][]int{"mm.2.weight": {4, 4}, "v.image_newline": {4}, "v.class_embd": {2}, "v.patch_embd.weight": {2, 3, 2, 2}}},
		{"llama", map[string]any{
			"clip.projector_type": "idefics3", "clip.vision.preproc_image_size": uint32(4),
		}, map[string][]int{"mm.model.fc.weight": {4, 8}, "v.blk.0.attn_qkv.weight": {6, 2}}},
		{"gemma3", map[string]any{"clip.projector_type": "gemma3", "clip.vision.projector.scale_factor": uint32(2)}, map[string][]int{"mm.input_projection.weight": {2, 4}, "mm.soft_emb_norm.weight": {2}}},
		{"qwen2vl", map[string]any{"clip.projector_type": "qwen2vl_merger"}, map[string][]int{"mm.2.weight": {4, 4}, "v.patch_embd.weight": {2, 3, 2, 2}, "v.patch_embd.weight.1": {2, 3, 2, 2}}},
		{"qwen2vl", map[string]any{
			"clip.projector_type": "qwen2.5vl_merger", "clip.use_gelu": false, "clip.use_silu": true, "clip.vision.n_wa_pattern": uint32(1),
		}, map[string][]int{"mm.2.weight": {4, 4}, "v.patch_embd.weight": {2, 3, 2, 2}, "v.patch_embd.weight.1": {2, 3, 2, 2}}},
	} {
		var b gguftest.Builder
		keys := maps.Clone(common)
		maps.Copy(keys, more.keys)
		for _, name := range slices.Sorted(maps.Keys(keys)) {
			b.Key(name, keys[name])
		}
		maps.Copy(more.tensors, map[string][]int{"v.blk.0.ffn_up.weight": {6, 2}, "v.blk.0.ffn_down.weight": {2, 6}})
		for _, name := range slices.Sorted(maps.Keys(more.tensors)) {
			n := 4
			for _, d := range more.tensors[name] {
				n *= d
			}
			b.Tensor(name, gguf.F32, more.tensors[name], make([]byte, n))
		}
		which := byte(slices.IndexFunc(texts, func(c *converter) bool { return c.arch.name == more.text }))
		if m, _ := parseMmproj(f, which, b.Bytes(), texts, added); m == nil || len(m.vision.errs) > 0 {
			f.Fatalf("a seed is refused: %v", more.keys)
		}
		f.Add(which, b.Bytes())
	}
	f.Fuzz(func(t *testing.T, which byte, content []byte) {
		m, header := parseMmproj(t, which, content, texts, added)
		if m == nil {
			return
		}
		for _, err := range m.problems() {
			if !errors.Is(err, ErrConfig) && !errors.Is(err, ErrUnsupported) && !errors.Is(err, gguf.ErrKey) {
				t.Fatalf("an error of no kind: %v", err)
			}
		}
		if len(m.vision.errs) > 0 {
			return
		}
		for _, v := range []any{m.config, m.prepare} {
			if _, err := json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		for _, tensor := range header.Tensors {
			plans, err := m.plans(tensor)
			if err != nil && !errors.Is(err, ErrConfig) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("an error of no kind: %v", err)
			}
			for _, p := range plans {
				n := 1
				for _, d := range p.tensor.Shape {
					n *= d
				}
				data := p.source.Data
				if err == nil && p.copied() {
					data = p.build()
				}
				if _, size := p.tensor.DType.Block(); err == nil && size > 0 && len(data) != p.tensor.DType.Bytes(n) {
					t.Fatalf("%s of shape %v has %d bytes", p.tensor.Name, p.tensor.Shape, len(data))
				}
			}
		}
	})
}

// parseMmproj reads a file beside one of the text models; nil if it is no GGUF file.
func parseMmproj(t testing.TB, which byte, content []byte, texts []*converter, added map[string]uint32) (*mmproj, *gguf.Header) {
	t.Helper()
	header, err := gguf.ParseHeader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, nil
	}
	for i := range header.Tensors {
		tensor := &header.Tensors[i]
		at := header.DataStart + tensor.Offset
		tensor.Data = content[at : at+tensor.Size]
	}
	return newMmproj("mmproj.gguf", header, texts[int(which)%len(texts)], added), header
}
