package frontend

import (
	"strings"
	"testing"
)

// tool is one in OpenAI's words, with some members of the function changed.
func tool(change body) body {
	fn := body{"name": "f", "parameters": body{"type": "object"}}
	for k, v := range change {
		fn[k] = v
	}
	return body{"type": "function", "function": fn}
}

func TestToolValidation(t *testing.T) {
	w := newWorld(t)
	w.fake("worker-1", say("!"))
	f := w.configured(func(c *Config) { c.BodyLimit = 1 << 20 }).waitModel(1)
	good := []any{tool(nil)}
	turns := func(list ...body) body {
		return body{"messages": append([]body{{"role": "user", "content": "a"}}, list...)}
	}
	calls := func(call any) body { return turns(body{"role": "assistant", "tool_calls": []any{call}}) }
	many := make([]any, maxTools+1)
	for i := range many {
		many[i] = tool(nil)
	}
	for _, tc := range []struct {
		name              string
		more              body
		param, code, says string
	}{
		{"tools an object", body{"tools": body{}}, "tools", "invalid_type", "list"},
		{"too many", body{"tools": many}, "tools", "invalid_value", "at most 1536"},
		{"tool null", body{"tools": []any{nil}}, "tools[0]", "invalid_type", ""},
		{"type missing", body{"tools": []any{tool(nil), body{}}}, "tools[1].type", "missing_required_parameter", ""},
		{"custom tool", body{"tools": []any{body{"type": "custom"}}}, "tools[0].type", "invalid_value", "custom"},
		{"function a string", body{"tools": []any{body{"type": "function", "function": "f"}}}, "tools[0].function", "invalid_type", ""},
		{"name missing", body{"tools": []any{tool(body{"name": nil})}}, "tools[0].function.name", "missing_required_parameter", ""},
		{"name a number", body{"tools": []any{tool(body{"name": 5})}}, "tools[0].function", "invalid_type", ""},
		{"name empty", body{"tools": []any{tool(body{"name": ""})}}, "tools[0].function.name", "invalid_value", ""},
		{"name with a space", body{"tools": []any{tool(body{"name": "a b"})}}, "tools[0].function.name", "invalid_value", ""},
		{"name too long", body{"tools": []any{tool(body{"name": strings.Repeat("a", 129)})}}, "tools[0].function.name", "invalid_value", "128"},
		{"names twice", body{"tools": []any{tool(nil), tool(nil)}}, "tools[1].function.name", "invalid_value", "'f'"},
		{"description a number", body{"tools": []any{tool(body{"description": 5})}}, "tools[0].function.description", "invalid_type", ""},
		{"parameters a list", body{"tools": []any{tool(body{"parameters": []int{}})}}, "tools[0].function.parameters", "invalid_type", "schema"},
		{"choice unknown", body{"tools": good, "tool_choice": "any"}, "tool_choice", "invalid_value", "'any'"},
		{"choice a number", body{"tools": good, "tool_choice": 5}, "tool_choice", "invalid_type", ""},
		{"choice without type", body{"tools": good, "tool_choice": body{}}, "tool_choice.type", "missing_required_parameter", ""},
		{"choice of a list", body{"tools": good, "tool_choice": body{"type": "allowed_tools"}}, "tool_choice.type", "invalid_value", "allowed_tools"},
		{"choice without function", body{"tools": good, "tool_choice": body{"type": "function"}}, "tool_choice.function", "missing_required_parameter", ""},
		{"choice without name", body{"tools": good, "tool_choice": body{"type": "function", "function": body{}}}, "tool_choice.function.name", "missing_required_parameter", ""},
		{"choice of another function", body{"tools": good, "tool_choice": body{"type": "function", "function": body{"name": "g"}}}, "tool_choice.function.name", "invalid_value", "'g'"},
		{"choice required without tools", body{"tool_choice": "required"}, "tool_choice", "", "'tools'"},
		{"parallel_tool_calls", body{"parallel_tool_calls": "no"}, "parallel_tool_calls", "invalid_type", "boolean"},

		{"tool without id", turns(body{"role": "tool", "content": "x"}), "messages[1].tool_call_id", "missing_required_parameter", ""},
		{"tool with a number", turns(body{"role": "tool", "content": "x", "tool_call_id": 5}), "messages[1].tool_call_id", "invalid_type", ""},
		{"calls an object", turns(body{"role": "assistant", "tool_calls": body{}}), "messages[1].tool_calls", "invalid_type", ""},
		{"call null", calls(nil), "messages[1].tool_calls[0]", "invalid_type", ""},
		{"call of another type", calls(body{"type": "custom"}), "messages[1].tool_calls[0].type", "invalid_value", "custom"},
		{"call without function", calls(body{"type": "function"}), "messages[1].tool_calls[0].function", "missing_required_parameter", ""},
		{"call with a string", calls(body{"function": "f"}), "messages[1].tool_calls[0].function", "invalid_type", ""},
		{"call without name", calls(body{"function": body{"arguments": "{}"}}), "messages[1].tool_calls[0].function.name", "missing_required_parameter", ""},
		{"call with an object", calls(body{"function": body{"name": "f", "arguments": body{}}}), "messages[1].tool_calls[0].function.arguments", "invalid_type", "string"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			resp := f.post("/v1/chat/completions", chatBody(tc.more))
			e := failureOf(t, resp)
			if resp.StatusCode != 400 || e.param() != tc.param || e.code() != tc.code || !strings.Contains(e.Error.Message, tc.says) {
				t.Errorf("status %d, param %q, code %q, %q", resp.StatusCode, e.param(), e.code(), e.Error.Message)
			}
		})
	}
}

// Tools need a model that is shown them and writes calls in a known way.
func TestModelsWithoutTools(t *testing.T) {
	for name, change := range map[string]func(*fake){
		"turned off":         func(fk *fake) { fk.card.Runtime.ToolCallParser = "none" },
		"of a newer version": func(fk *fake) { fk.card.Runtime.ToolCallParser = "of-tomorrow" },
		"template":           func(fk *fake) { fk.files = filesWithTemplate(t, "{% for m in messages %}{{ m.content }}{% endfor %}") },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.fake("worker-1", say("<tool_call>"), change, func(fk *fake) { fk.card.Runtime.ReasoningParser = "of-tomorrow" })
			f := w.frontend().waitModel(1)
			tools := []any{tool(body{"name": "get_weather"})}
			if e := failureOf(t, f.post("/v1/chat/completions", chatBody(body{"tools": tools}))); e.param() != "tools" || e.code() != "unsupported_parameter" {
				t.Errorf("got %+v", e)
			}
			for _, more := range []body{{}, {"tools": tools, "tool_choice": "none"}} {
				if a := wholeAnswer(t, f.post("/v1/chat/completions", chatBody(more))); a.Choices[0].Message.Content != "<tool_call>" {
					t.Errorf("got %+v", a)
				}
			}
		})
	}
}

func filesWithTemplate(t *testing.T, template string) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for name, content := range testFiles() {
		files[name] = content
	}
	files["chat_template.jinja"] = []byte(template)
	return files
}
