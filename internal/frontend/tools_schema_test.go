package frontend

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat/parse"
	"github.com/dynctl/dynctl/internal/grammar/pda"
	"github.com/dynctl/dynctl/internal/grammar/schema"
)

// The schemas of tools reach the grammar as they were sent: order, numbers, duplicates and
// spelling of what is in them, and what their references mean. Arguments are objects.
func TestForcedCallsKeepSchemas(t *testing.T) {
	for _, tt := range []struct {
		parameters []string
		yes, no    []string
	}{
		{[]string{`{"type":"object","properties":{"zeta":{"type":"integer"},"alpha":{"type":"integer"}},"required":["zeta","alpha"]}`},
			[]string{`[{"name":"f0","parameters":{"zeta":1,"alpha":2}}]`}, []string{`[{"name":"f0","parameters":{"alpha":1,"zeta":2}}]`}},
		{[]string{`{}`, `null`, ``, ` { } `}, []string{
			`[{"name":"f0","parameters":{}}]`, `[{"name":"f1","parameters":{"x":[1]}},{"name":"f2","parameters":{}}]`, `[{"name":"f3","parameters":{"a":null}}]`,
		}, []string{`[{"name":"f0","parameters":[]}]`, `[{"name":"f1","parameters":"x"}]`, `[{"name":"f2","parameters":null}]`, `[{"name":"f3","parameters":1}]`}},
		{[]string{`{"type":"object","properties":{"n":{"const":12345678901234567890}}}`},
			[]string{`[{"name":"f0","parameters":{"n":12345678901234567890}}]`}, []string{`[{"name":"f0","parameters":{"n":12345678901234567000}}]`}},
		{[]string{
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"$defs":{"x":{"type":"null"}}}`,
			`{"type":"object","properties":{"a":{"$ref":"#/$defs/x"}},"required":["a"],"$defs":{"x":{"type":"boolean"}}}`,
			`{"$id":"https://example.com/s","type":"object","properties":{"a":{"items":{"$ref":"#"}, "type":"array"}}}`,
		}, []string{
			`[{"name":"f0","parameters":{"a":null}}]`, `[{"name":"f1","parameters":{"a":true}}]`, `[{"name":"f2","parameters":{"a":[{},{"a":[]}]}}]`,
		}, []string{`[{"name":"f0","parameters":{"a":true}}]`, `[{"name":"f1","parameters":{"a":null}}]`, `[{"name":"f2","parameters":{"a":[1]}}]`}},
		{[]string{`{"type":"object","properties":{"v":{"enum":[{"$ref":"#/a"}]}}}`},
			[]string{`[{"name":"f0","parameters":{"v":{"$ref":"#/a"}}}]`}, []string{`[{"name":"f0","parameters":{"v":{"$ref":"#/$defs/tool0/a"}}}]`}},
	} {
		var r toolRequest
		for i, p := range tt.parameters {
			r.list = append(r.list, parse.Tool{Name: fmt.Sprint("f", i), Parameters: json.RawMessage(p)})
		}
		rules, root, err := schema.Compile([]byte(r.calls().Text), schema.Options{Lax: true, Compact: true})
		if err != nil {
			t.Errorf("%s: %v", tt.parameters, err)
			continue
		}
		a, err := pda.Compile(rules, root, nil, pda.DefaultLimits())
		if err != nil {
			t.Errorf("%s: %v", tt.parameters, err)
			continue
		}
		matches := func(text string) bool {
			var s pda.Scratch
			items, ended := a.Start(&s)
			for i := range len(text) {
				items, ended, _ = a.Step(&s, nil, items, text[i])
			}
			return ended
		}
		for _, text := range tt.yes {
			if !matches(text) {
				t.Errorf("%s refuses %s", tt.parameters, text)
			}
		}
		for _, text := range tt.no {
			if matches(text) {
				t.Errorf("%s accepts %s", tt.parameters, text)
			}
		}
	}
}

// A forced call that is cut off before its name leaves no content.
func TestForcedCallIsCutOff(t *testing.T) {
	for _, text := range []string{`[`, `[{"na`, `[{"name":"f"`} {
		w := newWorld(t)
		w.fake("worker-1", say(text), roomy)
		f := w.frontend().waitModel(1)
		got := readAll(t, f.post("/v1/chat/completions", chatBody(body{"tools": []any{tool(nil)}, "tool_choice": "required"})))
		if !strings.Contains(got, `"content":null`) || strings.Contains(got, "tool_calls") {
			t.Errorf("%s: %s", text, got)
		}
	}
}
