package model_test

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/patience"
)

// TestMmprojRefuses damages a mmproj file, or the text model, in one place each.
func TestMmprojRefuses(t *testing.T) {
	patience.OneGoroutine(t)
	set := func(name string, value any) func(keys map[string]any) {
		return func(keys map[string]any) { keys[name] = value }
	}
	without := func(name string) func(keys map[string]any) {
		return func(keys map[string]any) { delete(keys, name) }
	}
	dirs := map[string]string{}
	for family := range modeltest.Vision() {
		dirs[family] = modeltest.Sighted(t, family)
	}
	for _, tt := range []struct {
		name, family string
		change       func(keys map[string]any)
		kind         error
		want         string
	}{
		{"nothing", "llava", nil, nil, ""},
		{"no vision encoder", "llava", set("clip.has_vision_encoder", false), model.ErrUnsupported, "clip.has_vision_encoder is false"},
		{"audio as well", "llava", set("clip.has_audio_encoder", true), model.ErrUnsupported, "clip.has_audio_encoder is true"},
		{"a whole CLIP", "llava", set("clip.has_text_encoder", true), model.ErrUnsupported, "clip.has_text_encoder is true"},
		{"an older type", "idefics3", set("general.type", "clip-vision"), nil, ""},
		{"split", "idefics3", set("split.count", uint32(2)), model.ErrUnsupported, "split.count 2"},
		{"no clip", "idefics3", set("general.architecture", "llama"), model.ErrConfig, `general.architecture "llama": this is no mmproj file`},
		{"unknown projector", "idefics3", set("clip.projector_type", "ldpv2"), model.ErrUnsupported, `clip.projector_type "ldpv2"; known are mlp, idefics3, gemma3, qwen2vl_merger, qwen2.5vl_merger`},
		{"no projector", "idefics3", without("clip.projector_type"), model.ErrConfig, "mmproj-model.gguf: invalid GGUF model: clip.projector_type is missing"},
		{"projector of LLaVA's first files", "llava", without("clip.projector_type"), nil, ""},
		{"projector among several", "qwen2_vl", func(keys map[string]any) {
			keys["clip.vision.projector_type"] = keys["clip.projector_type"]
			delete(keys, "clip.projector_type")
		}, nil, ""},
		{"key of another type", "idefics3", set("clip.projector_type", uint32(1)), model.ErrConfig, "clip.projector_type"},
		{"another family", "gemma3_text", set("clip.projector_type", "idefics3"), model.ErrUnsupported, `"idefics3" beside a text model of the architecture gemma3; it goes with llama, qwen2, qwen3`},
		{"a number missing", "idefics3", without("clip.vision.block_count"), model.ErrConfig, "clip.vision.block_count is missing"},
		{"another activation", "idefics3", set("clip.use_gelu", false), model.ErrUnsupported, "clip.use_gelu is false and clip.use_silu is false"},
		{"two activations", "llava", func(keys map[string]any) { keys["clip.use_gelu"], keys["clip.use_silu"] = true, true }, model.ErrUnsupported, "clip.use_gelu is true and clip.use_silu is true"},
		{"silu", "gemma3_text", func(keys map[string]any) { keys["clip.use_gelu"], keys["clip.use_silu"] = false, true }, model.ErrUnsupported, "clip.use_silu is true"},
		{"gelu in Qwen2.5", "qwen2_5_vl", set("clip.use_silu", false), model.ErrUnsupported, "clip.use_silu is false"},
		{"two colors", "llava", set("clip.vision.image_mean", []float32{1, 2}), model.ErrConfig, "clip.vision.image_mean has 2 numbers"},
		{"no deviation", "llava", without("clip.vision.image_std"), model.ErrConfig, "clip.vision.image_std has 0 numbers"},
		{"colors that are no numbers", "llava", set("clip.vision.image_std", []float32{1, float32(math.NaN()), 1}), model.ErrConfig, "image_std has NaN"},
		{"a deviation of 0", "llava", set("clip.vision.image_std", []float32{1, 0, 1}), model.ErrConfig, "image_std has 0"},
		{"more layers than a tower can have", "qwen2_5_vl", set("clip.vision.block_count", uint32(1<<20)), model.ErrConfig, "clip.vision.block_count is 1048576"},
		{"layers that are missing", "idefics3", set("clip.vision.block_count", uint32(4)), model.ErrWeights, "16 tensors are missing"},
		{"no patches", "gemma3_text", set("clip.vision.patch_size", uint32(0)), model.ErrConfig, "clip.vision.patch_size is 0"},
		{"patches of another size", "llava", set("clip.vision.patch_size", uint32(7)), model.ErrWeights, "patch_embedding.weight"},
		{"squares that do not fit", "gemma3_text", set("clip.vision.projector.scale_factor", uint32(4)), model.ErrConfig, "4 does not divide the 6 patches"},
		{"shuffled squares that do not fit", "idefics3", set("clip.vision.projector.scale_factor", uint32(4)), model.ErrConfig, "scale_factor: 4 does not divide"},
		{"several layers", "llava", set("clip.vision.feature_layer", []int32{1, 2}), model.ErrUnsupported, "clip.vision.feature_layer is [1 2], want one of the 2 layers"},
		{"a layer behind the last", "llava", set("clip.vision.feature_layer", []int32{3}), model.ErrUnsupported, "clip.vision.feature_layer is [3]"},
		{"tiles without lines", "llava", set("clip.vision.image_grid_pinpoints", []int32{70, 140, 140, 70}), model.ErrUnsupported, "v.image_newline"},
		{"lines without tiles", "llava_next", without("clip.vision.image_grid_pinpoints"), model.ErrUnsupported, "clip.vision.image_grid_pinpoints"},
		{"tiles that are flat", "llava_next", set("clip.vision.mm_patch_merge_type", "flat"), model.ErrUnsupported, "clip.vision.mm_patch_merge_type"},
		{"half a size", "llava_next", set("clip.vision.image_grid_pinpoints", []int32{70, 140, 140}), model.ErrConfig, "has 3 numbers"},
		{"one way only", "llava_next", set("clip.vision.image_grid_pinpoints", []int32{70, 140}), model.ErrUnsupported, "70 × 140 but not the same turned"},
		{"eps", "qwen2_vl", set("clip.vision.attention.layer_norm_epsilon", float32(1e-5)), model.ErrUnsupported, "layer_norm_epsilon is 1e-05"},
		{"no windows", "qwen2_5_vl", without("clip.vision.n_wa_pattern"), model.ErrConfig, "clip.vision.n_wa_pattern is missing"},
		{"another merge", "qwen2_vl", set("clip.vision.spatial_merge_size", uint32(3)), model.ErrWeights, "merger"},
		{"merge of nothing", "qwen2_vl", set("clip.vision.spatial_merge_size", uint32(0)), model.ErrConfig, "clip.vision.spatial_merge_size"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			folder := modeltest.VisionGGUF(t, dirs[tt.family], modeltest.MmprojForm{Change: tt.change})
			refused(t, folder, tt.kind, tt.want)
		})
	}
	write := func(name string, b *gguftest.Builder, beside ...string) (folder string) {
		folder = modeltest.VisionGGUF(t, dirs[name], modeltest.MmprojForm{})
		b.Write(t, filepath.Join(folder, "mmproj-model.gguf"))
		for _, b := range beside {
			if err := os.WriteFile(filepath.Join(folder, b), []byte("GGUF"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return folder
	}
	tensor := func(family, name string, shape ...int) *gguftest.Builder {
		b := modeltest.Mmproj(t, dirs[family], modeltest.MmprojForm{})
		n := 1
		for _, d := range shape {
			n *= d
		}
		b.Tensor(name, gguf.F32, shape, make([]byte, 4*n))
		return b
	}
	t.Run("a tensor of another kind", func(t *testing.T) {
		refused(t, write("llava", tensor("llava", "v.patch_embd.bias", 24)), model.ErrUnsupported, "tensor v.patch_embd.bias, which projectors of type mlp do not have here")
	})
	t.Run("norms between layers", func(t *testing.T) {
		refused(t, write("llava", tensor("llava", "mm.3.weight", 32, 32)), model.ErrUnsupported, "with norms (tensor mm.3.weight)")
	})
	t.Run("frames of stills", func(t *testing.T) {
		refused(t, write("gemma3_text", tensor("gemma3_text", "v.patch_embd.weight.1", 24, 3, 4, 4)), model.ErrUnsupported, "v.patch_embd.weight.1")
	})
	t.Run("another model's", func(t *testing.T) {
		spec := modeltest.Vision()["llava"]
		spec.Hidden, spec.Images["image_token_index"] = 40, 250
		spec.HeadDim = 10
		other := modeltest.Generate(t, spec)
		if err := os.WriteFile(filepath.Join(other, model.PreprocessorName), []byte(`{"image_mean":[0.5,0.5,0.5],"image_std":[0.5,0.5,0.5],"size":{"longest_edge":24}}`), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, write("llava", modeltest.Mmproj(t, other, modeltest.MmprojForm{})), model.ErrConfig, "it makes rows of 40 values, the embeddings of the text model have 32")
	})
	t.Run("a text model without the token", func(t *testing.T) {
		folder := write("llava", modeltest.Mmproj(t, dirs["llava"], modeltest.MmprojForm{}))
		spec := modeltest.Spec{Layers: 3, Hidden: 32, Heads: 4, KVHeads: 2, HeadDim: 8, FFN: 48, Vocab: 260}
		if err := os.Rename(modeltest.GGUF(t, modeltest.Generate(t, spec), gguf.F32), filepath.Join(folder, "model.gguf")); err != nil {
			t.Fatal(err)
		}
		refused(t, folder, model.ErrConfig, "lacks 1 special tokens that stand for images, the first is <image>")
	})
	t.Run("itself", func(t *testing.T) {
		folder := write("llava", modeltest.Mmproj(t, dirs["llava"], modeltest.MmprojForm{}))
		refused(t, filepath.Join(folder, "mmproj-model.gguf"), model.ErrUnsupported, "this is a mmproj file, the part of a model that reads images; name the GGUF file of its text model")
		if err := os.Remove(filepath.Join(folder, "model.gguf")); err != nil {
			t.Fatal(err)
		}
		refused(t, folder, gguf.ErrFormat, "no GGUF file but mmproj-model.gguf")
	})
	t.Run("no GGUF", func(t *testing.T) {
		folder := write("llava", modeltest.Mmproj(t, dirs["llava"], modeltest.MmprojForm{}))
		if err := os.WriteFile(filepath.Join(folder, "mmproj-model.gguf"), []byte("nothing"), 0o644); err != nil {
			t.Fatal(err)
		}
		refused(t, folder, gguf.ErrFormat, "open mmproj-model.gguf")
	})
	t.Run("several", func(t *testing.T) {
		folder := write("llava", modeltest.Mmproj(t, dirs["llava"], modeltest.MmprojForm{}), "mmproj-f16.gguf")
		refused(t, folder, gguf.ErrFormat, "2 mmproj files belong to model.gguf: mmproj-f16.gguf, mmproj-model.gguf")
	})
	t.Run("a link that leads out", func(t *testing.T) {
		folder := write("llava", modeltest.Mmproj(t, dirs["llava"], modeltest.MmprojForm{}))
		path := filepath.Join(folder, "mmproj-model.gguf")
		if err := errors.Join(os.Rename(path, filepath.Join(t.TempDir(), "x")), os.Symlink(filepath.Join(t.TempDir(), "x"), path)); err != nil {
			t.Fatal(err)
		}
		if _, err := model.Open(folder, model.Options{}); err == nil {
			t.Error("opened")
		}
	})
}

func refused(t *testing.T, path string, kind error, want string) {
	t.Helper()
	m, err := model.Open(path, model.Options{})
	if kind == nil {
		if err != nil {
			t.Fatal(err)
		}
		if m.Config().Vision == nil {
			t.Error("it reads text only")
		}
		_ = m.Close()
		return
	}
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) {
		t.Errorf("err = %v, want %v with %q", err, kind, want)
	}
}
