package inspect_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/inspect"
	"github.com/dynctl/dynctl/internal/model/gguf"
	"github.com/dynctl/dynctl/internal/model/gguf/gguftest"
	"github.com/dynctl/dynctl/internal/model/modeltest"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

func spec() modeltest.Spec {
	return modeltest.Spec{
		Family: "llama", Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, HeadDim: 16, FFN: 96, Vocab: 300, ContextLen: 1000, DType: "bf16",
	}
}

// edit changes fields of a JSON file; nil removes one.
func edit(t *testing.T, dir, name string, change map[string]any) {
	t.Helper()
	path := filepath.Join(dir, name)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	fields := map[string]any{}
	if err := json.Unmarshal(raw, &fields); err != nil {
		t.Fatal(err)
	}
	for k, v := range change {
		if fields[k] = v; v == nil {
			delete(fields, k)
		}
	}
	if raw, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	put(t, dir, name, string(raw))
}

func put(t *testing.T, dir, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestLook(t *testing.T) {
	dir := modeltest.Generate(t, spec())
	r := inspect.Look(t.Context(), dir)
	if !r.Servable || len(r.Problems)+len(r.Warnings) > 0 {
		t.Fatalf("problems %q, warnings %q", r.Problems, r.Warnings)
	}
	want := inspect.Parameters{
		Embedding: 300 * 64, Head: 300 * 64, Norms: 64 + 2*2*64, Attention: 2 * 64 * (64 + 32 + 32 + 64), MLP: 2 * 3 * 64 * 96,
	}
	want.Total = want.Embedding + want.Head + want.Norms + want.Attention + want.MLP
	if r.Parameters != want {
		t.Errorf("parameters %+v, want %+v", r.Parameters, want)
	}
	if len(r.DTypes) != 1 || r.DTypes[0].Name != "BF16" || r.DTypes[0].Parameters != want.Total || r.DTypes[0].Bytes != 2*want.Total {
		t.Errorf("types %+v", r.DTypes)
	}
	if r.Family != "llama" || r.Context != 1000 || r.Vocabulary != (inspect.Vocabulary{Rows: 300, Tokens: 300}) || r.Format != "safetensors" {
		t.Errorf("report %+v", r)
	}
	const perToken = 2 * 2 * 2 * 16 * 2 // K and V, layers, heads, values, bytes
	if r.KV.BytesPerToken != perToken {
		t.Errorf("a token takes %d bytes of KV, want %d", r.KV.BytesPerToken, perToken)
	}
	if len(r.Memory) != 4 || r.Memory[3].Workers != 8 || r.Memory[3].KV != 8*1000*perToken ||
		r.Memory[3].Total != r.Memory[3].KV+r.Weights.FileBytes || r.Weights.CopiedBytes != 0 {
		t.Errorf("memory %+v, weights %+v", r.Memory, r.Weights)
	}
	if r.Tokenizer.Kind != "byte-level BPE" || len(r.Tokenizer.Special) != 2 || !slices.Equal(r.Tokenizer.EOS, []uint32{297, 299}) {
		t.Errorf("tokenizer %+v", r.Tokenizer)
	}
	if len(r.Files) != 4 || r.Files[0].Name != "config.json" || len(r.Digest) != 64 {
		t.Errorf("files %+v, digest %s", r.Files, r.Digest)
	}
}

func TestLookAtGGUF(t *testing.T) {
	dir := modeltest.Generate(t, spec())
	folder := inspect.Look(t.Context(), dir)
	r := inspect.Look(t.Context(), modeltest.GGUF(t, dir, gguf.Q8_0))
	if !r.Servable || r.Format != "gguf v3" || r.Parameters != folder.Parameters || r.Shape != folder.Shape || r.KV != folder.KV {
		t.Errorf("report %+v", r)
	}
	matrices := r.Parameters.Total - r.Parameters.Norms
	const ordered = 2 * 64 * (64 + 32) / 32 * 34 // queries and keys of two layers
	if r.Weights.CopiedBytes != ordered || r.DTypes[0].Name != "Q8_0" || r.DTypes[0].Bytes != matrices/32*34 {
		t.Errorf("weights %+v, types %+v", r.Weights, r.DTypes)
	}
	chat, other := r.Chat, folder.Chat
	if a, b := chat.Toggles, other.Toggles; !slices.Equal(a, b) || chat.System != other.System || chat.GenerationPrompt != other.GenerationPrompt {
		t.Errorf("chat %+v, want %+v", chat, other)
	}
}

// TestEveryProblem breaks several things at once and wants all of them told.
func TestEveryProblem(t *testing.T) {
	rewrite := func(t *testing.T, dir string, kind safetensors.DType, shape ...int) { // one tensor only
		var l safetensors.Layout
		if _, err := l.Add("model.norm.weight", kind, shape...); err != nil {
			t.Fatal(err)
		}
		put(t, dir, safetensors.SingleName, string(append(l.Header(nil), make([]byte, l.Size())...)))
	}
	tests := []struct {
		name   string
		damage func(t *testing.T, dir string)
		want   []string
	}{
		{"config, tokenizer, template", func(t *testing.T, dir string) {
			edit(t, dir, "config.json", map[string]any{"hidden_size": -1, "num_hidden_layers": nil, "hidden_act": "relu", "use_sliding_window": "x"})
			put(t, dir, "tokenizer.json", "{")
			edit(t, dir, "tokenizer_config.json", map[string]any{"chat_template": "{% for %}"})
		}, []string{"hidden_size", "num_hidden_layers: missing", `hidden_act`, "load tokenizer.json", "parse template"}},
		{"numbers that contradict each other", func(t *testing.T, dir string) {
			edit(t, dir, "config.json", map[string]any{"num_key_value_heads": 3, "head_dim": 15, "rope_scaling": map[string]any{"rope_type": "dynamic"}})
		}, []string{"num_key_value_heads: 3 does not divide", "head_dim: 15 is odd", `rope_type: "dynamic" is unknown`}},
		{"weights", func(t *testing.T, dir string) { rewrite(t, dir, "F64", 63) },
			[]string{"has shape [63], want [64]", "has type F64", "20 tensors are missing"}},
		{"ids", func(t *testing.T, dir string) {
			edit(t, dir, "generation_config.json", map[string]any{"eos_token_id": 5000})
			edit(t, dir, "config.json", map[string]any{"vocab_size": 290})
		}, []string{"eos_token_id: 5000", "uses id 299", "has shape [300 64], want [290 64]"}},
		{"nothing but weights", func(t *testing.T, dir string) {
			for _, name := range []string{"config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"} {
				if err := os.Remove(filepath.Join(dir, name)); err != nil {
					t.Fatal(err)
				}
			}
		}, []string{"config.json: invalid model configuration: missing"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := modeltest.Generate(t, spec())
			tt.damage(t, dir)
			r := inspect.Look(t.Context(), dir)
			if r.Servable {
				t.Error("it is called servable")
			}
			for _, want := range tt.want {
				if !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, want) }) {
					t.Errorf("nothing about %q in %q", want, r.Problems)
				}
			}
			if _, err := json.Marshal(r); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestEveryProblemOfGGUF(t *testing.T) {
	var b gguftest.Builder
	b.Key("general.architecture", "llama")
	b.Key("llama.block_count", uint32(1))
	b.Key("llama.logit_scale", float32(2))
	b.Key("tokenizer.ggml.model", "bert")
	b.Key("tokenizer.ggml.tokens", []string{"a"})
	b.Tensor("blk.0.attn_q.weight", 6, []int{1, 32}, make([]byte, 22))
	path := filepath.Join(t.TempDir(), "m.gguf")
	b.Write(t, path)
	r := inspect.Look(t.Context(), path)
	for _, want := range []string{"llama.embedding_length is missing", "llama.context_length is missing", "logit_scale is 2", `"bert"; known are gpt2, llama`, "token_embd.weight"} {
		if !slices.ContainsFunc(r.Problems, func(p string) bool { return strings.Contains(p, want) }) {
			t.Errorf("nothing about %q in %q", want, r.Problems)
		}
	}
	if r.Servable || r.DTypes[0].Name != "Q5_0" {
		t.Errorf("types %+v", r.DTypes)
	}
}

// TestTemplateFeatures renders templates that can do more or less.
func TestTemplateFeatures(t *testing.T) {
	const turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
	tests := []struct {
		name, template string
		want           inspect.Chat
		warning        string
	}{
		{"everything", "{% if tools %}{{ tools | tojson }}{% endif %}" +
			"{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls %}{{ c.function.name }}{% endfor %}{% endfor %}" +
			"{% if add_generation_prompt %}<assistant>{% if enable_thinking is defined and not enable_thinking %}<nothink>{% endif %}{% endif %}",
			inspect.Chat{System: true, Turns: true, Tools: true, ToolResults: true, GenerationPrompt: "<assistant>", Toggles: []string{"enable_thinking"}}, ""},
		{"plain", turns, inspect.Chat{System: true, Turns: true}, ""},
		{"no system", "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + turns, inspect.Chat{Turns: true}, ""},
		{"system left out", "{% for m in messages if m.role != 'system' %}{{ m.content }}{% endfor %}", inspect.Chat{Turns: true}, ""},
		{"one turn", "{{ messages[0].content }}", inspect.Chat{}, ""},
		{"other toggles", turns + "{{ reasoning_effort }}{{ thinking }}", inspect.Chat{System: true, Turns: true, Toggles: []string{"thinking", "reasoning_effort"}}, ""},
		{"refuses everything", "{{ raise_exception('never') }}", inspect.Chat{}, "refuses a plain conversation: never"},
		{"says nothing", "hello", inspect.Chat{}, "omits the user's message"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := modeltest.Generate(t, spec())
			edit(t, dir, "tokenizer_config.json", map[string]any{"chat_template": tt.template})
			r := inspect.Look(t.Context(), dir)
			got, want := r.Chat, tt.want
			want.Template = true
			if !slices.Equal(got.Toggles, want.Toggles) {
				t.Errorf("toggles %q, want %q", got.Toggles, want.Toggles)
			}
			got.Toggles, want.Toggles = nil, nil
			if a, b := asJSON(t, got), asJSON(t, want); a != b {
				t.Errorf("got  %s\nwant %s", a, b)
			}
			if w := strings.Join(r.Warnings, "\n"); !strings.Contains(w, tt.warning) || tt.warning == "" && w != "" {
				t.Errorf("warnings %q, want %q", w, tt.warning)
			}
		})
	}
}

func asJSON(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestWarnings(t *testing.T) {
	dir := modeltest.Generate(t, spec())
	edit(t, dir, "tokenizer_config.json", map[string]any{"chat_template": nil, "eos_token": map[string]any{"content": "<gone>"}})
	edit(t, dir, "generation_config.json", map[string]any{"eos_token_id": nil})
	edit(t, dir, "config.json", map[string]any{"eos_token_id": nil})
	r := inspect.Look(t.Context(), dir)
	if !r.Servable {
		t.Errorf("problems %q", r.Problems)
	}
	all := strings.Join(r.Warnings, "\n")
	for _, want := range []string{"no chat template", `eos_token "<gone>" is not a token`, "no end-of-sequence token"} {
		if !strings.Contains(all, want) {
			t.Errorf("nothing about %q in %q", want, all)
		}
	}
}

func TestLookVision(t *testing.T) {
	r := inspect.Look(t.Context(), modeltest.Generate(t, modeltest.Vision()["smolvlm"]))
	if !r.Servable || len(r.Problems)+len(r.Warnings) > 0 {
		t.Fatalf("problems %q, warnings %q", r.Problems, r.Warnings)
	}
	want := inspect.Vision{
		Tower: "idefics3_vision", Layers: 3, Hidden: 24, Heads: 3, FFN: 40, ImageSize: 24, PatchSize: 4, Projector: "shuffle", Tokens: 4,
	}
	if r.Vision == nil || *r.Vision != want {
		t.Errorf("vision %+v, want %+v", r.Vision, want)
	}
	norm, linear := int64(2*24), func(in, out int64) int64 { return in*out + out }
	layer := 2*norm + 4*linear(24, 24) + linear(24, 40) + linear(40, 24)
	weights := linear(3*4*4, 24) + 36*24 + 3*layer + norm + 9*24*32
	text := inspect.Look(t.Context(), modeltest.Generate(t, modeltest.Families()["llama"])).Parameters
	if r.Parameters.Vision != weights || r.Parameters.Total != text.Total+weights || r.Parameters.Attention != text.Attention {
		t.Errorf("parameters %+v, want %d for vision and %+v", r.Parameters, weights, text)
	}
}

// TestLookMmproj: a GGUF file and the mmproj file beside it are one model; alone the latter is none.
func TestLookMmproj(t *testing.T) {
	dir := modeltest.Sighted(t, "qwen2_5_vl")
	want := inspect.Look(t.Context(), dir)
	folder := modeltest.VisionGGUF(t, dir, modeltest.MmprojForm{})
	mmproj := filepath.Join(folder, "mmproj-model.gguf")
	r := inspect.Look(t.Context(), folder)
	if !r.Servable || len(r.Warnings) > 0 || r.Mmproj != mmproj || !r.SeesImages || r.Vision == nil || *r.Vision != *want.Vision {
		t.Errorf("report %+v, vision %+v", r, r.Vision)
	}
	if r.Parameters != want.Parameters {
		t.Errorf("parameters %+v, want %+v", r.Parameters, want.Parameters)
	}
	if r := inspect.Look(t.Context(), mmproj); r.Servable || len(r.Problems) == 0 || !strings.Contains(r.Problems[0], "name the GGUF file of its text model") {
		t.Errorf("problems %q", r.Problems)
	}
}
