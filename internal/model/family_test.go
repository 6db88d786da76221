package model

import (
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// The configurations below hold the fields of published files that decide the
// arithmetic.
const (
	mistral01 = `{"architectures":["MistralForCausalLM"],"model_type":"mistral","hidden_act":"silu","hidden_size":4096,
		"intermediate_size":14336,"max_position_embeddings":32768,"num_attention_heads":32,"num_hidden_layers":32,
		"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":10000.0,"sliding_window":4096,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32000}`
	mixtral8x7 = `{"architectures":["MixtralForCausalLM"],"model_type":"mixtral","hidden_act":"silu","hidden_size":4096,
		"intermediate_size":14336,"max_position_embeddings":32768,"num_attention_heads":32,"num_experts_per_tok":2,
		"num_hidden_layers":32,"num_key_value_heads":8,"num_local_experts":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,
		"sliding_window":null,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32000}`
	qwen25 = `{"architectures":["Qwen2ForCausalLM"],"model_type":"qwen2","hidden_act":"silu","hidden_size":896,
		"intermediate_size":4864,"max_position_embeddings":32768,"max_window_layers":21,"num_attention_heads":14,
		"num_hidden_layers":24,"num_key_value_heads":2,"rms_norm_eps":1e-06,"rope_theta":1000000.0,"sliding_window":32768,
		"tie_word_embeddings":true,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":151936}`
	qwen3x30 = `{"architectures":["Qwen3MoeForCausalLM"],"model_type":"qwen3_moe","attention_bias":false,
		"decoder_sparse_step":1,"head_dim":128,"hidden_act":"silu","hidden_size":2048,"intermediate_size":6144,
		"max_position_embeddings":40960,"max_window_layers":48,"mlp_only_layers":[],"moe_intermediate_size":768,
		"norm_topk_prob":true,"num_attention_heads":32,"num_experts":128,"num_experts_per_tok":8,"num_hidden_layers":48,
		"num_key_value_heads":4,"rms_norm_eps":1e-06,"rope_scaling":null,"rope_theta":1000000.0,"sliding_window":null,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","use_sliding_window":false,"vocab_size":151936}`
	gemma2x2 = `{"architectures":["Gemma2ForCausalLM"],"model_type":"gemma2","attention_bias":false,
		"attn_logit_softcapping":50.0,"cache_implementation":"hybrid","final_logit_softcapping":30.0,"head_dim":256,
		"hidden_act":"gelu_pytorch_tanh","hidden_activation":"gelu_pytorch_tanh","hidden_size":2304,
		"intermediate_size":9216,"max_position_embeddings":8192,"num_attention_heads":8,"num_hidden_layers":26,
		"num_key_value_heads":4,"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_theta":10000.0,
		"sliding_window":4096,"torch_dtype":"float32","vocab_size":256000}`
	gemma3x1 = `{"architectures":["Gemma3ForCausalLM"],"model_type":"gemma3_text","attention_bias":false,
		"attn_logit_softcapping":null,"final_logit_softcapping":null,"head_dim":256,
		"hidden_activation":"gelu_pytorch_tanh","hidden_size":1152,"intermediate_size":6912,
		"max_position_embeddings":32768,"num_attention_heads":4,"num_hidden_layers":26,"num_key_value_heads":1,
		"query_pre_attn_scalar":256,"rms_norm_eps":1e-06,"rope_local_base_freq":10000,"rope_scaling":null,
		"rope_theta":1000000,"sliding_window":512,"sliding_window_pattern":6,"torch_dtype":"bfloat16","vocab_size":262144}`
	// Everything that its text model has in common with the class is left out.
	gemma3x4 = `{"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3","boi_token_index":255999,
		"text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text","num_hidden_layers":34,
		"rope_scaling":{"factor":8.0,"rope_type":"linear"},"sliding_window":1024},"torch_dtype":"bfloat16",
		"vision_config":{"hidden_size":1152,"image_size":896,"intermediate_size":4304,"model_type":"siglip_vision_model",
		"num_attention_heads":16,"num_hidden_layers":27,"patch_size":14,"vision_use_head":false}}`
	smolvlm256 = `{"architectures":["Idefics3ForConditionalGeneration"],"model_type":"idefics3","image_token_id":49190,
		"scale_factor":4,"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":49280,
		"text_config":{"architectures":["VLlama3ForCausalLM"],"head_dim":64,"hidden_size":576,"intermediate_size":1536,
		"max_position_embeddings":8192,"model_type":"llama","num_attention_heads":9,"num_hidden_layers":30,
		"num_key_value_heads":3,"qk_layer_norms":false,"rms_norm_eps":1e-05,"rope_theta":100000,"vocab_size":49280},
		"vision_config":{"hidden_size":768,"image_size":512,"max_image_size":{"longest_edge":512},"model_type":"idefics3",
		"num_attention_heads":12,"patch_size":16,"tie_word_embeddings":false,"use_base_siglip":false}}`
	// Most of what its text model has in common with the class is left out.
	llava15 = `{"architectures":["LlavaForConditionalGeneration"],"ignore_index":-100,"image_token_index":32000,
		"model_type":"llava","pad_token_id":32001,"projector_hidden_act":"gelu","text_config":{"_name_or_path":"x",
		"architectures":["LlamaForCausalLM"],"max_position_embeddings":4096,"model_type":"llama","rms_norm_eps":1e-05,
		"torch_dtype":"float16","vocab_size":32064},"tie_word_embeddings":false,"torch_dtype":"float16",
		"vision_config":{"hidden_size":1024,"image_size":336,"intermediate_size":4096,"model_type":"clip_vision_model",
		"num_attention_heads":16,"num_hidden_layers":24,"patch_size":14,"projection_dim":768,"vocab_size":32000},
		"vision_feature_layer":-2,"vision_feature_select_strategy":"default","vocab_size":32064}`
	llavaNext16 = `{"architectures":["LlavaNextForConditionalGeneration"],"ignore_index":-100,"image_grid_pinpoints":[[336,672],[672,336]],
		"image_token_index":32000,"model_type":"llava_next","projector_hidden_act":"gelu","text_config":{"_name_or_path":"x",
		"architectures":["MistralForCausalLM"],"intermediate_size":14336,"max_position_embeddings":32768,"model_type":"mistral",
		"num_key_value_heads":8,"rms_norm_eps":1e-05,"rope_theta":1000000.0,"sliding_window":null,"torch_dtype":"bfloat16","vocab_size":32064},
		"tie_word_embeddings":false,"torch_dtype":"float16","use_image_newline_parameter":true,
		"vision_config":{"hidden_size":1024,"image_size":336,"intermediate_size":4096,"model_type":"clip_vision_model",
		"num_attention_heads":16,"num_hidden_layers":24,"patch_size":14,"projection_dim":768,"vocab_size":32000},
		"vision_feature_layer":-2,"vision_feature_select_strategy":"default","vocab_size":32064}`
	phi3mini = `{"architectures":["Phi3ForCausalLM"],"model_type":"phi3","auto_map":{"AutoConfig":"x.Y"},
		"hidden_act":"silu","hidden_size":3072,"intermediate_size":8192,"max_position_embeddings":4096,
		"num_attention_heads":32,"num_hidden_layers":32,"num_key_value_heads":32,"original_max_position_embeddings":4096,
		"rms_norm_eps":1e-05,"rope_scaling":null,"rope_theta":10000.0,"sliding_window":2047,
		"tie_word_embeddings":false,"torch_dtype":"bfloat16","vocab_size":32064}`
)

func every(n int, where func(i int) bool) []bool {
	out := make([]bool, n)
	for i := range out {
		out[i] = where(i)
	}
	return out
}

func TestFamilies(t *testing.T) {
	all := func(int) bool { return true }
	plain := func(theta float64) RoPE { return RoPE{Theta: theta, Type: "default", Attention: 1} }
	tests := []struct {
		name, config string
		want         Config
	}{
		{"Mistral 7B v0.1", mistral01, Config{
			Family: "mistral", Architecture: "MistralForCausalLM", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
			FFN: 14336, Vocab: 32000, MaxContext: 32768, NormEps: 1e-5, DType: "bfloat16", RoPE: plain(1e4),
			Window: 4096, Windowed: every(32, all),
		}},
		{"Mixtral 8x7B", mixtral8x7, Config{
			Family: "mixtral", Architecture: "MixtralForCausalLM", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
			FFN: 14336, Vocab: 32000, MaxContext: 32768, NormEps: 1e-5, DType: "bfloat16", RoPE: plain(1e6),
			MoE: MoE{Experts: 8, Active: 2, FFN: 14336, Normalize: true, Sparse: every(32, all)},
		}},
		{"Qwen2.5 0.5B", qwen25, Config{
			Family: "qwen2", Architecture: "Qwen2ForCausalLM", Layers: 24, Hidden: 896, Heads: 14, KVHeads: 2, HeadDim: 64,
			FFN: 4864, Vocab: 151936, MaxContext: 32768, NormEps: 1e-6, DType: "bfloat16", RoPE: plain(1e6), TiedHead: true, QKVBias: true,
		}},
		{"Qwen3 30B-A3B", qwen3x30, Config{
			Family: "qwen3_moe", Architecture: "Qwen3MoeForCausalLM", Layers: 48, Hidden: 2048, Heads: 32, KVHeads: 4, HeadDim: 128,
			FFN: 6144, Vocab: 151936, MaxContext: 40960, NormEps: 1e-6, DType: "bfloat16", RoPE: plain(1e6), QKNorm: true,
			MoE: MoE{Experts: 128, Active: 8, FFN: 768, Normalize: true, Sparse: every(48, all)},
		}},
		{"Gemma 2 2B", gemma2x2, Config{
			Family: "gemma2", Architecture: "Gemma2ForCausalLM", Layers: 26, Hidden: 2304, Heads: 8, KVHeads: 4, HeadDim: 256,
			FFN: 9216, Vocab: 256000, MaxContext: 8192, NormEps: 1e-6, DType: "float32", RoPE: plain(1e4), TiedHead: true,
			Act: GELUTanh, Window: 4096, Windowed: every(26, func(i int) bool { return i%2 == 0 }),
			QueryScalar: 256, ScoreCap: 50, LogitCap: 30, NormPlusOne: true, PostNorms: true, ScaleEmbed: true,
		}},
		{"Gemma 3 1B", gemma3x1, Config{
			Family: "gemma3_text", Architecture: "Gemma3ForCausalLM", Layers: 26, Hidden: 1152, Heads: 4, KVHeads: 1, HeadDim: 256,
			FFN: 6912, Vocab: 262144, MaxContext: 32768, NormEps: 1e-6, DType: "bfloat16", RoPE: plain(1e6), TiedHead: true, QKNorm: true,
			Act: GELUTanh, LocalRoPE: new(plain(1e4)), Window: 512, Windowed: every(26, func(i int) bool { return i%6 != 5 }),
			QueryScalar: 256, NormPlusOne: true, PostNorms: true, ScaleEmbed: true,
		}},
		{"Gemma 3 4B, reads images", gemma3x4, Config{
			Family: "gemma3_text", Architecture: "Gemma3ForConditionalGeneration", Layers: 34, Hidden: 2560, Heads: 8, KVHeads: 4,
			HeadDim: 256, FFN: 10240, Vocab: 262208, MaxContext: 131072, NormEps: 1e-6, DType: "bfloat16", TiedHead: true, QKNorm: true,
			RoPE: RoPE{Theta: 1e6, Type: "linear", Factor: 8, Attention: 1}, LocalRoPE: new(plain(1e4)),
			Act: GELUTanh, Window: 1024, Windowed: every(34, func(i int) bool { return i%6 != 5 }),
			QueryScalar: 256, NormPlusOne: true, PostNorms: true, ScaleEmbed: true,
			Vision: &Vision{
				Tower: "siglip_vision_model", Hidden: 1152, FFN: 4304, Heads: 16, Layers: 27, ImageSize: 896, PatchSize: 14, NormEps: 1e-6,
				Act: GELUTanh, PatchBias: true, PostNorm: true, Mutual: true, ImageToken: 262144,
				Projector: Projector{Kind: ProjectPool, Factor: 4, NormEps: 1e-6},
			},
		}},
		{"SmolVLM 256M", smolvlm256, Config{
			Family: "idefics3", Architecture: "Idefics3ForConditionalGeneration", Layers: 30, Hidden: 576, Heads: 9, KVHeads: 3, HeadDim: 64,
			FFN: 1536, Vocab: 49280, MaxContext: 8192, NormEps: 1e-5, DType: "bfloat16", RoPE: plain(1e5),
			Vision: &Vision{
				Tower: "idefics3_vision", Hidden: 768, FFN: 3072, Heads: 12, Layers: 12, ImageSize: 512, PatchSize: 16, NormEps: 1e-6,
				Act: GELUTanh, PatchBias: true, PostNorm: true, Bucketed: true, ImageToken: 49190,
				Projector: Projector{Kind: ProjectShuffle, Factor: 4},
			},
		}},
		{"LLaVA 1.5 7B", llava15, Config{
			Family: "llava", Architecture: "LlavaForConditionalGeneration", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, HeadDim: 128,
			FFN: 11008, Vocab: 32064, MaxContext: 4096, NormEps: 1e-5, DType: "float16", RoPE: plain(1e4),
			Vision: &Vision{
				Tower: "clip_vision_model", Hidden: 1024, FFN: 4096, Heads: 16, Layers: 23, ImageSize: 336, PatchSize: 14, NormEps: 1e-5,
				Act: QuickGELU, ClassToken: true, PreNorm: true, ImageToken: 32000,
				Projector: Projector{Kind: ProjectMLP, Factor: 1, Act: GELU, Bias: true},
			},
		}},
		{"LLaVA 1.6 Mistral 7B", llavaNext16, Config{
			Family: "llava_next", Architecture: "LlavaNextForConditionalGeneration", Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, HeadDim: 128,
			FFN: 14336, Vocab: 32064, MaxContext: 32768, NormEps: 1e-5, DType: "bfloat16", RoPE: plain(1e6),
			Vision: &Vision{
				Tower: "clip_vision_model", Hidden: 1024, FFN: 4096, Heads: 16, Layers: 23, ImageSize: 336, PatchSize: 14, NormEps: 1e-5,
				Act: QuickGELU, ClassToken: true, PreNorm: true, ImageToken: 32000, Newline: true,
				Projector: Projector{Kind: ProjectMLP, Factor: 1, Act: GELU, Bias: true},
			},
		}},
		{"Phi-3 mini 4k", phi3mini, Config{
			Family: "phi3", Architecture: "Phi3ForCausalLM", Layers: 32, Hidden: 3072, Heads: 32, KVHeads: 32, HeadDim: 96,
			FFN: 8192, Vocab: 32064, MaxContext: 4096, NormEps: 1e-5, DType: "bfloat16", RoPE: plain(1e4),
			Window: 2047, Windowed: every(32, all),
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseConfig([]byte(tt.config))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// variant changes fields of a configuration; nil leaves one out.
func variant(t *testing.T, config string, change map[string]any) []byte {
	t.Helper()
	m := make(map[string]any)
	if err := json.Unmarshal([]byte(config), &m); err != nil {
		t.Fatal(err)
	}
	for field, value := range change {
		m = with(m, field, value)
	}
	return encode(t, m)
}

func TestFamilyFields(t *testing.T) {
	type object = map[string]any
	null := json.RawMessage("null")
	ones := func(n int) []float64 { return slices.Repeat([]float64{1}, n) }
	long := object{"type": "longrope", "short_factor": ones(48), "long_factor": ones(48)}
	tests := []struct {
		name, config string
		change       object
		ok           func(c Config) bool
	}{
		{"mistral without the field has the default window", mistral01, object{"sliding_window": nil}, func(c Config) bool { return c.Window == 4096 }},
		{"null means no window", mistral01, object{"sliding_window": null}, func(c Config) bool { return c.Window == 0 && c.Windowed == nil }},
		{"mixtral without the field has none", mixtral8x7, object{"sliding_window": nil}, func(c Config) bool { return c.Windowed == nil }},
		{"qwen2 slides from a layer on", qwen25, object{"use_sliding_window": true}, func(c Config) bool {
			return c.WindowOf(20) == 0 && c.WindowOf(21) == 32768
		}},
		{"qwen2 slides in no layer", qwen25, object{"use_sliding_window": true, "max_window_layers": 24}, func(c Config) bool { return c.Windowed == nil }},
		{"qwen2 slides in all layers", qwen25, object{"use_sliding_window": true, "max_window_layers": 0}, func(c Config) bool { return c.WindowOf(0) == 32768 }},
		{"listed layers win", qwen25, object{"use_sliding_window": true, "num_hidden_layers": 2,
			"layer_types": []string{"sliding_attention", "full_attention"}}, func(c Config) bool { return c.Windowed[0] && !c.Windowed[1] }},
		{"qwen3-moe, every other layer", qwen3x30, object{"decoder_sparse_step": 2, "mlp_only_layers": []int{3}}, func(c Config) bool {
			return !c.Sparse(0) && c.Sparse(1) && !c.Sparse(2) && !c.Sparse(3) && c.Sparse(5)
		}},
		{"qwen3-moe does not normalize by default", qwen3x30, object{"norm_topk_prob": nil}, func(c Config) bool { return !c.MoE.Normalize }},
		{"qwen3-moe without sparse layers", qwen3x30, object{"decoder_sparse_step": 49}, func(c Config) bool { return c.MoE.Sparse == nil && c.MoE.Experts == 0 }},
		{"qwen3-moe slides everywhere", qwen3x30, object{"use_sliding_window": true, "sliding_window": 64}, func(c Config) bool { return c.WindowOf(0) == 64 }},
		{"gemma2 without caps in the file", gemma2x2, object{"attn_logit_softcapping": nil, "final_logit_softcapping": nil},
			func(c Config) bool { return c.ScoreCap == 50 && c.LogitCap == 30 }},
		{"gemma2 with null caps", gemma2x2, object{"attn_logit_softcapping": null, "final_logit_softcapping": null},
			func(c Config) bool { return c.ScoreCap == 0 && c.LogitCap == 0 }},
		{"gemma2 of 27B scales by its own number", gemma2x2, object{"query_pre_attn_scalar": 144}, func(c Config) bool { return c.ScoreScale() == 1.0/12 }},
		{"gemma3 with caps", gemma3x1, object{"final_logit_softcapping": 30.0}, func(c Config) bool { return c.LogitCap == 30 && c.ScoreCap == 0 }},
		{"gemma3, a set of rope settings for each layer type", gemma3x1, object{"rope_parameters": object{
			"full_attention":    object{"rope_type": "linear", "factor": 8.0, "rope_theta": 5e5},
			"sliding_attention": object{"rope_type": "default", "rope_theta": 2e4},
		}}, func(c Config) bool {
			return c.RoPE.Theta == 5e5 && c.RoPE.Factor == 8 && c.LocalRoPE.Theta == 2e4 && c.LocalRoPE.Type == "default"
		}},
		{"phi3, partial", phi3mini, object{"partial_rotary_factor": 0.75}, func(c Config) bool { return c.Rotary() == 72 && c.HeadDim == 96 }},
		{"phi3, partial, transformers 5", phi3mini, object{"rope_parameters": object{"rope_type": "default", "partial_rotary_factor": 0.5}},
			func(c Config) bool { return c.Rotary() == 48 }},
		{"phi3 128k", phi3mini, object{"max_position_embeddings": 131072, "rope_scaling": long}, func(c Config) bool {
			// √(1 + ln 32 / ln 4096) = √(17/12)
			return c.MaxContext == 131072 && c.RoPE.OriginalContext == 4096 && c.RoPE.Factor == 32 && near(c.RoPE.Attention, 1.1902380714238083)
		}},
		{"phi3, early name", phi3mini, object{"max_position_embeddings": 131072, "rope_scaling": with(long, "type", "su")},
			func(c Config) bool { return c.RoPE.Type == "longrope" }},
		{"phi3, other early name", phi3mini, object{"max_position_embeddings": 131072, "rope_scaling": with(long, "type", "yarn")},
			func(c Config) bool { return c.RoPE.Type == "longrope" }},
		{"longrope by a factor alone", phi3mini, object{"original_max_position_embeddings": nil, "rope_scaling": with(long, "factor", 4)},
			func(c Config) bool { return c.MaxContext == 16384 && c.RoPE.OriginalContext == 4096 }},
		{"longrope that does not stretch", phi3mini, object{"rope_scaling": long}, func(c Config) bool { return c.RoPE.Attention == 1 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := ParseConfig(variant(t, tt.config, tt.change))
			if err != nil {
				t.Fatal(err)
			}
			if !tt.ok(c) {
				t.Errorf("got %+v", c)
			}
		})
	}
}

func near(a, b float64) bool { return a-b < 1e-12 && b-a < 1e-12 }

func TestFamilyFieldsRefuses(t *testing.T) {
	type object = map[string]any
	ones := func(n int) []float64 { return slices.Repeat([]float64{1}, n) }
	long := object{"type": "longrope", "short_factor": ones(48), "long_factor": ones(48)}
	tests := []struct {
		name, config string
		change       object
		kind         error
		want         string
	}{
		{"negative window", mistral01, object{"sliding_window": -1}, ErrConfig, "sliding_window: -1"},
		{"layers slide without a size", qwen25, object{"layer_types": slices.Repeat([]string{"sliding_attention"}, 24)}, ErrConfig, "its size is not set"},
		{"more experts than there are", mixtral8x7, object{"num_experts_per_tok": 9}, ErrConfig, "9 is more than the 8 experts"},
		{"no experts", mixtral8x7, object{"num_local_experts": 0}, ErrConfig, "num_local_experts: 0"},
		{"layers are not numbers", qwen3x30, object{"mlp_only_layers": "all"}, ErrConfig, "want a list of layers"},
		{"every 0th layer", qwen3x30, object{"decoder_sparse_step": 0}, ErrConfig, "decoder_sparse_step: 0"},
		{"negative cap", gemma2x2, object{"attn_logit_softcapping": -5}, ErrConfig, "attn_logit_softcapping: -5"},
		{"other activation", gemma2x2, object{"hidden_activation": "gelu"}, ErrUnsupported, `hidden_activation: "gelu" is unknown`},
		{"gemma3 that looks ahead", gemma3x1, object{"use_bidirectional_attention": true}, ErrUnsupported, "use_bidirectional_attention"},
		{"every 0th layer sees everything", gemma3x1, object{"sliding_window_pattern": 0}, ErrConfig, "sliding_window_pattern: 0"},
		{"half a pair", phi3mini, object{"partial_rotary_factor": 0.95}, ErrConfig, "does not make pairs"},
		{"no rotation", phi3mini, object{"partial_rotary_factor": 0}, ErrConfig, "does not make pairs"},
		{"more than all", phi3mini, object{"partial_rotary_factor": 1.5}, ErrConfig, "does not make pairs"},
		{"partial rotation of a family without", mistral01, object{"partial_rotary_factor": 0.5}, ErrUnsupported, "mistral rotates whole heads"},
		{"longrope without factors", phi3mini, object{"rope_scaling": object{"type": "longrope", "long_factor": ones(48)}}, ErrConfig, "short_factor: missing"},
		{"longrope with too few", phi3mini, object{"rope_scaling": with(long, "long_factor", ones(47))}, ErrConfig, "47 numbers, want one for each of 48"},
		{"longrope by zero", phi3mini, object{"rope_scaling": with(long, "long_factor", make([]float64, 48))}, ErrConfig, "0 is not above 0"},
		{"dynamic", phi3mini, object{"rope_scaling": object{"type": "dynamic", "factor": 2}}, ErrUnsupported, `"dynamic" is unknown`},
		{"text model is a list", gemma3x4, object{"text_config": []int{}}, ErrConfig, "want an object"},
		{"quantized outside of the text model", gemma3x4, object{"quantization_config": object{"quant_method": "awq"}}, ErrUnsupported, `"awq"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig(variant(t, tt.config, tt.change))
			if !errors.Is(err, tt.kind) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want %v with %q", err, tt.kind, tt.want)
			}
		})
	}
}
