package modeltest

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// GGUF writes the checkpoint in dir as a GGUF file, as the usual converters do:
// matrices in blocks of the given type, everything else as float32.
func GGUF(t testing.TB, dir string, kind gguf.Type) (path string) {
	t.Helper()
	return MixedGGUF(t, dir, func(string) gguf.Type { return kind })
}

// MixedGGUF is GGUF with a type for each matrix, by the name that the file gives it.
func MixedGGUF(t testing.TB, dir string, kindOf func(name string) gguf.Type) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "model.gguf")
	b := textFile(t, dir, kindOf)
	b.Write(t, path)
	return path
}

// textFile is the GGUF file of a checkpoint's text model.
func textFile(t testing.TB, dir string, kindOf func(name string) gguf.Type) *gguftest.Builder {
	t.Helper()
	m := open(t, dir)
	config := readJSON(t, filepath.Join(dir, model.ConfigName))
	if text, ok := config["text_config"].(map[string]any); ok {
		config = text
	}
	var b gguftest.Builder
	modelKeys(&b, config)
	vocabularyKeys(t, &b, dir, m)
	for _, tensor := range convert(t, m, config) {
		own := gguf.F32
		if len(tensor.shape) > 1 {
			own = kindOf(tensor.name)
		}
		b.Tensor(tensor.name, own, tensor.shape, gguftest.Quantize(own, tensor.values))
	}
	return &b
}

// Quantized writes a copy of the checkpoint in dir whose matrices hold, as float32,
// what quantizing to the given type leaves of them.
func Quantized(t testing.TB, dir string, kind gguf.Type) (copied string) {
	t.Helper()
	m := open(t, dir)
	copied = t.TempDir()
	for _, f := range m.Files() {
		if err := os.WriteFile(filepath.Join(copied, f.Name), f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var layout safetensors.Layout
	var data []byte
	for _, info := range m.Inventory() {
		if _, err := layout.Add(info.Name, safetensors.F32, info.Shape...); err != nil {
			t.Fatal(err)
		}
		v := values(t, m, info.Name)
		if len(info.Shape) > 1 {
			if err := gguf.Dequantize(v, kind, gguftest.Quantize(kind, v)); err != nil {
				t.Fatal(err)
			}
		}
		data = append(data, gguftest.Quantize(gguf.F32, v)...)
	}
	content := append(layout.Header(nil), data...)
	if err := os.WriteFile(filepath.Join(copied, safetensors.SingleName), content, 0o644); err != nil {
		t.Fatal(err)
	}
	return copied
}

func open(t testing.TB, dir string) *model.Model {
	t.Helper()
	m, err := model.Open(dir, model.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

func readJSON(t testing.TB, path string) map[string]any {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]any{}
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// values gives a tensor as float32.
func values(t testing.TB, m *model.Model, name string) []float32 {
	t.Helper()
	tensor, err := m.Tensor(name)
	if err != nil {
		t.Fatal(err)
	}
	return Floats(t, tensor)
}

// modelKeys writes the fields of config.json.
func modelKeys(b *gguftest.Builder, config map[string]any) {
	modelType := config["model_type"].(string)
	arch := map[string]string{"qwen3_moe": "qwen3moe", "mixtral": "llama", "mistral": "llama", "gemma3_text": "gemma3", "qwen2_vl_text": "qwen2vl", "qwen2_5_vl_text": "qwen2vl"}[modelType]
	if arch == "" {
		arch = modelType
	}
	b.Key("general.architecture", arch)
	b.Key("general.type", "model")
	b.Key("general.quantization_version", uint32(2))
	for field, key := range map[string]string{
		"num_hidden_layers": "block_count", "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
		"num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv", "head_dim": "attention.key_length",
		"max_position_embeddings": "context_length", "num_experts": "expert_count", "num_local_experts": "expert_count",
		"num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length", "sliding_window": "attention.sliding_window",
	} {
		if v, ok := config[field].(float64); ok {
			b.Key(arch+"."+key, uint32(v))
		}
	}
	for field, key := range map[string]string{
		"rms_norm_eps": "attention.layer_norm_rms_epsilon", "rope_theta": "rope.freq_base",
		"attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
	} {
		if v, ok := config[field].(float64); ok {
			b.Key(arch+"."+key, float32(v))
		}
	}
	if dim, ok := config["head_dim"].(float64); ok {
		b.Key(arch+".attention.value_length", uint32(dim))
		b.Key(arch+".rope.dimension_count", uint32(dim))
	}
	if scaling, ok := config["rope_scaling"].(map[string]any); ok {
		if list, ok := scaling["mrope_section"].([]any); ok {
			sections := make([]int32, 4)
			for i, n := range list {
				sections[i] = int32(n.(float64))
			}
			b.Key(arch+".rope.dimension_sections", sections)
			return
		}
		kind, _ := scaling["rope_type"].(string)
		factor, _ := scaling["factor"].(float64)
		b.Key(arch+".rope.scaling.type", kind)
		b.Key(arch+".rope.scaling.factor", float32(factor))
		if n, ok := scaling["original_max_position_embeddings"].(float64); ok {
			b.Key(arch+".rope.scaling.original_context_length", uint32(n))
		}
	}
}

// vocabularyKeys writes the tokenizer, its template and the ends of a text.
func vocabularyKeys(t testing.TB, b *gguftest.Builder, dir string, m *model.Model) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(dir, model.TokenizerName))
	if err != nil {
		t.Fatal(err)
	}
	v := gguftest.ReadVocabulary(t, raw, m.Config().Vocab)
	v.Keys(b, "qwen2") // the pattern of synthetic models
	config := readJSON(t, filepath.Join(dir, model.TokenizerConfigName))
	for role, key := range map[string]string{"eos_token": "eos_token_id", "pad_token": "padding_token_id", "bos_token": "bos_token_id"} {
		if token, ok := config[role].(string); ok {
			b.Key("tokenizer.ggml."+key, v.ID(t, token))
		}
	}
	b.Key("tokenizer.ggml.add_bos_token", false)
	if template, ok := config["chat_template"].(string); ok {
		b.Key("tokenizer.chat_template", template)
	}
}

// converted is a tensor as it goes into the file.
type converted struct {
	name   string
	shape  []int
	values []float32
}

// plainText takes what stands around a text model out of names.
var plainText = strings.NewReplacer("model.text_model.", "model.", "language_model.model.", "model.", "model.language_model.", "model.", "language_model.lm_head", "lm_head")

// expertName cuts the number of an expert out of a name.
var expertName = regexp.MustCompile(`^(.*\.experts)\.(\d+)\.(.*)$`)

// convert renames and reorders the tensors; experts are put one after the other.
func convert(t testing.TB, m *model.Model, config map[string]any) []converted {
	t.Helper()
	modelType := config["model_type"].(string)
	all := map[string]*converted{}
	names := map[string]int{} // for the order of experts
	vision := map[string]bool{}
	for _, spec := range m.Tensors() {
		vision[spec.Name] = spec.Role.Vision()
	}
	for _, info := range m.Inventory() {
		if !vision[info.Name] && (info.Used || m.Config().Vision == nil) {
			names[info.Name] = len(names)
		}
	}
	order := slices.SortedFunc(maps.Keys(names), func(a, b string) int {
		if x, y := expertName.FindStringSubmatch(a), expertName.FindStringSubmatch(b); x != nil && y != nil && x[1] == y[1] && x[3] == y[3] {
			i, _ := strconv.Atoi(x[2])
			j, _ := strconv.Atoi(y[2])
			return i - j
		}
		return names[a] - names[b]
	})
	for _, name := range order {
		v := values(t, m, name)
		tensor, err := m.Tensor(name)
		if err != nil {
			t.Fatal(err)
		}
		shape := tensor.Shape
		if modelType == "llama" || modelType == "mistral" || modelType == "mixtral" {
			switch {
			case strings.Contains(name, ".q_proj."):
				v = interleave(v, m.Config().Heads, shape)
			case strings.Contains(name, ".k_proj."):
				v = interleave(v, m.Config().KVHeads, shape)
			}
		}
		if strings.HasPrefix(modelType, "gemma") && strings.HasSuffix(name, "norm.weight") {
			for i := range v {
				v[i]++
			}
		}
		own := ggufName(modelType, plainText.Replace(name))
		if expertName.MatchString(name) {
			if c := all[own]; c != nil {
				c.values = append(c.values, v...)
				c.shape[0]++
				continue
			}
			shape = append([]int{1}, shape...)
		}
		all[own] = &converted{own, shape, v}
	}
	var list []converted
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, *all[name])
	}
	return list
}

// interleave puts rows of the two halves of each head next to each other.
func interleave(v []float32, heads int, shape []int) []float32 {
	width := len(v) / shape[0]
	dim := shape[0] / heads
	out := make([]float32, 0, len(v))
	for h := range heads {
		for i := range dim / 2 {
			for _, r := range []int{h*dim + i, h*dim + dim/2 + i} {
				out = append(out, v[r*width:(r+1)*width]...)
			}
		}
	}
	return out
}

// ggufName spells a tensor's name as GGUF files do.
func ggufName(modelType, name string) string {
	if m := expertName.FindStringSubmatch(name); m != nil {
		name = m[1] + "." + m[3]
	}
	four := strings.HasPrefix(modelType, "gemma") // norms in a layer
	afterAttention := "ffn_norm"
	if four {
		afterAttention = "post_attention_norm"
	}
	for _, r := range [][2]string{
		{"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}, {"model.layers.", "blk."},
		{"input_layernorm", "attn_norm"}, {"pre_feedforward_layernorm", "ffn_norm"}, {"post_feedforward_layernorm", "post_ffw_norm"},
		{"post_attention_layernorm", afterAttention},
		{"self_attn.qkv_proj", "attn_qkv"}, {"self_attn.q_proj", "attn_q"}, {"self_attn.k_proj", "attn_k"}, {"self_attn.v_proj", "attn_v"},
		{"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"}, {"self_attn.k_norm", "attn_k_norm"},
		{"mlp.experts.gate_proj", "ffn_gate_exps"}, {"mlp.experts.up_proj", "ffn_up_exps"}, {"mlp.experts.down_proj", "ffn_down_exps"},
		{"block_sparse_moe.experts.w1", "ffn_gate_exps"}, {"block_sparse_moe.experts.w3", "ffn_up_exps"}, {"block_sparse_moe.experts.w2", "ffn_down_exps"},
		{"block_sparse_moe.gate", "ffn_gate_inp"}, {"mlp.gate_up_proj", "ffn_up"}, {"mlp.gate_proj", "ffn_gate"}, {"mlp.up_proj", "ffn_up"},
		{"mlp.down_proj", "ffn_down"}, {"mlp.gate.", "ffn_gate_inp."},
	} {
		name = strings.Replace(name, r[0], r[1], 1)
	}
	if strings.Contains(name, "proj") || strings.Contains(name, "layernorm") {
		panic(fmt.Sprintf("modeltest: no GGUF name for %s", name)) // a family that this file does not know yet
	}
	return name
}

// Floats gives a tensor's values as float32.
func Floats(t testing.TB, tensor model.Tensor) []float32 {
	t.Helper()
	if tensor.Scales != nil {
		return fp8Floats(t, tensor)
	}
	kind, ok := gguf.ParseType(string(tensor.DType))
	if !ok {
		t.Fatalf("%s has the type %s", tensor.Name, tensor.DType)
	}
	out := make([]float32, len(tensor.Data)/kind.BlockBytes()*kind.BlockWeights())
	if err := gguf.Dequantize(out, kind, tensor.Data); err != nil {
		t.Fatal(err)
	}
	return out
}
