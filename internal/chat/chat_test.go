package chat_test

import (
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/jinja"
)

func tokenizerFile(t testing.TB, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile("testdata/" + name + ".tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func load(t testing.TB, files chat.Files) *chat.Processor {
	t.Helper()
	p, err := chat.Load(files)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// files returns a llama3-like model's files with some of them replaced.
func files(t testing.TB, more map[string]string) chat.Files {
	t.Helper()
	f := chat.Files{chat.TokenizerFile: tokenizerFile(t, "llama3-like")}
	for name, content := range more {
		f[name] = []byte(content)
	}
	return f
}

func withTemplate(t testing.TB, template string) *chat.Processor {
	t.Helper()
	return load(t, files(t, map[string]string{chat.TemplateFile: template}))
}

func messages(list ...string) []json.RawMessage {
	var out []json.RawMessage
	for _, m := range list {
		out = append(out, json.RawMessage(m))
	}
	return out
}

const chatML = `{% for m in messages %}<{{ m.role }}>{{ m.content }}</>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

func TestLoadErrors(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		words []string // in the error
	}{
		{"no tokenizer", map[string]string{chat.TokenizerFile: ""}, []string{"tokenizer.json"}},
		{"broken tokenizer", map[string]string{chat.TokenizerFile: "{"}, []string{"tokenizer.json"}},
		{"tokenizer config is not JSON", map[string]string{chat.TokenizerConfigFile: "{,"}, []string{"tokenizer_config.json"}},
		{"tokenizer config is not an object", map[string]string{chat.TokenizerConfigFile: "[]"}, []string{"tokenizer_config.json", "object"}},
		{"token of the wrong type", map[string]string{chat.TokenizerConfigFile: `{"bos_token": 5}`}, []string{"tokenizer_config.json", "bos_token"}},
		{"token object without content", map[string]string{chat.TokenizerConfigFile: `{"eos_token": {"lstrip": true}}`}, []string{"eos_token"}},
		{"additional token", map[string]string{chat.TokenizerConfigFile: `{"additional_special_tokens": ["<a>", 3]}`}, []string{"additional_special_tokens[1]"}},
		{"add_bos_token", map[string]string{chat.TokenizerConfigFile: `{"add_bos_token": "yes"}`}, []string{"add_bos_token"}},
		{"add_bos_token without a token", map[string]string{chat.TokenizerConfigFile: `{"add_bos_token": true, "tokenizer_class": "LlamaTokenizer"}`}, []string{"bos_token"}},
		{"template of the wrong type", map[string]string{chat.TokenizerConfigFile: `{"chat_template": 1}`}, []string{"chat_template"}},
		{"template list entry", map[string]string{chat.TokenizerConfigFile: `{"chat_template": [{"name": "default"}]}`}, []string{"chat_template[0]"}},
		{"template syntax", map[string]string{chat.TemplateFile: "a\nb{% if %}"}, []string{"chat_template.jinja", "line 2"}},
		{"template syntax in a list", map[string]string{chat.TokenizerConfigFile: `{"chat_template": [{"name": "tool_use", "template": "{{"}]}`}, []string{"tokenizer_config.json:tool_use", "line 1"}},
		{"old template file", map[string]string{chat.TemplateJSONFile: `{}`}, []string{"chat_template.json"}},
		{"generation config", map[string]string{chat.GenerationConfigFile: `{"temperature": "hot"}`}, []string{"generation_config.json", "temperature"}},
		{"top_k", map[string]string{chat.GenerationConfigFile: `{"top_k": 1.5}`}, []string{"top_k"}},
		{"do_sample", map[string]string{chat.GenerationConfigFile: `{"do_sample": 1}`}, []string{"do_sample"}},
		{"eos in generation config", map[string]string{chat.GenerationConfigFile: `{"eos_token_id": [1, "2"]}`}, []string{"generation_config.json", "eos_token_id"}},
		{"eos in config", map[string]string{chat.ModelConfigFile: `{"eos_token_id": 1.5}`}, []string{"config.json", "eos_token_id"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := files(t, tt.files)
			if len(f[chat.TokenizerFile]) == 0 {
				delete(f, chat.TokenizerFile)
			}
			_, err := chat.Load(f)
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tt.words {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q does not name %q", err, w)
				}
			}
		})
	}
}

func TestTemplateChoice(t *testing.T) {
	list := `{"chat_template": [{"name": "tool_use", "template": "tools {{ tools|length }}"}, {"name": "default", "template": "plain"}, {"name": "rag", "template": "rag"}]}`
	tools := `[{"type": "function", "function": {"name": "f"}}]`
	tests := []struct {
		name  string
		files map[string]string
		tools string
		want  string
		err   error
	}{
		{"file wins", map[string]string{chat.TemplateFile: "file", chat.TokenizerConfigFile: list}, tools, "file", nil},
		{"string", map[string]string{chat.TokenizerConfigFile: `{"chat_template": "string"}`}, "", "string", nil},
		{"config wins over the old form", map[string]string{chat.TokenizerConfigFile: `{"chat_template": "string"}`, chat.TemplateJSONFile: `{"chat_template": "old"}`}, "", "string", nil},
		{"old form", map[string]string{chat.TemplateJSONFile: `{"chat_template": "old"}`}, "", "old", nil},
		{"list without tools", map[string]string{chat.TokenizerConfigFile: list}, "", "plain", nil},
		{"list with an empty list of tools", map[string]string{chat.TokenizerConfigFile: list}, "[]", "plain", nil},
		{"list with tools", map[string]string{chat.TokenizerConfigFile: list}, tools, "tools 1", nil},
		{"files without tools", map[string]string{chat.TemplateFile: "file", chat.TemplateFolder + "tool_use.jinja": "folder"}, "", "file", nil},
		{"files with tools", map[string]string{chat.TemplateFile: "file", chat.TemplateFolder + "tool_use.jinja": "folder", chat.TokenizerConfigFile: list}, tools, "folder", nil},
		{"none", nil, "", "", chat.ErrNoTemplate},
		{"null", map[string]string{chat.TokenizerConfigFile: `{"chat_template": null}`}, "", "", chat.ErrNoTemplate},
		{"list without default", map[string]string{chat.TokenizerConfigFile: `{"chat_template": [{"name": "rag", "template": ""}]}`}, "", "", chat.ErrNoTemplate},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := load(t, files(t, tt.files))
			got, err := p.RenderChat(t.Context(), messages(`{"role":"user","content":"x"}`), json.RawMessage(tt.tools), nil, true)
			if got != tt.want || !errors.Is(err, tt.err) {
				t.Errorf("got %q, %v, want %q, %v", got, err, tt.want, tt.err)
			}
			if tt.name == "none" && (p.HasTemplate() || !strings.Contains(err.Error(), "chat_template.jinja")) {
				t.Errorf("error %q does not say what to do", err)
			}
		})
	}
}

func TestVariables(t *testing.T) {
	config := `{
		"bos_token": "<|begin_of_text|>", "eos_token": {"content": "<|end|>", "lstrip": false}, "pad_token": null, "unk_token": "<u>",
		"image_token": "<img>", "num_image_token": 256, "use_default_token": true,
		"additional_special_tokens": ["<a>", {"content": "<b>"}], "extra_special_tokens": {"video_token": "<vid>"}, "model_max_length": 4096
	}`
	template := `{{ bos_token }}|{{ eos_token }}|{{ pad_token is defined }}|{{ unk_token }}|{{ image_token }}|{{ num_image_token is defined }}|` +
		`{{ additional_special_tokens|join(",") }}|{{ video_token }}|{{ tools is none }}|{{ documents is none }}|{{ add_generation_prompt }}|` +
		`{{ enable_thinking }}|{{ level }}|{{ strftime_now("%d %b %Y") }}|{{ sep_token }}`
	p := load(t, files(t, map[string]string{
		chat.TokenizerConfigFile: config, chat.TemplateFile: template,
		chat.SpecialTokensFile: `{"sep_token": "<sep>", "bos_token": "<other>"}`,
	}))
	p.SetClock(func() time.Time { return time.Date(2026, 3, 4, 5, 6, 7, 0, time.Local) })
	kwargs := map[string]json.RawMessage{"enable_thinking": json.RawMessage("false"), "level": json.RawMessage(`{"a":[1.0]}`), "unk_token": json.RawMessage(`"own"`)}
	got, err := p.RenderChat(t.Context(), nil, nil, kwargs, false)
	want := "<|begin_of_text|>|<|end|>|False|own|<img>|False|<a>,<b>|<vid>|True|True|False|False|{'a': [1.0]}|04 Mar 2026|<sep>"
	if err != nil || got != want {
		t.Errorf("got  %q, %v\nwant %q", got, err, want)
	}
	if p.ContextHint() != 4096 {
		t.Errorf("context: got %d, want 4096", p.ContextHint())
	}
	for _, bad := range []map[string]json.RawMessage{{"messages": json.RawMessage("[]")}, {"x": json.RawMessage("{")}} {
		if _, err := p.RenderChat(t.Context(), nil, nil, bad, false); !errors.Is(err, chat.ErrMessages) {
			t.Errorf("kwargs %s: got %v, want ErrMessages", bad, err)
		}
	}
}

func TestRenderChat(t *testing.T) {
	const (
		strict = `{% for m in messages %}{% if m.role == "system" and not loop.first %}{{ raise_exception("system message must come first") }}{% endif %}{{ m.role ~ ":" + m.content ~ ";" }}{% endfor %}`
		parts  = `{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content %}{{ p.text if p.type == "text" else "<" ~ p.type ~ ">" }}{% endfor %}{% endif %};{% endfor %}`
		only   = `{% for m in messages %}{{ m.role }}:{% for p in m.content %}({{ p.type }} {{ p.text }}){% endfor %};{% endfor %}`
		object = `{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }} {{ c.function.arguments|tojson }}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %};{% endfor %}{% endfor %}`
		text   = `{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name + c.function.arguments }};{% endfor %}{% endfor %}`
		knows  = `{% for m in messages %}{% if m.role == "developer" %}dev{% else %}{{ m.role }}{% endif %}:{{ m.content }};{% endfor %}`
	)
	call := `{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":"{\"b\": 1, \"a\": 2.0}"}}]}`
	list := `{"role":"user","content":[{"type":"text","text":"one"},{"type":"text","text":"two"}]}`
	image := `{"role":"user","content":[{"type":"text","text":"see"},{"type":"image_url","image_url":{"url":"data:"}}]}`
	tests := []struct {
		name, template string
		messages       []json.RawMessage
		want           string
		err            string // in the error
	}{
		{"plain", chatML, messages(`{"role":"user","content":"hi"}`), "<user>hi</><assistant>", ""},
		{"order of keys", `{{ messages[0]|tojson }}`, messages(`{"role":"user","z":1,"content":"x","a":1.0}`), `{"role": "user", "z": 1, "content": "x", "a": 1.0}`, ""},
		{"no messages", chatML, nil, "<assistant>", ""},
		{"null content stays none", `{{ messages[0].content is none }}`, messages(call), "True", ""},
		{"parts become text", chatML, messages(list), "<user>one\ntwo</><assistant>", ""},
		{"parts stay parts", parts, messages(list, image), "user:onetwo;user:see<image_url>;", ""},
		{"text stays text", parts, messages(`{"role":"user","content":"hi"}`), "user:hi;", ""},
		{"text becomes a part", only, messages(`{"role":"user","content":"hi"}`), "user:(text hi);", ""},
		{"image where only text fits", chatML, messages(image), "", "image_url"},
		{"developer becomes system", chatML, messages(`{"role":"developer","content":"be"}`), "<system>be</><assistant>", ""},
		{"developer where it is known", knows, messages(`{"role":"developer","content":"be"}`), "dev:be;", ""},
		{"two system messages where that works", chatML, messages(`{"role":"system","content":"a"}`, `{"role":"system","content":"b"}`), "<system>a</><system>b</><assistant>", ""},
		{"two system messages where one is allowed", strict, messages(`{"role":"system","content":"a"}`, `{"role":"user","content":"q"}`, `{"role":"developer","content":"b"}`), "system:a\n\nb;user:q;", ""},
		{"refused", strict, messages(`{"role":"user","content":"q"}`, `{"role":"system","content":"a"}`), "", "system message must come first"},
		{"arguments become an object", object, messages(call), `f {"b": 1, "a": 2.0} b=1 a=2.0;`, ""},
		{"arguments stay text where text is wanted", text, messages(call), `f{"b": 1, "a": 2.0};`, ""},
		{"no arguments", object, messages(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":""}}]}`), "f {};", ""},
		{"arguments that are not JSON", text, messages(`{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":"oops"}}]}`), "foops;", ""},
		{"odd tool calls", chatML, messages(`{"role":"assistant","content":"x","tool_calls":[1,{"function":2},{"function":{"arguments":3}}]}`), "<assistant>x</><assistant>", ""},
		{"null content where it would be written", `{% for m in messages %}{{ m.role ~ ":" ~ m.content }};{% endfor %}`, messages(call), "assistant:;", ""},
		{"null content where it fails", `{% for m in messages %}{{ m.role + m.content }};{% endfor %}`, messages(call, `{"role":"user"}`), "assistant;user;", ""},
		{"null content among parts", only, messages(`{"role":"user","content":null}`), "user:;", ""},
		{"nulls and empty lists of calls", `{{ messages|tojson }}`, messages(`{"role":"assistant","refusal":null,"content":"x","tool_calls":[],"name":null}`, `{"role":"assistant","content":"y","tool_calls":null}`),
			`[{"role": "assistant", "content": "x"}, {"role": "assistant", "content": "y"}]`, ""},
		{"calls without arguments", object, messages(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f"}},{"function":{"name":"g","arguments":null}}]}`), "f {};g {};", ""},
		{"arguments that were cut off, where an object is wanted", object, messages(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\": tr"}}]}`),
			`f {"arguments": "{\"a\": tr"} arguments={"a": tr;`, ""},
		{"a refusal", chatML, messages(`{"role":"assistant","content":[{"type":"refusal","refusal":"no"},{"type":"text","text":"way"}]}`), "<assistant>no\nway</><assistant>", ""},
		{"parts by filters", `{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}{{ m.content | selectattr("type","equalto","text") | map(attribute="text") | join(" ") }}{% endif %};{% endfor %}`,
			messages(list), "user:one two;", ""},
		{"only the first part", `{% for m in messages %}{{ m.content if m.content is string else m.content[0].text }}{% endfor %}`, messages(list), "one\ntwo", ""},
		{"parts after a system message", `{{ raise_exception("no system") if messages[0].role != "system" }}{% for m in messages %}{% for p in m.content if m.content is not string %}({{ p.text }}){% endfor %}{% endfor %}`,
			messages(`{"role":"system","content":"s"}`, list), "(s)(one)(two)", ""},
		{"not an object", chatML, messages(`5`), "", "message 0"},
		{"not JSON", chatML, messages(`{"role":"user","content":"x"}`, `{`), "", "message 1"},
		{"no role", chatML, messages(`{"content":"x"}`), "", "role"},
		{"content of another type", chatML, messages(`{"role":"user","content":5}`), "", "content"},
		{"part without type", chatML, messages(`{"role":"user","content":[{"text":"x"}]}`), "", "part 0"},
		{"part without text", chatML, messages(`{"role":"user","content":[{"type":"text"}]}`), "", "part 0"},
		{"part that is no object", chatML, messages(`{"role":"user","content":["x"]}`), "", "part 0"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := withTemplate(t, tt.template)
			got, err := p.RenderChat(t.Context(), tt.messages, nil, nil, true)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Errorf("got %q, error %v, want an error with %q", got, err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %q, %v, want %q", got, err, tt.want)
			}
		})
	}
}

func TestRenderChatErrors(t *testing.T) {
	user := messages(`{"role":"user","content":"x"}`)
	var raised *jinja.RaiseError
	if _, err := withTemplate(t, `{{ raise_exception("not like this") }}`).RenderChat(t.Context(), user, nil, nil, true); !errors.As(err, &raised) || raised.Message != "not like this" {
		t.Errorf("got %v, want the template's words", err)
	}
	var failed *jinja.RenderError
	if _, err := withTemplate(t, `{{ messages[5].content.x }}`).RenderChat(t.Context(), user, nil, nil, true); !errors.As(err, &failed) || failed.Kind != jinja.UndefinedError {
		t.Errorf("got %v, want an undefined error", err)
	}
	if _, err := withTemplate(t, `{{ "x" * 10**12 }}`).RenderChat(t.Context(), user, nil, nil, true); !errors.Is(err, jinja.ErrLimit) {
		t.Errorf("got %v, want a limit", err)
	}
	for _, tools := range []string{`{}`, `[`, `"x"`} {
		if _, err := withTemplate(t, chatML).RenderChat(t.Context(), user, json.RawMessage(tools), nil, true); !errors.Is(err, chat.ErrMessages) {
			t.Errorf("tools %s: got %v, want ErrMessages", tools, err)
		}
	}
}

func TestEncode(t *testing.T) {
	plain := load(t, files(t, nil))
	bos, ok := plain.TokenID("<|begin_of_text|>")
	if !ok {
		t.Fatal("the tokenizer has no first token")
	}
	if !plain.IsSpecial(bos) || int(bos) >= plain.VocabSize() {
		t.Errorf("first token %d: special %v, vocabulary %d", bos, plain.IsSpecial(bos), plain.VocabSize())
	}
	hi := plain.EncodeChat("hi")
	if slices.Contains(hi, bos) {
		t.Errorf("EncodeChat added a first token: %v", hi)
	}
	if got := plain.EncodeChat("<|begin_of_text|>hi"); !slices.Equal(got, append([]uint32{bos}, hi...)) {
		t.Errorf("got %v, want the special token in the text recognized", got)
	}
	if got := plain.EncodePrompt("hi"); !slices.Equal(got, append([]uint32{bos}, hi...)) {
		t.Errorf("got %v, want the post-processor's first token", got)
	}
	eot := ""
	for _, name := range []string{"<|eot_id|>", "<|end_of_text|>"} {
		if _, ok := plain.TokenID(name); ok {
			eot = name
		}
	}
	if eot == "" {
		t.Fatal("the tokenizer has no end token")
	}
	end, _ := plain.TokenID(eot)
	tests := []struct {
		config string
		want   []uint32
	}{
		{`{"tokenizer_class": "LlamaTokenizerFast", "bos_token": "<|begin_of_text|>", "eos_token": "` + eot + `", "add_bos_token": false}`, hi},
		{`{"tokenizer_class": "LlamaTokenizer", "bos_token": "<|begin_of_text|>", "eos_token": "` + eot + `", "add_eos_token": true}`, slices.Concat([]uint32{bos}, hi, []uint32{end})},
		{`{"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<|begin_of_text|>", "add_bos_token": false}`, slices.Concat([]uint32{bos}, hi)},
		{`{"tokenizer_class": "LlamaTokenizer"}`, slices.Concat([]uint32{bos}, hi)},
	}
	for _, tt := range tests {
		p := load(t, files(t, map[string]string{chat.TokenizerConfigFile: tt.config}))
		if got := p.EncodePrompt("hi"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %v, want %v", tt.config, got, tt.want)
		}
		if got := p.EncodePrompt("hi"); !slices.Equal(got, tt.want) {
			t.Errorf("%s: second call: got %v, want %v", tt.config, got, tt.want)
		}
	}
	if got := plain.Decode(append([]uint32{bos}, hi...)); got != "hi" {
		t.Errorf("got %q, want the text without special tokens", got)
	}
}

func TestGenerationConfig(t *testing.T) {
	p := load(t, files(t, map[string]string{
		chat.GenerationConfigFile: `{"eos_token_id": [7, 9], "temperature": 0.6, "top_p": 1, "top_k": 20, "min_p": null, "repetition_penalty": 1.05, "do_sample": false}`,
		chat.ModelConfigFile:      `{"eos_token_id": 5, "text_config": {"max_position_embeddings": 2048}}`,
		chat.TokenizerConfigFile:  `{"model_max_length": 1000000000000000019884624838656}`,
	}))
	d := p.Defaults()
	if *d.Temperature != 0.6 || *d.TopP != 1 || *d.TopK != 20 || d.MinP != nil || *d.RepetitionPenalty != 1.05 || *d.DoSample {
		t.Errorf("defaults: got %+v", d)
	}
	if got := p.EOS(); !slices.Equal(got, []uint32{7, 9}) {
		t.Errorf("EOS: got %v, want 7 and 9", got)
	}
	if p.ContextHint() != 2048 {
		t.Errorf("context: got %d, want 2048", p.ContextHint())
	}

	p = load(t, files(t, map[string]string{chat.ModelConfigFile: `{"eos_token_id": 5, "max_position_embeddings": 128}`, chat.GenerationConfigFile: `{}`}))
	if got := p.EOS(); !slices.Equal(got, []uint32{5}) || p.ContextHint() != 128 {
		t.Errorf("got EOS %v and context %d, want config.json's", got, p.ContextHint())
	}

	bos, _ := p.TokenID("<|begin_of_text|>")
	p = load(t, files(t, map[string]string{chat.TokenizerConfigFile: `{"eos_token": "<|begin_of_text|>"}`, chat.GenerationConfigFile: `{"eos_token_id": 3}`}))
	if got := p.EOS(); !slices.Equal(got, []uint32{3, bos}) {
		t.Errorf("EOS: got %v, want 3 and the tokenizer's end token %d", got, bos)
	}
	p = load(t, files(t, nil))
	if len(p.EOS()) != 0 || p.ContextHint() != 0 || p.Defaults() != (chat.GenerationDefaults{}) {
		t.Errorf("without files: EOS %v, context %d, defaults %+v", p.EOS(), p.ContextHint(), p.Defaults())
	}
}

func TestConcurrentUse(t *testing.T) {
	p := withTemplate(t, chatML)
	var wg sync.WaitGroup
	for range 6 {
		wg.Go(func() {
			for range 20 {
				text, err := p.RenderChat(t.Context(), messages(`{"role":"user","content":"hello there"}`), nil, nil, true)
				if err != nil || text != "<user>hello there</><assistant>" {
					t.Errorf("got %q, %v", text, err)
				}
				d := p.NewDetokenizer(chat.NewStops([]string{"</>"}), false, true)
				if got, stopped := d.Push(p.EncodeChat(text)); got != "<user>hello there" || !stopped {
					t.Errorf("got %q, %v", got, stopped)
				}
			}
		})
	}
	wg.Wait()
}

func FuzzRenderChat(f *testing.F) {
	p, err := chat.Load(chat.Files{
		chat.TokenizerFile: tokenizerFile(f, "llama3-like"),
		chat.TemplateFile:  []byte(`{% for m in messages %}{{ m.role }}{% if m.content is string %}{{ m.content }}{% else %}{% for p in m.content or [] %}{{ p.text }}{% endfor %}{% endif %}{{ m.tool_calls|tojson if m.tool_calls }}{% endfor %}`),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(`{"role":"user","content":"hi"}`, `[{"type":"function"}]`)
	f.Add(`{"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":"{\"a\":1}"}}]}`, ``)
	f.Add(`{"role":"developer","content":[{"type":"text","text":"x"}]}`, `null`)
	f.Fuzz(func(t *testing.T, message, tools string) {
		_, _ = p.RenderChat(t.Context(), messages(message, message), json.RawMessage(tools), nil, true)
	})
}
