package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
)

// llamaConfig and qwen3Config are config.json files as transformers 4 and 5 write
// them, as maps so that tests can change a field.
func llamaConfig() map[string]any {
	return map[string]any{
		"architectures": []string{"LlamaForCausalLM"}, "model_type": "llama", "attention_bias": false,
		"bos_token_id": 128000, "eos_token_id": []int{128001, 128008, 128009}, "hidden_act": "silu", "hidden_size": 2048,
		"intermediate_size": 8192, "max_position_embeddings": 131072, "mlp_bias": false, "num_attention_heads": 32,
		"num_hidden_layers": 16, "num_key_value_heads": 8, "rms_norm_eps": 1e-5, "rope_theta": 500000.0,
		"rope_scaling": map[string]any{"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
			"original_max_position_embeddings": 8192, "rope_type": "llama3"},
		"tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_cache": true, "vocab_size": 128256,
	}
}

func qwen3Config() map[string]any {
	return map[string]any{
		"architectures": []string{"Qwen3ForCausalLM"}, "model_type": "qwen3", "attention_bias": false, "dtype": "bfloat16",
		"eos_token_id": 151645, "head_dim": 128, "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072,
		"layer_types": []string{"full_attention", "full_attention"}, "max_position_embeddings": 40960, "max_window_layers": 28,
		"num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8, "rms_norm_eps": 1e-6,
		"rope_parameters": map[string]any{"rope_theta": 1000000, "rope_type": "default"}, "sliding_window": nil,
		"tie_word_embeddings": true, "use_sliding_window": false, "vocab_size": 151936,
	}
}

func encode(t testing.TB, v any) []byte {
	t.Helper()
	out, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// with changes one field; the value nil stands for leaving it out.
func with(config map[string]any, field string, value any) map[string]any {
	config = maps.Clone(config)
	config[field] = value
	if value == nil {
		delete(config, field)
	}
	return config
}

func TestParseConfig(t *testing.T) {
	llama := Config{
		Family: "llama", Architecture: "LlamaForCausalLM", Layers: 16, Hidden: 2048, Heads: 32, KVHeads: 8, HeadDim: 64,
		FFN: 8192, Vocab: 128256, MaxContext: 131072, NormEps: 1e-5, TiedHead: true, DType: "bfloat16",
		RoPE: RoPE{Theta: 500000, Type: "llama3", Factor: 32, OriginalContext: 8192, LowFreqFactor: 1, HighFreqFactor: 4, Attention: 1},
	}
	qwen := Config{
		Family: "qwen3", Architecture: "Qwen3ForCausalLM", Layers: 28, Hidden: 1024, Heads: 16, KVHeads: 8, HeadDim: 128,
		FFN: 3072, Vocab: 151936, MaxContext: 40960, NormEps: 1e-6, TiedHead: true, QKNorm: true, DType: "bfloat16",
		RoPE: RoPE{Theta: 1e6, Type: "default", Attention: 1},
	}
	changed := func(c Config, change func(c *Config)) Config {
		change(&c)
		return c
	}
	plain := func(c *Config) { c.RoPE = RoPE{Theta: 500000, Type: "default", Attention: 1} }
	yarn := map[string]any{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
	tests := []struct {
		name   string
		config map[string]any
		want   Config
	}{
		{"llama, transformers 4", llamaConfig(), llama},
		{"qwen3, transformers 5", qwen3Config(), qwen},
		{"architecture only", with(llamaConfig(), "model_type", nil), llama},
		{"model type only", with(llamaConfig(), "architectures", nil), llama},
		{"scaling is null", with(llamaConfig(), "rope_scaling", json.RawMessage("null")), changed(llama, plain)},
		{"scaling left out", with(llamaConfig(), "rope_scaling", nil), changed(llama, plain)},
		{"older key of the type", with(llamaConfig(), "rope_scaling", map[string]any{"type": "linear", "factor": 2}),
			changed(llama, func(c *Config) { plain(c); c.RoPE.Type, c.RoPE.Factor = "linear", 2 })},
		{"theta left out", with(with(llamaConfig(), "rope_scaling", nil), "rope_theta", nil),
			changed(llama, func(c *Config) { plain(c); c.RoPE.Theta = 10000 })},
		{"parameters win over theta", with(qwen3Config(), "rope_theta", 5), qwen},
		{"parameters without a type", with(qwen3Config(), "rope_parameters", map[string]any{"rope_theta": 7}),
			changed(qwen, func(c *Config) { c.RoPE.Theta = 7 })},
		{"head size is null", with(llamaConfig(), "head_dim", json.RawMessage("null")), llama},
		{"head size given", with(llamaConfig(), "head_dim", 96), changed(llama, func(c *Config) { c.HeadDim = 96 })},
		{"qwen3 without head size", with(qwen3Config(), "head_dim", nil), qwen},
		{"no key-value heads", with(llamaConfig(), "num_key_value_heads", nil), changed(llama, func(c *Config) { c.KVHeads = 32 })},
		{"no tie", with(llamaConfig(), "tie_word_embeddings", nil), changed(llama, func(c *Config) { c.TiedHead = false })},
		{"no norm epsilon", with(llamaConfig(), "rms_norm_eps", nil), changed(llama, func(c *Config) { c.NormEps = 1e-6 })},
		{"no context", with(llamaConfig(), "max_position_embeddings", nil), changed(llama, func(c *Config) { c.MaxContext = 2048 })},
		{"attention bias", with(llamaConfig(), "attention_bias", true), changed(llama, func(c *Config) { c.QKVBias, c.OutBias = true, true })},
		{"mlp bias", with(llamaConfig(), "mlp_bias", true), changed(llama, func(c *Config) { c.MLPBias = true })},
		{"yarn", with(qwen3Config(), "rope_parameters", with(yarn, "rope_theta", 1e6)),
			changed(qwen, func(c *Config) {
				c.MaxContext = 131072
				c.RoPE = RoPE{Theta: 1e6, Type: "yarn", Factor: 4, OriginalContext: 32768, BetaFast: 32, BetaSlow: 1,
					Truncate: true, Attention: 1.138629436111989}
			})},
		{"unknown fields", with(llamaConfig(), "pretraining_tp", 1), llama},
		{"own code beside a known architecture", with(llamaConfig(), "auto_map", map[string]any{"AutoModel": "x.Y"}), llama},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := ParseConfig(encode(t, tt.config))
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(got, tt.want) {
				t.Errorf("got  %+v\nwant %+v", got, tt.want)
			}
		})
	}
}

// Python writes numbers that JSON does not have.
func TestParseConfigOfPython(t *testing.T) {
	raw := bytes.Replace(encode(t, with(llamaConfig(), "x", 1)), []byte(`"x":1`), []byte(`"time_step_limit":[0.0,Infinity],"x":NaN`), 1)
	got, err := ParseConfig(raw)
	want, _ := ParseConfig(encode(t, llamaConfig()))
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}

func TestParseConfigRefuses(t *testing.T) {
	scaling := func(s map[string]any) []byte { return encode(t, with(llamaConfig(), "rope_scaling", s)) }
	llama := func(field string, value any) []byte { return encode(t, with(llamaConfig(), field, value)) }
	qwen := func(field string, value any) []byte { return encode(t, with(qwen3Config(), field, value)) }
	llama3 := llamaConfig()["rope_scaling"].(map[string]any)
	tests := []struct {
		name    string
		content []byte
		kind    error
		want    string
	}{
		{"not JSON", []byte("{"), ErrConfig, "not a JSON object"},
		{"array", []byte("[]"), ErrConfig, "not a JSON object"},
		{"null", []byte("null"), ErrConfig, "not a JSON object"},
		{"empty", nil, ErrConfig, "not a JSON object"},
		{"no architecture", encode(t, with(with(llamaConfig(), "architectures", nil), "model_type", nil)), ErrConfig, "architectures: missing"},
		{"unknown architecture", llama("architectures", []string{"MambaForCausalLM"}), ErrUnsupported,
			`"MambaForCausalLM" is unknown; known are LlamaForCausalLM, MistralForCausalLM, MixtralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM, ` +
				`Qwen3MoeForCausalLM, Gemma2ForCausalLM, Gemma3ForCausalLM, Gemma3ForConditionalGeneration, Phi3ForCausalLM`},
		{"known type, unknown head", llama("architectures", []string{"LlamaForSequenceClassification"}), ErrUnsupported, "LlamaForSequenceClassification"},
		{"unknown model type", encode(t, map[string]any{"model_type": "mamba"}), ErrUnsupported, `model_type: "mamba"`},
		{"own code only", encode(t, with(with(llamaConfig(), "architectures", []string{"MyModel"}), "auto_map", map[string]any{})), ErrUnsupported, "never run"},
		{"architectures is a string", llama("architectures", "LlamaForCausalLM"), ErrConfig, "want a list of strings"},
		{"no layers", llama("num_hidden_layers", nil), ErrConfig, "num_hidden_layers: missing"},
		{"zero layers", llama("num_hidden_layers", 0), ErrConfig, "num_hidden_layers: 0 is not between"},
		{"negative hidden size", llama("hidden_size", -1), ErrConfig, "hidden_size: -1 is not between"},
		{"fractional hidden size", llama("hidden_size", 20.5), ErrConfig, "hidden_size: want a whole number"},
		{"hidden size is a string", llama("hidden_size", "2048"), ErrConfig, "hidden_size: want a whole number"},
		{"huge hidden size", llama("hidden_size", 1<<40), ErrConfig, "hidden_size: "},
		{"hidden size beyond integers", llama("hidden_size", 1e300), ErrConfig, "hidden_size: "},
		{"no heads", llama("num_attention_heads", nil), ErrConfig, "num_attention_heads: missing"},
		{"zero heads", llama("num_attention_heads", 0), ErrConfig, "num_attention_heads: 0"},
		{"zero key-value heads", llama("num_key_value_heads", 0), ErrConfig, "num_key_value_heads: 0"},
		{"heads not divisible", llama("num_key_value_heads", 5), ErrConfig, "5 does not divide 32"},
		{"more key-value heads", llama("num_key_value_heads", 64), ErrConfig, "64 does not divide 32"},
		{"hidden size not divisible", llama("hidden_size", 2049), ErrConfig, "not a multiple of 32"},
		{"odd head size", llama("head_dim", 63), ErrConfig, "63 is odd"},
		{"zero head size", qwen("head_dim", 0), ErrConfig, "head_dim: 0"},
		{"negative inner size", llama("intermediate_size", -8), ErrConfig, "intermediate_size: -8"},
		{"zero vocabulary", llama("vocab_size", 0), ErrConfig, "vocab_size: 0"},
		{"zero context", llama("max_position_embeddings", 0), ErrConfig, "max_position_embeddings: 0"},
		{"zero epsilon", llama("rms_norm_eps", 0), ErrConfig, "rms_norm_eps: 0 is not above 0"},
		{"negative theta", llama("rope_theta", -1), ErrConfig, "rope_theta: -1"},
		{"tie is a number", llama("tie_word_embeddings", 1), ErrConfig, "want true or false"},
		{"other activation", llama("hidden_act", "gelu"), ErrUnsupported, `"gelu" is unknown; known are silu, gelu_pytorch_tanh`},
		{"window of a llama", llama("use_sliding_window", true), ErrUnsupported, "use_sliding_window"},
		{"layers of a llama", llama("layer_types", []string{"sliding_attention"}), ErrUnsupported, "layer_types"},
		{"unknown layers", qwen("layer_types", []string{"chunked_attention"}), ErrUnsupported, `"chunked_attention" is unknown`},
		{"too few layers", qwen("layer_types", []string{"full_attention", "sliding_attention"}), ErrConfig, "2 entries"},
		{"partial rotation", llama("partial_rotary_factor", 0.5), ErrUnsupported, "partial_rotary_factor"},
		{"quantized", llama("quantization_config", map[string]any{"quant_method": "bitsandbytes"}), ErrUnsupported, `"bitsandbytes"`},
		{"unknown rope type", scaling(map[string]any{"rope_type": "spiral", "factor": 2}), ErrUnsupported,
			`"spiral" is unknown; known are default, linear, llama3, yarn`},
		{"dynamic rope", scaling(map[string]any{"type": "dynamic", "factor": 2}), ErrUnsupported, `"dynamic"`},
		{"rope without a type", scaling(map[string]any{"factor": 2}), ErrConfig, "rope_type: missing"},
		{"rope is a string", llama("rope_scaling", "llama3"), ErrConfig, "want an object"},
		{"linear without factor", scaling(map[string]any{"rope_type": "linear"}), ErrConfig, "factor: missing"},
		{"linear by zero", scaling(map[string]any{"rope_type": "linear", "factor": 0}), ErrConfig, "factor: 0"},
		{"llama3 without factor", scaling(with(llama3, "factor", nil)), ErrConfig, "factor: missing"},
		{"llama3 without low", scaling(with(llama3, "low_freq_factor", nil)), ErrConfig, "low_freq_factor: missing"},
		{"llama3 without high", scaling(with(llama3, "high_freq_factor", nil)), ErrConfig, "high_freq_factor: missing"},
		{"llama3 without original context", scaling(with(llama3, "original_max_position_embeddings", nil)), ErrConfig, "original_max_position_embeddings: missing"},
		{"llama3 with equal borders", scaling(with(llama3, "high_freq_factor", 1.0)), ErrConfig, "not above low_freq_factor"},
		{"yarn without factor", scaling(map[string]any{"rope_type": "yarn"}), ErrConfig, "factor: missing"},
		{"rope for each layer type", qwen("rope_parameters", map[string]any{"full_attention": map[string]any{"rope_theta": 1}}), ErrUnsupported, "layer type"},
		{"positions in three dimensions", llama("rope_scaling", map[string]any{"type": "default", "mrope_section": []int{16, 24, 24}}), ErrUnsupported, "mrope_section"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := ParseConfig(tt.content)
			if !errors.Is(err, tt.kind) {
				t.Fatalf("err = %v, want %v", err, tt.kind)
			}
			if !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "config.json") {
				t.Errorf("err = %v, want config.json and %q", err, tt.want)
			}
		})
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add(encode(f, llamaConfig()))
	f.Add(encode(f, qwen3Config()))
	f.Add([]byte(`{"architectures":["LlamaForCausalLM"],"hidden_size":1e9}`))
	for _, config := range []string{mistral01, mixtral8x7, qwen25, qwen3x30, gemma2x2, gemma3x1, gemma3x4, phi3mini, smolvlm256, llava15, llavaNext16, qwen2VL2B, qwen25VL3B, qwen2VLNested} {
		f.Add([]byte(config))
	}
	f.Add([]byte(`{"architectures":["Phi3ForCausalLM"],"hidden_size":8,"num_hidden_layers":2,"num_attention_heads":2,
		"intermediate_size":8,"vocab_size":8,"original_max_position_embeddings":64,"partial_rotary_factor":0.5,
		"rope_scaling":{"type":"longrope","short_factor":[1],"long_factor":[2]}}`))
	f.Fuzz(func(t *testing.T, content []byte) {
		c, err := ParseConfig(content)
		if err != nil {
			if !errors.Is(err, ErrConfig) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		if c.Heads%c.KVHeads != 0 || c.HeadDim%2 != 0 || c.Layers < 1 || c.Vocab < 1 || c.MaxContext < 1 || !(c.NormEps > 0) {
			t.Fatalf("accepted %+v", c)
		}
		if c.Windowed != nil && (len(c.Windowed) != c.Layers || c.Window < 1) || c.Rotary()%2 != 0 || c.Rotary() > c.HeadDim || !(c.ScoreScale() > 0) {
			t.Fatalf("accepted %+v", c)
		}
		if c.MoE.Sparse != nil && (len(c.MoE.Sparse) != c.Layers || c.MoE.Active < 1 || c.MoE.Active > c.MoE.Experts) {
			t.Fatalf("accepted %+v", c)
		}
		if v := c.Vision; v != nil && v.Grid {
			if v.Hidden%v.Heads != 0 || v.Hidden/v.Heads%4 != 0 || v.FFN < 1 || v.PatchValues() < 1 || int(v.ImageToken) >= c.Vocab ||
				v.Windowed != nil && (len(v.Windowed) != v.Layers || v.Window < v.Projector.Factor || v.Window%v.Projector.Factor != 0) {
				t.Fatalf("accepted %+v", v)
			}
			if s := c.RoPE.Sections; s[0]+s[1]+s[2] != c.Rotary()/2 || min(s[0], s[1], s[2]) < 0 {
				t.Fatalf("accepted %v", s)
			}
		} else if v != nil && (v.Hidden%v.Heads != 0 || v.Layers < 0 || v.Side() < 1 || v.Side()*v.Side() > maxPatches ||
			v.Side()%v.Projector.Factor != 0 || v.Tokens() < 1 || int(v.ImageToken) >= c.Vocab || !(v.NormEps > 0)) {
			t.Fatalf("accepted %+v", v)
		}
		if c.Layers < 100 && c.HeadDim < 1000 && c.MoE.Experts < 300 {
			c.Tensors()
			c.RoPE.InvFreq(c.Rotary(), c.MaxContext)
		}
	})
}

func TestTensors(t *testing.T) {
	c, err := ParseConfig(encode(t, with(with(with(qwen3Config(), "num_hidden_layers", 1), "tie_word_embeddings", false), "attention_bias", true)))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string][]int{
		"model.embed_tokens.weight":                      {151936, 1024},
		"model.layers.0.input_layernorm.weight":          {1024},
		"model.layers.0.self_attn.q_proj.weight":         {2048, 1024},
		"model.layers.0.self_attn.k_proj.weight":         {1024, 1024},
		"model.layers.0.self_attn.v_proj.weight":         {1024, 1024},
		"model.layers.0.self_attn.o_proj.weight":         {1024, 2048},
		"model.layers.0.self_attn.q_proj.bias":           {2048},
		"model.layers.0.self_attn.k_proj.bias":           {1024},
		"model.layers.0.self_attn.v_proj.bias":           {1024},
		"model.layers.0.self_attn.o_proj.bias":           {1024},
		"model.layers.0.self_attn.q_norm.weight":         {128},
		"model.layers.0.self_attn.k_norm.weight":         {128},
		"model.layers.0.post_attention_layernorm.weight": {1024},
		"model.layers.0.mlp.gate_proj.weight":            {3072, 1024},
		"model.layers.0.mlp.up_proj.weight":              {3072, 1024},
		"model.layers.0.mlp.down_proj.weight":            {1024, 3072},
		"model.norm.weight":                              {1024},
		"lm_head.weight":                                 {151936, 1024},
	}
	got := make(map[string][]int)
	for _, spec := range c.Tensors() {
		got[spec.Name] = spec.Shape
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if (Config{}).Tensors() != nil && len((Config{}).Tensors()) > 3 {
		t.Error("an empty configuration has layers")
	}
}
