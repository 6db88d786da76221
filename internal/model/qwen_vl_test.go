package model

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// Fields of published files that decide the arithmetic. Older ones have those of the text
// model at the top, newer ones in text_config.
const (
	qwen2VL2B = `{"architectures":["Qwen2VLForConditionalGeneration"],"attention_dropout":0.0,"image_token_id":151655,
		"hidden_act":"silu","hidden_size":1536,"intermediate_size":8960,"max_position_embeddings":32768,"max_window_layers":28,
		"model_type":"qwen2_vl","num_attention_heads":12,"num_hidden_layers":28,"num_key_value_heads":2,"rms_norm_eps":1e-06,
		"rope_theta":1000000.0,"sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_sliding_window":false,
		"vision_config":{"depth":32,"embed_dim":1280,"mlp_ratio":4,"num_heads":16,"in_chans":3,"hidden_size":1536,"patch_size":14,
		"spatial_merge_size":2,"spatial_patch_size":14,"temporal_patch_size":2},
		"rope_scaling":{"type":"mrope","mrope_section":[16,24,24]},"vocab_size":151936}`
	qwen25VL3B = `{"architectures":["Qwen2_5_VLForConditionalGeneration"],"hidden_act":"silu","hidden_size":2048,"image_token_id":151655,
		"intermediate_size":11008,"max_position_embeddings":128000,"max_window_layers":70,"model_type":"qwen2_5_vl",
		"num_attention_heads":16,"num_hidden_layers":36,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,
		"sliding_window":32768,"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_sliding_window":false,
		"vision_config":{"depth":32,"hidden_act":"silu","hidden_size":1280,"intermediate_size":3420,"num_heads":16,"in_chans":3,
		"out_hidden_size":2048,"patch_size":14,"spatial_merge_size":2,"spatial_patch_size":14,"window_size":112,
		"fullatt_block_indexes":[7,15,23,31],"tokens_per_second":2,"temporal_patch_size":2},
		"rope_scaling":{"type":"mrope","mrope_section":[16,24,24]},"vocab_size":151936}`
	qwen2VLNested = `{"architectures":["Qwen2VLForConditionalGeneration"],"dtype":"bfloat16","image_token_id":151655,"model_type":"qwen2_vl",
		"tie_word_embeddings":true,"text_config":{"hidden_size":1536,"intermediate_size":8960,"layer_types":["full_attention","full_attention"],
		"model_type":"qwen2_vl_text","num_attention_heads":12,"num_hidden_layers":2,"num_key_value_heads":2,"rms_norm_eps":1e-06,
		"rope_parameters":{"mrope_section":[16,24,24],"rope_theta":1000000.0,"rope_type":"default","type":"default"},"sliding_window":null,
		"use_sliding_window":false,"vocab_size":151936},"vision_config":{"hidden_size":1536,"model_type":"qwen2_vl"}}`
)

func TestQwenVL(t *testing.T) {
	rope := RoPE{Theta: 1e6, Type: "default", Attention: 1, Sections: [3]int{16, 24, 24}}
	projector := Projector{Kind: ProjectMerge, Factor: 2, Act: GELU, Bias: true, NormEps: 1e-6}
	older := Config{
		Family: "qwen2_vl", Architecture: "Qwen2VLForConditionalGeneration", Layers: 28, Hidden: 1536, Heads: 12, KVHeads: 2, HeadDim: 128,
		FFN: 8960, Vocab: 151936, MaxContext: 32768, NormEps: 1e-6, DType: "bfloat16", RoPE: rope, TiedHead: true, QKVBias: true,
		Vision: &Vision{
			Tower: "qwen2_vl", Hidden: 1280, FFN: 5120, Heads: 16, Layers: 32, PatchSize: 14, NormEps: 1e-6, Act: QuickGELU,
			Grid: true, Frames: 2, Projector: projector, ImageToken: 151655,
		},
	}
	newer := Config{
		Family: "qwen2_5_vl", Architecture: "Qwen2_5_VLForConditionalGeneration", Layers: 36, Hidden: 2048, Heads: 16, KVHeads: 2, HeadDim: 128,
		FFN: 11008, Vocab: 151936, MaxContext: 128000, NormEps: 1e-6, DType: "bfloat16", RoPE: rope, TiedHead: true, QKVBias: true,
		Vision: &Vision{
			Tower: "qwen2_5_vl", Hidden: 1280, FFN: 3420, Heads: 16, Layers: 32, PatchSize: 14, NormEps: 1e-6, Act: SiLU,
			Grid: true, Frames: 2, RMSNorm: true, Gated: true, Window: 8, Projector: projector, ImageToken: 151655,
			Windowed: layersWhere(32, func(i int) bool { return i%8 != 7 }),
		},
	}
	nested := older
	nested.Layers = 2
	for name, tt := range map[string]struct {
		config string
		want   Config
	}{"2B": {qwen2VL2B, older}, "2.5 3B": {qwen25VL3B, newer}, "nested": {qwen2VLNested, nested}} {
		if got, err := ParseConfig([]byte(tt.config)); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s: %v\ngot  %+v %+v\nwant %+v %+v", name, err, got, got.Vision, tt.want, tt.want.Vision)
		}
	}
}

func TestQwenVLTensors(t *testing.T) {
	want := map[string][]int{
		"visual.patch_embed.proj.weight": {1280, 3, 2, 14, 14}, "visual.blocks.31.attn.qkv.weight": {3840, 1280}, "visual.blocks.0.attn.qkv.bias": {3840},
		"visual.blocks.0.attn.proj.weight": {1280, 1280}, "visual.blocks.0.attn.proj.bias": {1280}, "visual.blocks.0.norm1.weight": {1280}, "visual.blocks.0.norm2.weight": {1280},
		"visual.merger.ln_q.weight": {1280}, "visual.merger.mlp.0.weight": {5120, 5120}, "visual.merger.mlp.0.bias": {5120}, "visual.merger.mlp.2.bias": {2048},
		"visual.merger.mlp.2.weight": {2048, 5120}, "model.embed_tokens.weight": {151936, 2048}, "model.layers.35.self_attn.k_proj.bias": {256},
	}
	gated := map[string][]int{
		"visual.blocks.31.mlp.gate_proj.weight": {3420, 1280}, "visual.blocks.0.mlp.gate_proj.bias": {3420}, "visual.blocks.0.mlp.up_proj.weight": {3420, 1280},
		"visual.blocks.0.mlp.up_proj.bias": {3420}, "visual.blocks.0.mlp.down_proj.weight": {1280, 3420}, "visual.blocks.0.mlp.down_proj.bias": {1280},
		"visual.blocks.0.norm1.bias": nil, "visual.blocks.0.norm2.bias": nil, "visual.merger.ln_q.bias": nil, "visual.blocks.0.mlp.fc1.weight": nil,
	}
	plain := map[string][]int{
		"visual.blocks.0.mlp.fc1.weight": {5120, 1280}, "visual.blocks.31.mlp.fc1.bias": {5120}, "visual.blocks.0.mlp.fc2.weight": {1280, 5120}, "visual.blocks.0.mlp.fc2.bias": {1280},
		"visual.blocks.0.norm1.bias": {1280}, "visual.blocks.0.norm2.bias": {1280}, "visual.merger.ln_q.bias": {1280}, "visual.blocks.0.mlp.gate_proj.weight": nil,
		"visual.merger.mlp.2.weight": {1536, 5120}, "visual.merger.mlp.2.bias": {1536}, "model.embed_tokens.weight": {151936, 1536}, "model.layers.27.self_attn.k_proj.bias": {256},
	}
	for config, more := range map[string]map[string][]int{qwen2VL2B: plain, qwen25VL3B: gated} {
		c, err := ParseConfig([]byte(config))
		if err != nil {
			t.Fatal(err)
		}
		got, vision := map[string][]int{}, 0
		for _, s := range c.Tensors() {
			got[s.Name] = s.Shape
			if s.Role.Vision() {
				vision++
			}
		}
		for name, shape := range want {
			if other, ok := more[name]; ok {
				shape = other
			}
			if config == qwen2VL2B && name == "model.layers.35.self_attn.k_proj.bias" {
				continue
			}
			if !slices.Equal(got[name], shape) {
				t.Errorf("%s: %s is %v, want %v", c.Family, name, got[name], shape)
			}
		}
		for name, shape := range more {
			if !slices.Equal(got[name], shape) {
				t.Errorf("%s: %s is %v, want %v", c.Family, name, got[name], shape)
			}
		}
		if n := map[string]int{"qwen2_vl": 1 + 32*12 + 6, "qwen2_5_vl": 1 + 32*12 + 5}[c.Family]; vision != n {
			t.Errorf("%s: %d tensors of the vision part, want %d", c.Family, vision, n)
		}
	}
}

func TestQwenVLFields(t *testing.T) {
	type object = map[string]any
	tower := func(more object) object {
		v := object{"hidden_size": 1280, "out_hidden_size": 2048}
		for k, value := range more {
			v[k] = value
		}
		return object{"vision_config": v}
	}
	for _, tt := range []struct {
		name, config string
		change       object
		kind         error // nil: ok holds
		want         string
		ok           func(c Config) bool
	}{
		{"defaults", qwen25VL3B, tower(nil), nil, "", func(c Config) bool {
			return c.Vision.Layers == 32 && c.Vision.FFN == 3420 && c.Vision.Window == 8 && c.Vision.Windowed[6] && !c.Vision.Windowed[7] && c.Vision.Frames == 2
		}},
		{"no windows", qwen25VL3B, tower(object{"depth": 2, "fullatt_block_indexes": []int{0, 1}}), nil, "", func(c Config) bool { return c.Vision.Windowed == nil }},
		{"windows everywhere", qwen25VL3B, tower(object{"depth": 2, "fullatt_block_indexes": []int{}}), nil, "", func(c Config) bool { return c.Vision.Windowed[0] && c.Vision.Windowed[1] }},
		{"an odd window", qwen25VL3B, tower(object{"window_size": 139}), nil, "", func(c Config) bool { return c.Vision.Window == 8 }},
		{"yarn", qwen2VL2B, object{"rope_scaling": object{"type": "yarn", "factor": 4, "original_max_position_embeddings": 32768, "mrope_section": []int{16, 24, 24}}}, nil, "",
			func(c Config) bool {
				return c.RoPE.Type == "yarn" && c.RoPE.Sections[2] == 24 && c.MaxContext == 131072
			}},
		{"theta and eps", qwen2VL2B, object{"rope_theta": nil, "rms_norm_eps": nil}, nil, "", func(c Config) bool { return c.RoPE.Theta == 1e6 && c.NormEps == 1e-5 }},
		{"layers with a window", qwen2VL2B, object{"use_sliding_window": true, "max_window_layers": nil, "num_hidden_layers": 81}, nil, "", func(c Config) bool {
			return !c.Windowed[79] && c.Windowed[80]
		}},
		{"no sections", qwen2VL2B, object{"rope_scaling": nil}, ErrConfig, "mrope_section: missing", nil},
		{"no sections in them", qwen2VL2B, object{"rope_scaling": object{"type": "default"}}, ErrConfig, "mrope_section: missing", nil},
		{"two sections", qwen2VL2B, object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{32, 32}}}, ErrConfig, "mrope_section", nil},
		{"sections of too many pairs", qwen2VL2B, object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{16, 24, 25}}}, ErrConfig, "sum of 64 pairs", nil},
		{"negative sections", qwen2VL2B, object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{-16, 40, 40}}}, ErrConfig, "mrope_section", nil},
		{"sections that overflow", qwen2VL2B, object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{1 << 62, 1 << 62, 64}}}, ErrConfig, "mrope_section", nil},
		{"words", qwen2VL2B, object{"rope_scaling": object{"type": "mrope", "mrope_section": "x"}}, ErrConfig, "three numbers", nil},
		{"mrope elsewhere", qwen25, object{"rope_scaling": object{"type": "mrope", "mrope_section": []int{16, 8, 8}}}, ErrUnsupported, "tokens of qwen2 have one position", nil},
		{"mrope without sections elsewhere", qwen25, object{"rope_scaling": object{"type": "mrope"}}, ErrUnsupported, `"mrope" is unknown`, nil},
		{"another width", qwen25VL3B, tower(object{"out_hidden_size": 1024}), ErrConfig, "out_hidden_size: 1024, the text model has 2048", nil},
		{"another width in the older one", qwen2VL2B, tower(object{"hidden_size": 1280}), ErrConfig, "hidden_size: 1280, the text model has 1536", nil},
		{"heads", qwen25VL3B, tower(object{"num_heads": 128}), ErrConfig, "num_heads: 128 heads of 1280", nil},
		{"a window within a square", qwen25VL3B, tower(object{"window_size": 27}), ErrConfig, "window_size: 27 pixels", nil},
		{"activation", qwen25VL3B, tower(object{"hidden_act": "gelu"}), ErrUnsupported, `hidden_act: "gelu" is unknown`, nil},
		{"channels", qwen25VL3B, tower(object{"in_chans": 1}), ErrUnsupported, "in_chans: 1", nil},
		{"other tower", qwen25VL3B, tower(object{"model_type": "siglip_vision_model"}), ErrUnsupported, `"siglip_vision_model" is unknown`, nil},
		{"other text model", qwen2VLNested, object{"text_config": object{"model_type": "llama"}}, ErrUnsupported, `text_config: unsupported model: model_type: "llama"`, nil},
		{"ratio", qwen2VL2B, object{"vision_config": object{"hidden_size": 1536, "mlp_ratio": 1e300}}, ErrConfig, "mlp_ratio", nil},
		{"image token", qwen2VL2B, object{"image_token_id": 151936}, ErrConfig, "image_token_id: 151936", nil},
		{"large squares", qwen2VL2B, object{"vision_config": object{"hidden_size": 1536, "patch_size": 1 << 20, "spatial_merge_size": 1 << 20}}, ErrConfig, "patch_size: squares", nil},
	} {
		c, err := ParseConfig(variant(t, tt.config, tt.change))
		switch {
		case tt.kind == nil && (err != nil || !tt.ok(c)):
			t.Errorf("%s: %+v %+v, %v", tt.name, c, c.Vision, err)
		case tt.kind != nil && (!errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want)):
			t.Errorf("%s: %v, want %v with %q", tt.name, err, tt.kind, tt.want)
		}
	}
}

// TestQwenVLNames: names of older and newer files, and the parts of fused tensors.
func TestQwenVLNames(t *testing.T) {
	for _, family := range []string{"qwen2_vl", "qwen2_5_vl"} {
		spec := visionSpecs()[family]
		for _, pairs := range [][]string{nil, {"visual.", "model.visual.", "model.layers", "model.language_model.layers", "model.embed", "model.language_model.embed", "model.norm", "model.language_model.norm"}} {
			m, err := Open(rename(t, spec, strings.NewReplacer(pairs...).Replace), Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			if len(m.Warnings()) > 0 || m.Config().Vision == nil {
				t.Errorf("%s: warnings %q", family, m.Warnings())
			}
			all, err := m.Tensor(strings.NewReplacer(pairs...).Replace("visual.blocks.1.attn.qkv.bias"))
			if err != nil {
				t.Fatal(err)
			}
			size := len(all.Data) / 3
			for i, role := range []Role{RoleVisionQBias, RoleVisionKBias, RoleVisionVBias} {
				if part, ok := m.Weight(role, 1); !ok || !slices.Equal(part.Shape, []int{12}) || !slices.Equal(part.Data, all.Data[i*size:(i+1)*size]) {
					t.Errorf("%s: part %d is %v, %v", family, i, part.Shape, ok)
				}
			}
			if k, ok := m.Weight(RoleVisionK, 1); !ok || !slices.Equal(k.Shape, []int{12, 12}) {
				t.Errorf("%s: keys %v", family, k.Shape)
			}
		}
	}
}
