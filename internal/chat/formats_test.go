package chat_test

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/chat/parse"
)

func TestFormats(t *testing.T) {
	for _, tc := range []struct {
		name            string
		files           map[string]string
		tool, reasoning string
		tools           bool
	}{
		{"no template", nil, "", "", false},
		{"plain", map[string]string{chat.TemplateFile: chatML}, "", "", false},
		{"tools", map[string]string{chat.TemplateFile: "{% if tools %}<tool_call>{% endif %}<think>"}, "hermes", "basic", true},
		{"template of tools", map[string]string{chat.TokenizerConfigFile: `{"chat_template": [{"name": "default", "template": "a"}, {"name": "tool_use", "template": "[TOOL_CALLS]{{ tools }}"}]}`}, "mistral", "", true},
	} {
		p := load(t, files(t, tc.files))
		if tool, reasoning := p.Formats(); tool != tc.tool || reasoning != tc.reasoning || p.TakesTools() != tc.tools {
			t.Errorf("%s: %q, %q, tools %v", tc.name, tool, reasoning, p.TakesTools())
		}
	}
}

// Marks that are special tokens leave their text, other special tokens do not.
func TestKeep(t *testing.T) {
	p := load(t, files(t, nil))
	keep := p.SpecialTokens(append(parse.Marks("llama3_json", ""), "there", "no such token"))
	if len(keep) != 1 {
		t.Fatalf("special tokens %v", keep)
	}
	ids := p.EncodeChat("<|begin_of_text|>Hi<|python_tag|>{}<|eom_id|>")
	for _, kept := range []bool{false, true} {
		d := p.NewDetokenizer(chat.NewStops([]string{"never"}), false, true)
		want := "Hi{}"
		if kept {
			d.Keep(keep)
			want = "Hi<|python_tag|>{}"
		}
		var got strings.Builder
		for _, id := range ids {
			text, _ := d.Push([]uint32{id})
			got.WriteString(text)
		}
		got.WriteString(d.Flush())
		if got.String() != want {
			t.Errorf("kept %v: got %q, want %q", kept, got.String(), want)
		}
	}
}
