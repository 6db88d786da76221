package jinja_test

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/jinja"
)

func BenchmarkParse(b *testing.B) {
	raw, err := os.ReadFile("testdata/shapes/thinking.jinja")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := jinja.Parse("thinking", string(raw)); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkRender renders a conversation of 40 turns with a tool definition, the
// variables read from JSON each time as a server does.
func BenchmarkRender(b *testing.B) {
	raw, err := os.ReadFile("testdata/shapes/thinking.jinja")
	if err != nil {
		b.Fatal(err)
	}
	tmpl, err := jinja.Parse("thinking", string(raw))
	if err != nil {
		b.Fatal(err)
	}
	text := strings.Repeat("All work and no play makes a dull conversation. ", 20)
	turn := `{"role":"user","content":"` + text + `"},{"role":"assistant","content":"<think>\nhm\n</think>\n\n` + text + `"}`
	data := json.RawMessage(`{"add_generation_prompt":true,"tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object"}}}],"messages":[` +
		strings.Repeat(turn+",", 19) + turn + `]}`)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		v, err := jinja.FromJSON(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := tmpl.Render(b.Context(), v.(*jinja.Dict), jinja.Options{}); err != nil {
			b.Fatal(err)
		}
	}
}
