//go:build !race

package frontend

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/dynctl/dynctl/internal/protocol"
)

// What clients ask for reaches the worker as one constraint.
func TestGuidedRequests(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say("{}"), roomy)
	f := w.frontend().waitModel(1)
	schema := body{"type": "object"}
	const schemaText = `{"type":"object"}`
	for name, tc := range map[string]struct {
		more body
		want *protocol.Guided
	}{
		"text":            {body{"response_format": body{"type": "text"}}, nil},
		"json_object":     {body{"response_format": body{"type": "json_object"}}, &protocol.Guided{Kind: "json_object"}},
		"json_schema":     {body{"response_format": body{"type": "json_schema", "json_schema": body{"name": "x", "schema": schema}}}, &protocol.Guided{Kind: "json_schema", Text: schemaText, Lax: true}},
		"strict":          {body{"response_format": body{"type": "json_schema", "json_schema": body{"name": "x", "strict": true, "schema": schema}}}, &protocol.Guided{Kind: "json_schema", Text: schemaText}},
		"guided_json":     {body{"guided_json": schema}, &protocol.Guided{Kind: "json_schema", Text: schemaText}},
		"in a string":     {body{"guided_json": schemaText}, &protocol.Guided{Kind: "json_schema", Text: schemaText}},
		"guided_regex":    {body{"guided_regex": "a+"}, &protocol.Guided{Kind: "regex", Text: "a+"}},
		"guided_choice":   {body{"guided_choice": []string{"yes", "no"}}, &protocol.Guided{Kind: "choice", Choices: []string{"yes", "no"}}},
		"guided_grammar":  {body{"guided_grammar": `root ::= "a"`}, &protocol.Guided{Kind: "ebnf", Text: `root ::= "a"`}},
		"structured json": {body{"structured_outputs": body{"json": schema}}, &protocol.Guided{Kind: "json_schema", Text: schemaText}},
		"structured any":  {body{"structured_outputs": body{"json_object": true}}, &protocol.Guided{Kind: "json_object"}},
		"no tool choice":  {body{"response_format": body{"type": "json_object"}, "tools": []any{tool(nil)}, "tool_choice": "none"}, &protocol.Guided{Kind: "json_object"}},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(fk.got())
			wholeAnswer(t, f.post("/v1/chat/completions", chatBody(tc.more)))
			if got := fk.got()[before].Guided; !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestGuidedRefusals(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("{}"), roomy)
	f := w.frontend().waitModel(1)
	format := func(schema any) body {
		return body{"response_format": body{"type": "json_schema", "json_schema": body{"name": "x", "strict": true, "schema": schema}}}
	}
	for _, tc := range []struct {
		name             string
		more             body
		param, code, say string
	}{
		{"format a string", body{"response_format": "json"}, "response_format", "invalid_type", ""},
		{"format without type", body{"response_format": body{}}, "response_format.type", "missing_required_parameter", ""},
		{"format unknown", body{"response_format": body{"type": "xml"}}, "response_format.type", "invalid_value", "'xml'"},
		{"schema missing", body{"response_format": body{"type": "json_schema"}}, "response_format.json_schema", "missing_required_parameter", ""},
		{"schema without name", body{"response_format": body{"type": "json_schema", "json_schema": body{"schema": body{}}}}, "response_format.json_schema.name", "missing_required_parameter", ""},
		{"schema null", body{"response_format": body{"type": "json_schema", "json_schema": body{"name": "x", "schema": nil}}}, "response_format.json_schema.schema", "missing_required_parameter", ""},
		{"impossible", format(body{"type": "object", "properties": body{"age": body{"type": "integer", "minimum": 5, "maximum": 3}}, "required": []string{"age"}}), "response_format.json_schema.schema", "invalid_value", "#/properties/age"},
		{"unsupported", format(body{"type": "object", "properties": body{"a": body{"not": body{}}}}), "response_format.json_schema.schema", "invalid_value", "#/properties/a"},
		{"regex", body{"guided_regex": "a(b"}, "guided_regex", "invalid_value", ""},
		{"regex a number", body{"guided_regex": 5}, "guided_regex", "invalid_type", "string"},
		{"grammar", body{"guided_grammar": "root ::= nobody"}, "guided_grammar", "invalid_value", "nobody"},
		{"choice empty", body{"guided_choice": []string{}}, "guided_choice", "invalid_value", "empty"},
		{"choice a string", body{"guided_choice": "yes"}, "guided_choice", "invalid_type", "list"},
		{"structured unknown", body{"structured_outputs": body{"yaml": 1}}, "structured_outputs.yaml", "unknown_parameter", ""},
		{"two forms", body{"guided_regex": "a", "response_format": body{"type": "json_object"}}, "response_format", "invalid_value", "'guided_regex'"},
		{"with tools", body{"guided_regex": "a", "tools": []any{tool(nil)}}, "guided_regex", "invalid_value", "tool_choice"},
		{"tool schema", body{"tools": []any{tool(body{"parameters": body{"type": "object", "properties": body{"n": body{"type": "integer", "minimum": 5, "maximum": 3}}, "required": []string{"n"}}})}, "tool_choice": "required"}, "tools", "invalid_value", "minimum"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := f.post("/v1/chat/completions", chatBody(tc.more))
			e := failureOf(t, resp)
			if resp.StatusCode != 400 || e.param() != tc.param || e.code() != tc.code || !strings.Contains(e.Error.Message, tc.say) {
				t.Errorf("status %d, param %q, code %q, %q", resp.StatusCode, e.param(), e.code(), e.Error.Message)
			}
		})
	}
}

// A forced call is a constraint on the text and is read as one list of calls.
func TestForcedCalls(t *testing.T) {
	w := newWorld(t)
	fk := w.fake("worker-1", say(`[{"name":"get_weather","parameters":{"city":"[\"x\"]"}},{"name":"get_time","parameters":{}}]`), roomy)
	client := w.frontend().waitModel(1).official()
	p := withTools("get_weather", "get_time")
	required := option.WithJSONSet("tool_choice", "required")
	check := func(how string, c openai.ChatCompletionChoice) {
		t.Helper()
		calls := c.Message.ToolCalls
		if len(calls) != 2 || calls[0].Function.Name != "get_weather" || calls[0].Function.Arguments != `{"city":"[\"x\"]"}` || calls[1].Function.Name != "get_time" || calls[1].ID == calls[0].ID || c.Message.Content != "" || c.FinishReason != "tool_calls" {
			t.Errorf("%s: %+v", how, c)
		}
	}
	got, err := client.Chat.Completions.New(t.Context(), p, required)
	if err != nil {
		t.Fatal(err)
	}
	check("whole", got.Choices[0])
	acc, _ := collected(t, client, p, required)
	check("streamed", acc.Choices[0])

	schemaOf := func(i int) (list struct {
		MaxItems int            `json:"maxItems"`
		Defs     map[string]any `json:"$defs"`
	}) {
		t.Helper()
		g := fk.got()[i].Guided
		if g == nil || g.Kind != "json_schema" || !g.Lax || json.Unmarshal([]byte(g.Text), &list) != nil {
			t.Fatalf("constraint %+v", g)
		}
		return list
	}
	if s := schemaOf(0); s.MaxItems != 0 || len(s.Defs) != 2 {
		t.Errorf("required: %+v", s)
	}
	one := option.WithJSONSet("tool_choice", body{"type": "function", "function": body{"name": "get_time"}})
	if _, err := client.Chat.Completions.New(t.Context(), p, one); err != nil {
		t.Fatal(err)
	}
	if s := schemaOf(2); s.MaxItems != 1 || len(s.Defs) != 1 {
		t.Errorf("one function: %+v", s)
	}
}
