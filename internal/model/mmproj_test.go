package model_test

import (
	"errors"
	"image"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/media/picture"
	"github.com/dynctl/dynctl/internal/media/prepare"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// TestMmprojIsTheFolder opens models that read images both ways and compares everything: shape,
// each tensor by its role, the vocabulary, and how images are prepared.
func TestMmprojIsTheFolder(t *testing.T) {
	forms := map[string]modeltest.MmprojForm{
		"new":            {},
		"swapped":        {Swapped: true},
		"merged":         {Merged: true},
		"f16":            {Vision: gguf.F16},
		"without layers": {Change: func(keys map[string]any) { delete(keys, "clip.vision.feature_layer") }},
	}
	for family := range modeltest.Vision() {
		dir := modeltest.Sighted(t, family)
		want := openGGUF(t, dir)
		for name, form := range forms {
			t.Run(family+" "+name, func(t *testing.T) {
				folder := modeltest.VisionGGUF(t, dir, form)
				got := openGGUF(t, folder)
				if got.Mmproj() != filepath.Join(folder, "mmproj-model.gguf") || len(got.Warnings()) > 0 {
					t.Errorf("mmproj %s, warnings %q", got.Mmproj(), got.Warnings())
				}
				a, b := got.Config(), want.Config()
				if b.Family == "smolvlm" { // of the same arithmetic
					b.Family, b.Architecture = a.Family, a.Architecture
				}
				sameConfig(t, a, b)
				sameRoles(t, got, want, form.Vision)
				sameText(t, got, want)
				samePictures(t, got, want)
			})
		}
	}
}

// sameRoles compares all tensors by their roles; those of vision may be rounded to kind.
func sameRoles(t *testing.T, got, want *model.Model, kind gguf.Type) {
	t.Helper()
	n := 0
	for _, spec := range want.Tensors() {
		parts := spec.Parts
		if parts == nil {
			parts = []model.Part{{Role: spec.Role}}
		}
		for _, part := range parts {
			a, ok := got.Weight(part.Role, spec.Layer)
			b, _ := want.Weight(part.Role, spec.Layer)
			x, y := modeltest.Floats(t, a), modeltest.Floats(t, b)
			if part.Role.Vision() && len(b.Shape) > 1 {
				if err := gguf.Dequantize(y, kind, gguftest.Quantize(kind, y)); err != nil {
					t.Fatal(err)
				}
			}
			same := slices.Equal(x, y)
			if part.Role.Norm() && want.Config().NormPlusOne { // one was added in the file
				same = slices.EqualFunc(x, y, func(v, w float32) bool { return v+1 == w+1 })
			}
			if !ok || !slices.Equal(a.Shape, b.Shape) || !same {
				t.Errorf("role %d of layer %d differs: %v, want %v", part.Role, spec.Layer, a.Shape, b.Shape)
			}
			n++
		}
	}
	if n < 60 {
		t.Errorf("%d roles", n)
	}
}

// samePictures prepares pictures of several sizes by the files of both.
func samePictures(t *testing.T, got, want *model.Model) {
	t.Helper()
	load := func(m *model.Model) *prepare.Processor {
		files := prepare.Files{}
		for _, f := range m.Files() {
			switch f.Name {
			case model.PreprocessorName:
				files.Preprocessor = f.Data
			case model.ProcessorName:
				files.Processor = f.Data
			case model.ConfigName:
				files.Config = f.Data
			}
		}
		p, err := prepare.Load(files)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a, b := load(got), load(want)
	if a.Placeholder() != b.Placeholder() || a.DecodeOptions() != b.DecodeOptions() {
		t.Errorf("placeholder %q, want %q", a.Placeholder(), b.Placeholder())
	}
	for _, size := range [][2]int{{90, 60}, {40, 120}, {700, 33}} {
		img := image.NewRGBA(image.Rect(0, 0, size[0], size[1]))
		for x := range size[0] {
			for y := range size[1] {
				img.Set(x, y, color.RGBA{uint8(3 * x), uint8(x * y), uint8(5 * y), 255})
			}
		}
		m := &picture.Image{W: size[0], H: size[1]}
		for y := range size[1] {
			for x := range size[0] {
				c := img.RGBAAt(x, y)
				m.Pix = append(m.Pix, c.R, c.G, c.B)
			}
		}
		x, err1 := a.Prepare(m)
		y, err2 := b.Prepare(m)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(x, y) {
			t.Errorf("pictures of %v differ: %d tokens and %v, want %d and %v", size, x.Tokens, x.Grid, y.Tokens, y.Grid)
		}
	}
}

// TestMmprojQuantized: matrices of towers come as they are stored.
func TestMmprojQuantized(t *testing.T) {
	for _, family := range []string{"idefics3", "qwen2_5_vl"} {
		dir := modeltest.Sighted(t, family)
		got := openGGUF(t, modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{Vision: gguf.Q8_0}))
		in, ok := got.Weight(model.RoleProjectIn, 0)
		want := "Q8_0"
		if in.Shape[1]%32 != 0 {
			want = "F16"
		}
		if !ok || string(in.DType) != want {
			t.Errorf("%s: projector in %s", family, in.DType)
		}
		if patch, _ := got.Weight(model.RolePatch, 0); string(patch.DType) != "F16" {
			t.Errorf("%s: patches in %s", family, patch.DType)
		}
	}
}

// TestMmprojDigest: the mmproj file is part of what a model is, its name is not.
func TestMmprojDigest(t *testing.T) {
	dir := modeltest.Sighted(t, "idefics3")
	folder := modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{})
	path := filepath.Join(folder, "model.gguf")
	whole, file := openGGUF(t, folder), openGGUF(t, path)
	if whole.Digest() != file.Digest() || file.Config().Vision == nil {
		t.Errorf("digests %s and %s", whole.Digest(), file.Digest())
	}
	mmproj := filepath.Join(folder, "mmproj-model.gguf")
	renamed := filepath.Join(folder, "Model-MMPROJ-F32.gguf")
	if err := os.Rename(mmproj, renamed); err != nil {
		t.Fatal(err)
	}
	again := openGGUF(t, folder)
	if again.Digest() != whole.Digest() {
		t.Error("another name gives another digest")
	}
	if a, b := whole.WeightBytes(), size(t, path)+size(t, renamed); a != b {
		t.Errorf("%d bytes, want %d", a, b)
	}
	content, err := os.ReadFile(renamed)
	if err != nil {
		t.Fatal(err)
	}
	content[len(content)-40] ^= 1
	if err := os.WriteFile(renamed, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if changed := openGGUF(t, folder); changed.Digest() == whole.Digest() {
		t.Error("another mmproj file gives the same digest")
	}
	if err := os.Remove(renamed); err != nil {
		t.Fatal(err)
	}
	text := openGGUF(t, folder)
	if text.Digest() == whole.Digest() || text.Config().Vision != nil || text.Config().Family != "llama" || len(text.Warnings()) > 0 || text.Mmproj() != "" {
		t.Errorf("without the file: %+v, %q", text.Config(), text.Warnings())
	}
}

func size(t *testing.T, path string) int64 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Size()
}

// TestMmprojShrinks: a mmproj file that changes under a model is found.
func TestMmprojShrinks(t *testing.T) {
	folder := modeltest.VisionGGUF(t, modeltest.Sighted(t, "llava"), modeltest.MmprojForm{})
	m := openGGUF(t, folder)
	if err := os.Truncate(m.Mmproj(), size(t, m.Mmproj())-100); err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); !errors.Is(err, gguf.ErrChanged) {
		t.Errorf("err = %v", err)
	}
}

// TestMmprojQuantize: --quantize leaves the vision part as it is, and its cache knows both files.
func TestMmprojQuantize(t *testing.T) {
	folder := modeltest.VisionGGUF(t, modeltest.Sighted(t, "qwen2_vl"), modeltest.MmprojForm{})
	cache := model.Cache{Dir: t.TempDir()}
	open := func() *model.Model {
		m, err := model.Open(folder, model.Options{Quantize: "q8_0"})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.Close() })
		if err := m.Prepare(t.Context(), cache); err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := open()
	if q, _ := m.Weight(model.RoleVisionQ, 0); string(q.DType) != "F32" {
		t.Errorf("queries of the tower in %s", q.DType)
	}
	if q, _ := m.Weight(model.RoleQ, 0); string(q.DType) != "Q8_0" {
		t.Errorf("queries in %s", q.DType)
	}
	before := m.Digest()
	form := modeltest.MmprojForm{Vision: gguf.F16}
	modeltest.Mmproj(t, modeltest.Sighted(t, "qwen2_vl"), form).Write(t, filepath.Join(folder, "mmproj-model.gguf"))
	if again := open(); again.Digest() == before {
		t.Error("another mmproj file gives the same digest")
	}
}

// TestMmprojRefuses damages a mmproj file, or the text model, in one place each.
func TestMmprojRefuses(t *testing.T) {
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
		{"another type", "idefics3", set("general.type", "adapter"), model.ErrUnsupported, `general.type "adapter"`},
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
		{"more layers than a tower can have", "qwen2_5_vl", set("clip.vision.block_count", uint32(1<<20)), model.ErrConfig, "clip.vision.block_count is 1048576"},
		{"layers that are missing", "idefics3", set("clip.vision.block_count", uint32(4)), model.ErrWeights, "16 tensors are missing"},
		{"no patches", "gemma3_text", set("clip.vision.patch_size", uint32(0)), model.ErrConfig, "clip.vision.patch_size is 0"},
		{"patches of another size", "llava", set("clip.vision.patch_size", uint32(7)), model.ErrWeights, "patch_embedding.weight"},
		{"squares that do not fit", "gemma3_text", set("clip.vision.projector.scale_factor", uint32(4)), model.ErrConfig, "4 does not divide the 6 patches"},
		{"shuffled squares that do not fit", "idefics3", set("clip.vision.projector.scale_factor", uint32(4)), model.ErrConfig, "scale_factor: 4 does not divide"},
		{"many tiles", "idefics3", set("clip.vision.preproc_image_size", uint32(24*33)), model.ErrConfig, "more than 32 from edge to edge"},
		{"tiles without tokens", "idefics3", set("clip.vision.preproc_image_size", uint32(72)), model.ErrConfig, "lacks 5 special tokens that stand for images, the first is <row_1_col_3>"},
		{"tiles by default", "idefics3", without("clip.vision.preproc_image_size"), model.ErrConfig, "<row_1_col_3>"},
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
