package model_test

import (
	"errors"
	"fmt"
	"image"
	"image/color"
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
	"github.com/dynctl/dynctl/internal/patience"
)

// TestMmprojIsTheFolder opens models that read images both ways and compares everything: shape,
// each tensor by its role, the vocabulary, and how images are prepared.
func TestMmprojIsTheFolder(t *testing.T) {
	patience.OneGoroutine(t)
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

// processor is what prepares pictures for a model.
func processor(t *testing.T, m *model.Model) *prepare.Processor {
	t.Helper()
	files := prepare.Files{}
	for _, f := range m.Files() {
		switch f.Name {
		case model.PreprocessorName:
			files.Preprocessor = f.Data
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

// samePictures prepares pictures of several sizes by the files of both.
func samePictures(t *testing.T, got, want *model.Model) {
	t.Helper()
	a, b := processor(t, got), processor(t, want)
	if a.Placeholder() != b.Placeholder() || a.DecodeOptions() != b.DecodeOptions() {
		t.Errorf("placeholder %q, want %q", a.Placeholder(), b.Placeholder())
	}
	x, err1 := a.Plan(9000, 7000)
	y, err2 := b.Plan(9000, 7000)
	if x != y || fmt.Sprint(err1) != fmt.Sprint(err2) { // the errors tell how many tokens are too many
		t.Errorf("a large picture has %d tokens, want %d: %v, want %v", x.Tokens, y.Tokens, err1, err2)
	}
	for _, size := range [][2]int{{9, 8}, {90, 60}, {40, 120}, {700, 33}} {
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

// TestMmprojKeys: what files may say beside what the converters of small checkpoints write.
func TestMmprojKeys(t *testing.T) {
	patience.OneGoroutine(t)
	pixels := func(w, h, tokens int) func(t *testing.T, m *model.Model) bool {
		return func(t *testing.T, m *model.Model) bool {
			plan, err := processor(t, m).Plan(w, h)
			return err == nil && plan.Tokens == tokens
		}
	}
	vision := func(ok func(v model.Vision) bool) func(t *testing.T, m *model.Model) bool {
		return func(_ *testing.T, m *model.Model) bool { return ok(*m.Config().Vision) }
	}
	for _, tt := range []struct {
		name, family string
		key          string
		value        any // nil takes the key out
		ok           func(t *testing.T, m *model.Model) bool
	}{
		{"eps", "idefics3", "clip.vision.attention.layer_norm_epsilon", float32(1e-5), vision(func(v model.Vision) bool { return v.NormEps == 1e-5 })},
		{"eps", "gemma3_text", "clip.vision.attention.layer_norm_epsilon", float32(1e-5), vision(func(v model.Vision) bool { return v.NormEps == 1e-5 && v.Projector.NormEps == 1e-5 })},
		{"eps", "llava", "clip.vision.attention.layer_norm_epsilon", float32(1e-6), vision(func(v model.Vision) bool { return v.NormEps == 1e-6 })},
		{"CLIP with GELU", "llava", "clip.use_gelu", true, vision(func(v model.Vision) bool { return v.Act == model.GELU && v.Projector.Act == model.GELU })},
		{"CLIP", "llava", "clip.use_gelu", nil, vision(func(v model.Vision) bool { return v.Act == model.QuickGELU })},
		{"Qwen2 with GELU", "qwen2_vl", "clip.use_gelu", true, vision(func(v model.Vision) bool { return v.Act == model.GELU })},
		{"Qwen2", "qwen2_vl", "clip.use_gelu", false, vision(func(v model.Vision) bool { return v.Act == model.QuickGELU })},
		{"a mean of 0", "llava", "clip.vision.image_mean", []float32{0, 1, 1}, vision(func(v model.Vision) bool { return v.Layers > 0 })},
		{"an earlier layer", "llava", "clip.vision.feature_layer", []int32{1}, vision(func(v model.Vision) bool { return v.Layers == 1 })},
		{"window", "qwen2_5_vl", "clip.vision.window_size", nil, vision(func(v model.Vision) bool { return v.Window == 112/4 })},
		{"all layers whole", "qwen2_5_vl", "clip.vision.n_wa_pattern", uint32(0), vision(func(v model.Vision) bool { return !slices.Contains(v.Windowed, true) })},
		{"every layer whole", "qwen2_5_vl", "clip.vision.n_wa_pattern", uint32(1), vision(func(v model.Vision) bool { return !slices.Contains(v.Windowed, true) })},
		{"fewest pixels", "qwen2_vl", "clip.vision.image_min_pixels", uint32(10 * 64), pixels(24, 16, 12)},
		{"most pixels", "qwen2_5_vl", "clip.vision.image_max_pixels", uint32(50 * 64), pixels(8000, 8000, 49)},
		{"pinpoints", "llava_next", "clip.vision.image_grid_pinpoints", []int32{140, 140}, pixels(70, 70, 25+10*10+10)},
		{"four tiles along a side", "smolvlm", "clip.vision.preproc_image_size", nil, pixels(96, 96, (16+1)*4)},
		{"size of tiles", "smolvlm", "clip.vision.preproc_image_size", uint32(24), pixels(70, 30, 4)},
	} {
		m := openGGUF(t, modeltest.VisionGGUF(t, modeltest.Sighted(t, tt.family), modeltest.MmprojForm{Change: func(keys map[string]any) {
			if keys[tt.key] = tt.value; tt.value == nil {
				delete(keys, tt.key)
			}
		}}))
		if !tt.ok(t, m) {
			t.Errorf("%s of %s: %+v", tt.name, tt.family, m.Config().Vision)
		}
	}
}

// TestMmprojBesideOthers: links are followed, but the names that count are those in the folder that
// was named; another model's file is not used, which is told.
func TestMmprojBesideOthers(t *testing.T) {
	folder := modeltest.VisionGGUF(t, modeltest.Sighted(t, "llava"), modeltest.MmprojForm{})
	link := filepath.Join(t.TempDir(), "linked.gguf")
	if err := errors.Join(os.Symlink(filepath.Join(folder, "model.gguf"), link), os.Rename(filepath.Join(folder, "mmproj-model.gguf"), filepath.Join(folder, "mmproj-other.gguf"))); err != nil {
		t.Fatal(err)
	}
	if m := openGGUF(t, link); m.Config().Vision != nil || len(m.Warnings()) > 0 {
		t.Errorf("a link finds %s, warnings %q", m.Mmproj(), m.Warnings())
	}
	if m := openGGUF(t, filepath.Join(folder, "model.gguf")); m.Config().Vision == nil {
		t.Error("the only model does not find the file")
	}
	if err := os.WriteFile(filepath.Join(folder, "third.gguf"), []byte("GGUF"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := openGGUF(t, filepath.Join(folder, "model.gguf"))
	if w := m.Warnings(); m.Config().Vision != nil || len(w) != 1 || !strings.Contains(w[0], "mmproj-other.gguf beside it is not used") {
		t.Errorf("vision %v, warnings %q", m.Config().Vision, w)
	}
}

// TestMmprojQuantized: matrices of towers come as they are stored.
func TestMmprojQuantized(t *testing.T) {
	for _, family := range []string{"idefics3", "qwen2_5_vl"} {
		dir := modeltest.Sighted(t, family)
		got := openGGUF(t, modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{Vision: gguf.Q8_0}))
		in, ok := got.Weight(model.RoleProjectIn, 0)
		if !ok || string(in.DType) != "Q8_0" {
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
