package parse_test

import (
	"strings"
	"testing"
)

func TestObjects(t *testing.T) {
	const paris = `{"city": "Paris"}`
	deep := strings.Repeat("[", 150) + strings.Repeat("]", 150)
	check(t, []example{
		{"plain", "hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>", called("", "get_weather", paris)},
		{"text around", "hermes", "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\nDone.", called("Let me see.\n\nDone.", "get_weather", paris)},
		{"parallel", "hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"get_time\", \"arguments\": {}}\n</tool_call>\n", called("", "get_weather", paris, "get_time", "{}")},
		{"no text at all", "hermes", "", said("")},
		{"text only", "hermes", "  a < b and <tool is <tool_calls>  ", said("  a < b and <tool is <tool_calls>  ")},
		{"arguments first", "hermes", `<tool_call>{"arguments": {"city": "Paris"}, "name": "get_weather"}</tool_call>`, called("", "get_weather", paris)},
		{"arguments as text", "hermes", `<tool_call>{"name": "get_weather", "arguments": "{\"city\": \"Paris\"}"}</tool_call>`, called("", "get_weather", paris)},
		{"no arguments", "hermes", `<tool_call>{"name": "get_time"}</tool_call>`, called("", "get_time", "{}")},
		{"arguments null", "hermes", `<tool_call>{"name": "get_time", "arguments": null}</tool_call>`, called("", "get_time", "{}")},
		{"arguments empty text", "hermes", `<tool_call>{"name": "get_time", "arguments": " "}</tool_call>`, called("", "get_time", "{}")},
		{"function inside", "hermes", `<tool_call>{"id": "x1", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Paris"}}}</tool_call>`, ids(called("", "get_weather", paris), "x1")},
		{"two in one block", "hermes", "<tool_call>{\"name\": \"get_time\", \"arguments\": {}}\n{\"name\": \"get_time\", \"arguments\": {}}</tool_call>", called("", "get_time", "{}", "get_time", "{}")},
		{"unicode, nesting, large numbers", "hermes", `<tool_call>{"name": "f", "arguments": {"é😀": [1, {"a": 12345678901234567890, "b": -1.5e-7}, null, true], "s": "\ud83d\ude00\n\"<tool_call>"}}</tool_call>`,
			called("", "f", `{"é😀": [1, {"a": 12345678901234567890, "b": -1.5e-7}, null, true], "s": "\ud83d\ude00\n\"<tool_call>"}`)},
		{"deep nesting", "hermes", `<tool_call>{"name": "f", "arguments": {"a": ` + deep + `}}</tool_call>`, called("", "f", `{"a": `+deep+`}`)},
		{"closing mark inside a string", "hermes", `<tool_call>{"name": "f", "arguments": {"a": "</tool_call>"}}</tool_call>`, called("", "f", `{"a": "</tool_call>"}`)},
		{"line break in a string", "hermes", "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\tz\"}}</tool_call>", called("", "f", `{"a": "x\ny\tz"}`)},
		{"needless escape", "hermes", `<tool_call>{"name": "f", "arguments": {"a": "it\'s \d"}}</tool_call>`, called("", "f", `{"a": "it's \\d"}`)},
		{"comma at the end", "hermes", `<tool_call>{"name": "f", "arguments": {"a": [1, 2, ], }, }</tool_call>`, called("", "f", `{"a": [1, 2]}`)},
		{"close missing", "hermes", `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}`, called("", "get_weather", paris)},
		{"close half", "hermes", `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}}</tool`, called("", "get_weather", paris)},
		{"bracket missing", "hermes", `<tool_call>{"name": "get_weather", "arguments": {"city": "Paris"}`, called("", "get_weather", paris)},
		{"close replaced by text", "hermes", `<tool_call>{"name": "get_time", "arguments": {}} so`, called(" so", "get_time", "{}")},
		{"close replaced by a call", "hermes", `<tool_call>{"name": "get_time", "arguments": {}}<tool_call>{"name": "f"}`, called("", "get_time", "{}", "f", "{}")},

		{"cut in the mark", "hermes", "so <tool_ca", said("so <tool_ca")},
		{"cut in the name", "hermes", `so <tool_call>{"name": "get_we`, said(`so <tool_call>{"name": "get_we`)},
		{"cut before arguments", "hermes", ` <tool_call>{"name": "get_time", "arg`, said(` <tool_call>{"name": "get_time", "arg`)},
		{"cut in arguments", "hermes", `<tool_call>{"name": "get_weather", "arguments": {"city": "Pa`, broken(called("", "get_weather", `{"city": "Pa`))},
		{"cut in a number", "hermes", `<tool_call>{"name": "f", "arguments": {"n": 12`, broken(called("", "f", `{"n": 12`))},
		{"arguments break", "hermes", `<tool_call>{"name": "f", "arguments": {"n": 12] and more`, broken(called("] and more", "f", `{"n": 12`))},
		{"not JSON", "hermes", "<tool_call>get_weather</tool_call>", said("<tool_call>get_weather</tool_call>")},
		{"nothing inside", "hermes", "a<tool_call> </tool_call>b", said("a<tool_call> </tool_call>b")},
		{"empty list", "hermes", "<tool_call>[]</tool_call>", said("<tool_call>[]</tool_call>")},
		{"no name", "hermes", `<tool_call>{"arguments": {"a": 1}}</tool_call>`, said(`<tool_call>{"arguments": {"a": 1}}</tool_call>`)},
		{"name of spaces", "hermes", `<tool_call>{"name": "a b", "arguments": {}}</tool_call>`, said(`<tool_call>{"name": "a b", "arguments": {}}</tool_call>`)},
		{"arguments a list", "hermes", `<tool_call>{"name": "f", "arguments": [1]}</tool_call>`, said(`<tool_call>{"name": "f", "arguments": [1]}</tool_call>`)},
		{"mark in a broken block", "hermes", `<tool_call>x<tool_call>{"name": "f", "arguments": {}}</tool_call>`, called("<tool_call>x", "f", "{}")},
		{"closing mark alone", "hermes", "a</tool_call>b", said("a</tool_call>b")},
		{"text after a broken call", "hermes", `<tool_call>{"name": "f", "arguments": {x}}</tool_call>`, broken(called("x}}</tool_call>", "f", "{"))},

		{"list", "nemotron_deci", `<TOOLCALL>[{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "get_time", "arguments": {}}]</TOOLCALL> ok`, called(" ok", "get_weather", paris, "get_time", "{}")},
		{"list", "nemotron_nano", `<TOOLCALL>[{"name": "get_time", "arguments": {}}]</TOOLCALL>`, called("", "get_time", "{}")},
		{"list", "jamba", "<tool_calls>[\n  {\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n]</tool_calls>", called("", "get_weather", paris)},
		{"list broken after a call", "jamba", `<tool_calls>[{"name": "get_time", "arguments": {}}, {"name": 5`, called("", "get_time", "{}")},

		{"bare", "llama3_json", `{"name": "get_weather", "parameters": {"city": "Paris"}}`, called("", "get_weather", paris)},
		{"bare after white space", "llama3_json", "\n\n{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}\n", called("", "get_weather", paris)},
		{"two", "llama3_json", `{"name": "get_time", "parameters": {}}; {"name": "get_weather", "parameters": {"city": "Paris"}}`, called("", "get_time", "{}", "get_weather", paris)},
		{"tag", "llama3_json", `Sure. <|python_tag|>{"name": "any", "parameters": {}}`, called("Sure. ", "any", "{}")},
		{"tag with code", "llama3_json", `<|python_tag|>print(1)`, said(`<|python_tag|>print(1)`)},
		{"JSON that is no call", "llama3_json", `{"city": "Paris", "name": "get_weather"}`, said(`{"city": "Paris", "name": "get_weather"}`)},
		{"bare call of an unknown tool", "llama3_json", `{"name": "Bob", "parameters": {"a": 1}}`, said(`{"name": "Bob", "parameters": {"a": 1}}`)},
		{"JSON after text", "llama3_json", `See {"name": "get_time", "parameters": {}}`, said(`See {"name": "get_time", "parameters": {}}`)},
		{"call and text", "llama3_json", `{"name": "get_time", "parameters": {}} as asked`, called(" as asked", "get_time", "{}")},

		{"forced", "list", `[{"name": "get_weather", "parameters": {"city": "Paris", "ok": true}}, {"name":"get_time","parameters":{}}]`, called("", "get_weather", `{"city": "Paris", "ok": true}`, "get_time", "{}")},
		{"cut before a name", "list", ` [{"na`, said("")},
		{"cut in a literal", "list", `[{"name":"f","parameters":{"a":tru`, broken(called("", "f", `{"a":tru`))},
		{"cut before another name", "list", `[{"name":"f","parameters":{}},{"nam`, called("", "f", "{}")},
		{"list", "phi4", `functools[{"name": "get_weather", "arguments": {"city": "Paris"}}]`, called("", "get_weather", paris)},
		{"Python", "phi4", "import functools\nx = functools[0] + functools.partial(f)", said("import functools\nx = functools[0] + functools.partial(f)")},
		{"mini", "phi4", `<|tool_call|>[{"name": "get_time", "arguments": {}}]<|/tool_call|>`, called("", "get_time", "{}")},
	})
}

func TestHeaded(t *testing.T) {
	const paris = `{"city": "Paris"}`
	v3 := func(name, args string) string {
		return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + name + "\n```json\n" + args + "\n```<｜tool▁call▁end｜>"
	}
	v31 := func(name, args string) string {
		return "<｜tool▁call▁begin｜>" + name + "<｜tool▁sep｜>" + args + "<｜tool▁call▁end｜>"
	}
	const begin, end = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"
	kimi := `<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Paris"}<|tool_call_end|><|tool_call_begin|>functions.get_time:1<|tool_call_argument_begin|> {} <|tool_call_end|><|tool_calls_section_end|>`
	check(t, []example{
		{"one", "deepseek_v3", "Checking." + begin + v3("get_weather", paris) + end, called("Checking.", "get_weather", paris)},
		{"two", "deepseek_v3", begin + v3("get_weather", paris) + "\n" + v3("get_time", "{}") + end, called("", "get_weather", paris, "get_time", "{}")},
		{"no end", "deepseek_v3", begin + v3("get_weather", paris), called("", "get_weather", paris)},
		{"no fence", "deepseek_v3", begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_time\n{}<｜tool▁call▁end｜>" + end, called("", "get_time", "{}")},
		{"other characters alike", "deepseek_v3", "a <＜ ｜ <｜ ｝ b", said("a <＜ ｜ <｜ ｝ b")},
		{"header without a name", "deepseek_v3", begin + v3("", paris) + end, said(begin + v3("", paris) + end)},
		{"wrong fence", "deepseek_v3", begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nnow {}", said(begin + "<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\nnow {}")},
		{"section empty", "deepseek_v3", begin + end, said(begin + end)},
		{"cut in the section", "deepseek_v3", "a" + begin + "<｜tool▁call", said("a" + begin + "<｜tool▁call")},
		{"text after a section", "deepseek_v3", begin + v3("get_time", "{}") + end + "\nSo.", called("\nSo.", "get_time", "{}")},

		{"two", "deepseek_v3_1", "I look.\n\n" + begin + v31("get_weather", paris) + v31("get_time", "{}") + end, called("I look.\n\n", "get_weather", paris, "get_time", "{}")},
		{"no section", "deepseek_v3_1", v31("get_time", "{}"), called("", "get_time", "{}")},
		{"garbage between", "deepseek_v3_1", begin + v31("get_time", "{}") + "oops" + v31("get_time", "{}") + end, called("oops", "get_time", "{}", "get_time", "{}")},
		{"cut", "deepseek_v3_1", begin + "<｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"P", broken(called("", "get_weather", `{"city": "P`))},

		{"ids of its own", "kimi_k2", kimi, ids(called("", "get_weather", paris, "get_time", "{}"), "functions.get_weather:0", "functions.get_time:1")},

		{"list", "mistral", `[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}, "id": "a"}, {"name": "get_time", "arguments": {}}]`, ids(called("", "get_weather", paris, "get_time", "{}"), "short1", "short2")},
		{"list with id first", "mistral", `[TOOL_CALLS][{"id": "abc123def", "name": "get_time", "arguments": {}}][/TOOL_CALLS]`, ids(called("", "get_time", "{}"), "abc123def")},
		{"named", "mistral", `Hm.[TOOL_CALLS]get_weather[ARGS]{"city": "Paris"}[TOOL_CALLS]get_time[CALL_ID]abc123def[ARGS]{}`, ids(called("Hm.", "get_weather", paris, "get_time", "{}"), "short1", "abc123def")},
		{"named without a mark", "mistral", `[TOOL_CALLS]get_weather{"city": "Paris"}`, ids(called("", "get_weather", paris), "short1")},
		{"text", "mistral", "[TOOL_CALLS]I would call\n{x}", said("[TOOL_CALLS]I would call\n{x}")},
		{"brackets", "mistral", "[TOOL] [[TOOL_CALL]", said("[TOOL] [[TOOL_CALL]")},
	})
}
