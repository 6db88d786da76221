package model

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Small models that read images, one for each projector.
func visionSpecs() map[string]Synthetic {
	tower := map[string]any{"hidden_size": 12, "intermediate_size": 20, "num_attention_heads": 3, "num_hidden_layers": 3, "patch_size": 4, "image_size": 16}
	sections := map[string]any{"type": "mrope", "mrope_section": []int{1, 1, 0}}
	patches := func(v map[string]any) map[string]any {
		maps.Copy(v, map[string]any{"num_heads": 3, "depth": 3, "patch_size": 4, "window_size": 16})
		return v
	}
	return map[string]Synthetic{
		"idefics3":   {Family: "idefics3", Hidden: 16, Vocab: 300, Images: map[string]any{"vision_config": tower, "image_token_id": 7}},
		"smolvlm":    {Family: "smolvlm", Hidden: 16, Vocab: 300, Images: map[string]any{"vision_config": tower, "image_token_id": 7, "scale_factor": 4}},
		"llava":      {Family: "llava", Hidden: 16, Vocab: 300, Images: map[string]any{"vision_config": tower, "image_token_index": 7}},
		"llava_next": {Family: "llava_next", Hidden: 16, Vocab: 300, Images: map[string]any{"vision_config": tower, "image_token_index": 7}},
		"qwen2_vl":   {Family: "qwen2_vl", Hidden: 16, Vocab: 300, RopeScaling: sections, Images: map[string]any{"vision_config": patches(map[string]any{"embed_dim": 12, "hidden_size": 16}), "image_token_id": 7}},
		"qwen2_5_vl": {Family: "qwen2_5_vl", Hidden: 16, Vocab: 300, RopeScaling: sections, Images: map[string]any{"vision_config": patches(map[string]any{"hidden_size": 12, "intermediate_size": 20, "out_hidden_size": 16}), "image_token_id": 7}},
		"gemma3_text": {Family: "gemma3_text", Hidden: 16, Vocab: 300, Tied: true,
			Images: map[string]any{"vision_config": tower, "image_token_index": 7, "mm_tokens_per_image": 4}},
	}
}

func TestVisionCheckpoints(t *testing.T) {
	for name, spec := range visionSpecs() {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := spec.Write(dir); err != nil {
				t.Fatal(err)
			}
			m, err := Open(dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if len(m.Warnings()) > 0 {
				t.Errorf("warnings: %q", m.Warnings())
			}
			v := m.Config().Vision
			if v == nil || v.Hidden != 12 || v.ImageToken != 7 {
				t.Fatalf("vision %+v", v)
			}
			rows := map[string]int{"idefics3": 4, "smolvlm": 1, "llava": 16, "llava_next": 16, "gemma3_text": 4}
			if got := v.Tokens(); !v.Grid && got != rows[name] {
				t.Errorf("a view makes %d rows, want %d", got, rows[name])
			}
			patch, ok := m.Weight(RolePatch, 0)
			shape := []int{12, 3, 4, 4}
			if v.Grid {
				shape = []int{12, 3, 2, 4, 4}
			}
			if !ok || !slices.Equal(patch.Shape, shape) {
				t.Errorf("patches %v", patch.Shape)
			}
			if _, ok := m.Weight(RoleVisionDownBias, v.Layers-1); !ok {
				t.Error("the last layer of the tower is not complete")
			}
			in, _ := m.Weight(RoleProjectIn, 0)
			want := map[string][]int{"idefics3": {16, 48}, "smolvlm": {16, 192}, "llava": {16, 12}, "llava_next": {16, 12}, "gemma3_text": {12, 16}, "qwen2_vl": {48, 48}, "qwen2_5_vl": {48, 48}}
			if !slices.Equal(in.Shape, want[name]) {
				t.Errorf("projector %v, want %v", in.Shape, want[name])
			}
			if !reflect.DeepEqual(m.Tensors(), m.Config().Tensors()) {
				t.Error("names differ from those of a new checkpoint")
			}
		})
	}
}

// TestVisionTexts: the text model is of the family that text_config names, with its
// defaults and its tensors.
func TestVisionTexts(t *testing.T) {
	for _, tt := range []struct {
		text string
		ok   func(c Config) bool
	}{
		{"llama", func(c Config) bool {
			return !c.QKVBias && !c.QKNorm && c.Window == 0 && c.KVHeads == 4 && c.FFN == 11008
		}},
		{"mistral", func(c Config) bool { return c.Window == 4096 && c.KVHeads == 4 && c.FFN == 14336 }},
		{"qwen2", func(c Config) bool { return c.QKVBias && !c.OutBias && !c.QKNorm && c.HeadDim == 4 && c.FFN == 22016 }},
		{"qwen3", func(c Config) bool { return c.QKNorm && !c.QKVBias && c.HeadDim == 128 && c.FFN == 22016 }},
	} {
		for _, name := range []string{"idefics3", "smolvlm", "llava", "llava_next"} {
			spec := visionSpecs()[name]
			spec.Text = tt.text
			dir := t.TempDir()
			if err := spec.Write(dir); err != nil {
				t.Errorf("%s with %s: %v", name, tt.text, err)
				continue
			}
			m, err := Open(dir, Options{})
			if err != nil {
				t.Errorf("%s with %s: %v", name, tt.text, err)
				continue
			}
			for role, want := range map[Role]bool{RoleQBias: tt.text == "qwen2", RoleQNorm: tt.text == "qwen3", RoleVisionQ: true} {
				if _, ok := m.Weight(role, 0); ok != want {
					t.Errorf("%s with %s: role %d is there: %v", name, tt.text, role, ok)
				}
			}
			if len(m.Warnings()) > 0 || m.Config().Family != spec.Family {
				t.Errorf("%s with %s: family %s, warnings %q", name, tt.text, m.Config().Family, m.Warnings())
			}
			_ = m.Close()
		}
		text := map[string]any{"model_type": tt.text, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 49280}
		c, err := ParseConfig(variant(t, smolvlm256, map[string]any{"text_config": text}))
		if err != nil || !tt.ok(c) || c.Layers != 32 {
			t.Errorf("%s: %+v, %v", tt.text, c, err)
		}
	}
}

// rename writes a copy of a checkpoint of one file with other names for its tensors; those
// without a name are left out.
func rename(t *testing.T, spec Synthetic, other func(name string) string) (dir string) {
	t.Helper()
	from, dir := t.TempDir(), t.TempDir()
	if err := spec.Write(from); err != nil {
		t.Fatal(err)
	}
	m, err := Open(from, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	var layout safetensors.Layout
	var data []byte
	for _, s := range m.Tensors() {
		name := other(s.Name)
		if name == "" {
			continue
		}
		tensor, _ := m.Tensor(s.Name)
		if _, err := layout.Add(name, tensor.DType, tensor.Shape...); err != nil {
			t.Fatal(err)
		}
		data = append(data, tensor.Data...)
	}
	for _, f := range m.Files() {
		if err := os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, safetensors.SingleName), append(layout.Header(nil), data...), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestVisionNames: the names of older and newer files.
func TestVisionNames(t *testing.T) {
	for _, tt := range []struct {
		family         string
		pairs          []string
		patch, project string
	}{
		{"llava", nil, "vision_tower.vision_model.embeddings.patch_embedding.weight", "multi_modal_projector.linear_1.weight"},
		{
			"llava", []string{"language_model.model.", "model.language_model.", "language_model.lm_head.", "lm_head.", "vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector."},
			"model.vision_tower.vision_model.embeddings.patch_embedding.weight", "model.multi_modal_projector.linear_1.weight",
		},
		{
			"llava_next", []string{"vision_tower.", "model.vision_tower.", "multi_modal_projector.", "model.multi_modal_projector.", "image_newline", "model.image_newline"},
			"model.vision_tower.vision_model.embeddings.patch_embedding.weight", "model.multi_modal_projector.linear_1.weight",
		},
		{
			"llava", []string{"vision_tower.vision_model.", "model.vision_tower."},
			"model.vision_tower.embeddings.patch_embedding.weight", "multi_modal_projector.linear_1.weight",
		},
		{"idefics3", nil, "model.vision_model.embeddings.patch_embedding.weight", "model.connector.modality_projection.proj.weight"},
		{
			"smolvlm", []string{"model.vision_model.", "vision_model.", "model.connector.", "connector."},
			"vision_model.embeddings.patch_embedding.weight", "connector.modality_projection.proj.weight",
		},
		{
			"gemma3_text", []string{"vision_model.", "vision_model.", "model.", "language_model.model."},
			"vision_tower.vision_model.embeddings.patch_embedding.weight", "multi_modal_projector.mm_input_projection_weight",
		},
	} {
		names := strings.NewReplacer(tt.pairs...)
		m, err := Open(rename(t, visionSpecs()[tt.family], names.Replace), Options{})
		if err != nil {
			t.Errorf("%s with %q: %v", tt.family, tt.pairs, err)
			continue
		}
		patch, _ := m.Weight(RolePatch, 0)
		project, _ := m.Weight(RoleProjectIn, 0)
		if patch.Name != tt.patch || project.Name != tt.project || len(m.Warnings()) > 0 {
			t.Errorf("%s with %q: %s, %s, warnings %q", tt.family, tt.pairs, patch.Name, project.Name, m.Warnings())
		}
		_ = m.Close()
	}
}

func TestVisionMissing(t *testing.T) {
	spec := visionSpecs()["llava"]
	without := func(part string) string {
		return rename(t, spec, func(name string) string {
			if strings.Contains(name, part) {
				return ""
			}
			return name
		})
	}
	for part, want := range map[string]string{
		"embeddings.patch_embedding": `vision_tower.vision_model.embeddings.patch_embedding.weight`,
		"layers.1.mlp.fc2.bias":      `vision_tower.vision_model.encoder.layers.1.mlp.fc2.bias`,
		"linear_2":                   `multi_modal_projector.linear_2.weight`,
		"multi_modal_projector":      `4 tensors are missing: multi_modal_projector.linear_1.weight`,
		"vision_tower":               `vision_tower.vision_model.embeddings.patch_embedding.weight`,
	} {
		if _, err := Open(without(part), Options{}); !errors.Is(err, ErrWeights) || !strings.Contains(err.Error(), want) {
			t.Errorf("without %s: %v, want %q", part, err, want)
		}
	}
	m, err := Open(rename(t, spec, func(name string) string {
		if strings.HasPrefix(name, "vision_tower") || strings.HasPrefix(name, "multi_modal") {
			return ""
		}
		return name
	}), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if w := m.Warnings(); m.Config().Vision != nil || len(w) != 1 || !strings.Contains(w[0], "reads text only") {
		t.Errorf("vision %v, warnings %q", m.Config().Vision, w)
	}
}

// TestVisionUnused: layers behind the one that the projector reads, and others that
// published files contain, are no oddities.
func TestVisionUnused(t *testing.T) {
	spec := visionSpecs()["llava"]
	spec.Images["vision_feature_layer"] = -1
	dir := rename(t, spec, func(name string) string { return name })
	raw, err := os.ReadFile(filepath.Join(dir, ConfigName))
	if err != nil {
		t.Fatal(err)
	}
	raw = []byte(strings.Replace(string(raw), `"vision_feature_layer": -1`, `"vision_feature_layer": 1`, 1))
	if err := os.WriteFile(filepath.Join(dir, ConfigName), raw, 0o644); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if m.Config().Vision.Layers != 1 || len(m.Warnings()) > 0 {
		t.Errorf("%d layers, warnings %q", m.Config().Vision.Layers, m.Warnings())
	}
}

// TestVisionQuantized: --quantize leaves the vision part as it is stored.
func TestVisionQuantized(t *testing.T) {
	spec := visionSpecs()["idefics3"]
	spec.Hidden, spec.FFN = 64, 64
	dir := t.TempDir()
	if err := spec.Write(dir); err != nil {
		t.Fatal(err)
	}
	m, err := Open(dir, Options{Quantize: "q8_0"})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Prepare(t.Context(), Cache{Dir: t.TempDir()}); err != nil {
		t.Fatal(err)
	}
	for role, want := range map[Role]safetensors.DType{RoleVisionQ: safetensors.F32, RoleProjectIn: safetensors.F32, RoleQ: safetensors.Q8_0} {
		if got, _ := m.Weight(role, 0); got.DType != want {
			t.Errorf("role %d is %s, want %s", role, got.DType, want)
		}
	}
}

func TestVisionFields(t *testing.T) {
	type object = map[string]any
	tests := []struct {
		name, config string
		change       object
		ok           func(v Vision) bool
	}{
		{"tower left out", llava15, object{"vision_config": nil, "vision_feature_layer": nil, "image_token_index": nil}, func(v Vision) bool {
			return v.Hidden == 1024 && v.Side() == 24 && v.Layers == 23 && v.ImageToken == 32000 && v.Tokens() == 576
		}},
		{"fields of CLIP left out", llava15, object{"vision_config": object{"model_type": "clip_vision_model"}}, func(v Vision) bool {
			return v.Hidden == 768 && v.FFN == 3072 && v.Heads == 12 && v.Layers == 11 && v.ImageSize == 224 && v.PatchSize == 32 && v.NormEps == 1e-5 && v.Act == QuickGELU
		}},
		{"fields of SigLIP left out", llava15, object{"vision_config": object{"model_type": "siglip_vision_model"}, "vision_feature_select_strategy": "full"}, func(v Vision) bool {
			return v.Hidden == 768 && v.PatchSize == 16 && v.NormEps == 1e-6 && v.Act == GELUTanh && !v.ClassToken && v.PatchBias && !v.PreNorm && v.Tokens() == 196
		}},
		{"fields of Idefics 3 left out", smolvlm256, object{"vision_config": object{"image_size": 256}, "scale_factor": nil}, func(v Vision) bool {
			return v.Hidden == 1152 && v.Heads == 16 && v.PatchSize == 32 && v.Projector.Factor == 2 && v.Tokens() == 16
		}},
		{"class token kept", llava15, object{"vision_feature_select_strategy": "full"}, func(v Vision) bool { return v.KeepClass && v.Tokens() == 577 }},
		{"first layer", llava15, object{"vision_feature_layer": 0}, func(v Vision) bool { return v.Layers == 0 }},
		{"last layer", llava15, object{"vision_feature_layer": -1}, func(v Vision) bool { return v.Layers == 24 }},
		{"no biases", llava15, object{"multimodal_projector_bias": false, "projector_hidden_act": "gelu_new"}, func(v Vision) bool {
			return !v.Projector.Bias && v.Projector.Act == GELUTanh
		}},
		{"name of transformers 5", llava15, object{"image_token_id": 5}, func(v Vision) bool { return v.ImageToken == 5 }},
		{"fewer rows", gemma3x4, object{"mm_tokens_per_image": 64}, func(v Vision) bool { return v.Projector.Factor == 8 && v.Tokens() == 64 }},
	}
	for _, tt := range tests {
		c, err := ParseConfig(variant(t, tt.config, tt.change))
		if err != nil || c.Vision == nil || !tt.ok(*c.Vision) {
			t.Errorf("%s: %+v, %v", tt.name, c.Vision, err)
		}
	}
	if c, err := ParseConfig(variant(t, gemma3x4, object{"vision_config": nil})); err != nil || c.Vision != nil {
		t.Errorf("Gemma 3 without vision_config: %+v, %v", c.Vision, err)
	}
}

func TestVisionFieldsRefuses(t *testing.T) {
	type object = map[string]any
	tower := func(more object) object {
		config := object{"model_type": "clip_vision_model"}
		maps.Copy(config, more)
		return object{"vision_config": config}
	}
	tests := []struct {
		name, config string
		change       object
		kind         error
		want         string
	}{
		{"other tower", llava15, tower(object{"model_type": "pixtral"}), ErrUnsupported, `vision_config: unsupported model: model_type: "pixtral" is unknown; known are clip_vision_model, siglip_vision_model`},
		{"other text model", llava15, object{"text_config": object{"model_type": "phi3"}}, ErrUnsupported,
			`text_config: unsupported model: model_type: "phi3" is unknown; known are llama, mistral, qwen2, qwen3`},
		{"fields of the text model", smolvlm256, object{"text_config": object{"vocab_size": 49280, "model_type": "qwen3", "layer_types": []string{"linear"}}}, ErrUnsupported, `layer_types: "linear"`},
		{"heads", llava15, tower(object{"num_attention_heads": 7}), ErrConfig, "7 does not divide hidden_size 768"},
		{"no patches", llava15, tower(object{"patch_size": 500}), ErrConfig, "patch_size: an image of 224 pixels has 0 patches"},
		{"too many patches", llava15, tower(object{"patch_size": 1}), ErrConfig, "has 224 patches of 1 along a side, want 1 to 64"},
		{"size", llava15, tower(object{"intermediate_size": 0}), ErrConfig, "intermediate_size: 0"},
		{"channels", llava15, tower(object{"num_channels": 4}), ErrUnsupported, "num_channels: 4"},
		{"activation", llava15, tower(object{"hidden_act": "relu"}), ErrUnsupported, `hidden_act: "relu" is unknown; known are gelu, gelu_pytorch_tanh, quick_gelu`},
		{"eps", llava15, tower(object{"layer_norm_eps": 0}), ErrConfig, "layer_norm_eps: 0 is not above 0"},
		{"no such layer", llava15, object{"vision_feature_layer": -26}, ErrConfig, "vision_feature_layer: the tower has 24 layers"},
		{"no such layer either", llava15, object{"vision_feature_layer": 25}, ErrConfig, "vision_feature_layer: the tower has 24 layers"},
		{"several layers", llava15, object{"vision_feature_layer": []int{-2, -5}}, ErrConfig, "vision_feature_layer: want one layer"},
		{"class token among tiles", llavaNext16, object{"vision_feature_select_strategy": "full"}, ErrUnsupported, "no place in the lines"},
		{"no row for new lines", llavaNext16, object{"use_image_newline_parameter": false}, ErrUnsupported, "use_image_newline_parameter: false"},
		{"strategy", llava15, object{"vision_feature_select_strategy": "cls"}, ErrUnsupported, `"cls" is unknown`},
		{"a class token that is none", llava15, object{"vision_config": object{"model_type": "siglip_vision_model"}}, ErrUnsupported, "without class token"},
		{"projector", llava15, object{"projector_hidden_act": "silu"}, ErrUnsupported, `projector_hidden_act: "silu"`},
		{"image token", llava15, object{"image_token_index": 32064}, ErrConfig, "image_token_index: 32064 is not below vocab_size 32064"},
		{"squares do not fit", smolvlm256, object{"scale_factor": 5}, ErrConfig, "scale_factor: 5 does not divide the 32 patches of a side"},
		{"norms of queries", smolvlm256, object{"text_config": object{"vocab_size": 49280, "qk_layer_norms": true}}, ErrUnsupported, "qk_layer_norms"},
		{"not a square", gemma3x4, object{"mm_tokens_per_image": 128}, ErrUnsupported, "128 are not squares of the 64 × 64 patches"},
		{"nearly a square", gemma3x4, object{"mm_tokens_per_image": 17}, ErrUnsupported, "17 are not squares"},
		{"does not divide", gemma3x4, object{"mm_tokens_per_image": 9}, ErrUnsupported, "9 are not squares"},
		{"not an object", gemma3x4, object{"vision_config": 1}, ErrConfig, "want an object"},
	}
	for _, tt := range tests {
		_, err := ParseConfig(variant(t, tt.config, tt.change))
		if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %v with %q", tt.name, err, tt.kind, tt.want)
		}
	}
}
