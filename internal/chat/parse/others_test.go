package parse_test

import "testing"

func TestTagged(t *testing.T) {
	check(t, []example{
		{"typed", "qwen3_coder", "Fine.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n<parameter=metric>\nTrue\n</parameter>\n</function>\n</tool_call>",
			called("Fine.\n", "get_weather", `{"city": "Paris", "days": 3, "metric": true}`)},
		{"all types", "qwen3_coder", "<tool_call><function=get_weather><parameter=wind>1.50</parameter><parameter=tags>['a', 1, None]</parameter><parameter=where>{\"x\": 1}</parameter><parameter=unit>c</parameter><parameter=note>null</parameter><parameter=size>null</parameter></function></tool_call>",
			called("", "get_weather", `{"wind": 1.50, "tags": ["a", 1, null], "where": {"x": 1}, "unit": "c", "note": null, "size": null}`)},
		{"texts of other types", "qwen3_coder", "<tool_call><function=get_weather><parameter=days>many</parameter><parameter=city>12</parameter><parameter=note>12</parameter><parameter=days>3.5</parameter><parameter=what>7</parameter></function></tool_call>",
			called("", "get_weather", `{"days": "many", "city": "12", "note": "12", "days": 3.5, "what": "7"}`)},
		{"lines and marks in a value", "qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=city>\n\nif a < b:\n  \"<param\"\\n\n\n</parameter>\n</function>\n</tool_call>",
			called("", "get_weather", `{"city": "\nif a < b:\n  \"<param\"\\n\n"}`)},
		{"no parameters", "qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>", called("", "get_time", "{}")},
		{"two in one", "qwen3_coder", "<tool_call><function=get_time></function><function=get_time></function></tool_call>", called("", "get_time", "{}", "get_time", "{}")},
		{"two", "qwen3_coder", "<tool_call>\n<function=get_time>\n</function>\n</tool_call>\n<tool_call>\n<function=get_time>\n</function>\n</tool_call>", called("", "get_time", "{}", "get_time", "{}")},
		{"opening mark missing", "qwen3_coder", "So\n<function=get_time>\n</function>\n</tool_call>", called("So\n", "get_time", "{}")},
		{"unknown function", "qwen3_coder", "<tool_call><function=other><parameter=a>1</parameter></function></tool_call>", called("", "other", `{"a": "1"}`)},
		{"broken schema", "qwen3_coder", "<tool_call><function=broken_schema><parameter=a>1</parameter></function></tool_call>", called("", "broken_schema", `{"a": "1"}`)},
		{"close missing", "qwen3_coder", "<tool_call><function=get_time></function>", called("", "get_time", "{}")},
		{"cut in a value", "qwen3_coder", "<tool_call><function=get_weather><parameter=city>\nPar", broken(called("", "get_weather", `{"city": "Par`))},
		{"types by reference", "qwen3_coder", "<function=get_weather><parameter=color>2</parameter><parameter=box>{'a': 1}</parameter><parameter=lost>1</parameter><parameter=loop>1</parameter></function>",
			called("", "get_weather", `{"color": 2, "box": {"a": 1}, "lost": "1", "loop": "1"}`)},
		{"null where it may be", "qwen3_coder", "<function=get_weather><parameter=box>null</parameter></function>", called("", "get_weather", `{"box": null}`)},
		{"line breaks around a text of another type", "qwen3_coder", "<tool_call>\n<function=get_weather>\n<parameter=days>\nabc\n</parameter>\n</function>\n</tool_call>", called("", "get_weather", `{"days": "abc"}`)},
		{"cut in a typed value", "qwen3_coder", "<tool_call><function=get_weather><parameter=days>1", broken(called("", "get_weather", `{"days": 1`))},
		{"cut before parameters", "qwen3_coder", "<tool_call>\n<function=get_weather>\n<param", said("<tool_call>\n<function=get_weather>\n<param")},
		{"text in place of a parameter", "qwen3_coder", "<tool_call><function=get_weather>city</function></tool_call>", said("<tool_call><function=get_weather>city</function></tool_call>")},
		{"text between parameters", "qwen3_coder", "<function=get_weather><parameter=city>P</parameter>oops", broken(called("oops", "get_weather", `{"city": "P"`))},
		{"JSON", "qwen3_coder", `<tool_call>{"name": "get_time"}</tool_call>`, said(`<tool_call>{"name": "get_time"}</tool_call>`)},

		{"two", "minimax_m2", "Ok.<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n<invoke name=\"get_time\">\n</invoke>\n</minimax:tool_call>",
			called("Ok.", "get_weather", `{"city": "Paris", "days": 2}`, "get_time", "{}")},
		{"typed by the text", "deepseek_v3_2", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"any\">\n<｜DSML｜parameter name=\"a\" string=\"true\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"b\" string=\"false\">[1, 2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
			called("", "any", `{"a": "1", "b": [1, 2]}`)},
		{"arguments", "glm45", "\n<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>", called("", "get_weather", `{"city": "Paris", "days": 3}`)},
		{"none, and another", "glm47", "<tool_call>get_time</tool_call><tool_call>get_weather<arg_key>city</arg_key><arg_value>a\nb</arg_value></tool_call>", called("", "get_time", "{}", "get_weather", `{"city": "a\nb"}`)},
	})
}

func TestPythonic(t *testing.T) {
	check(t, []example{
		{"one", "pythonic", `[get_weather(city="Paris", days=3)]`, called("", "get_weather", `{"city": "Paris", "days": 3}`)},
		{"two", "pythonic", "[get_time(), get_weather(city='Paris')]\n", called("", "get_time", "{}", "get_weather", `{"city": "Paris"}`)},
		{"literals", "pythonic", `[get_weather( a = True , b=None, c=[1, -2.5, (3,)], d={'k': "v", }, e=.5, f=+1, g="\x41\U0001F600\u00e9\'\q\a\v\0", h='say "hi"')]`,
			called("", "get_weather", `{"a": true, "b": null, "c": [1, -2.5, [3]], "d": {"k": "v"}, "e": 0.5, "f": 1, "g": "A😀\u00e9'\\q\u0007\u000b\u0000", "h": "say \"hi\""}`)},
		{"brackets and commas in strings", "pythonic", `[get_weather(city="a)], b", tags=["]"])]`, called("", "get_weather", `{"city": "a)], b", "tags": ["]"]}`)},
		{"marked", "pythonic", `Yes. <|python_start|>[any.thing(a=1)]<|python_end|> Done.`, called("Yes.  Done.", "any.thing", `{"a": 1}`)},
		{"marked otherwise", "pythonic", `<|tool_call_start|>[get_time()]<|tool_call_end|>`, called("", "get_time", "{}")},
		{"text", "pythonic", "I call [get_time()]", said("I call [get_time()]")},
		{"list", "pythonic", "[1, 2] and [get_time()]", said("[1, 2] and [get_time()]")},
		{"unknown tool", "pythonic", "[range(n=3)]", said("[range(n=3)]")},
		{"positional", "pythonic", `[get_weather("Paris")]`, said(`[get_weather("Paris")]`)},
		{"nested call", "pythonic", `[get_weather(city=get_time())]`, said(`[get_weather(city=get_time())]`)},
		{"cut", "pythonic", `[get_weather(city="Pa`, broken(called("", "get_weather", `{"city": "Pa`))},
		{"cut in a number", "pythonic", `[get_weather(days=12`, said(`[get_weather(days=12`)},
		{"cut after a call", "pythonic", `[get_time()`, called("", "get_time", "{}")},
		{"broken after a number", "pythonic", `[get_weather(days=12]`, broken(called("]", "get_weather", `{"days": 12`))},
	})
}

func TestReasoning(t *testing.T) {
	thought := func(reasoning, content string) answer { return answer{content: content, reasoning: reasoning} }
	const harmony = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant<|channel|>"
	both := called("Hm.", "get_weather", `{"city":"P"}`)
	both.reasoning = "I think."
	check(t, []example{
		{"marked", "/basic", "<think>\nLet me see.\n\nYes.\n</think>\n\n  Hello", thought("Let me see.\n\nYes.", "  Hello")},
		{"white space first", "/basic", "\n<think>a</think>b", thought("a", "b")},
		{"none", "/basic", "Hello <think>a</think>", thought("", "Hello <think>a</think>")},
		{"almost a mark", "/basic", " <thin> </think", thought("", " <thin> </think")},
		{"empty", "/qwen3", "<think>\n\n</think>\n\nHello", thought("", "Hello")},
		{"never closed", "/qwen3", "<think>a </thin", thought("a </thin", "")},
		{"only the mark", "/qwen3", "<think>", thought("", "")},
		{"half a mark", "/qwen3", "<thi", thought("", "<thi")},
		{"mark in the answer", "/qwen3", "<think>a</think>Write <think>b</think>.", thought("a", "Write <think>b</think>.")},
		{"forced", "/deepseek_r1", "Okay.\n</think>\nHi", thought("Okay.", "Hi")},
		{"forced and marked", "/deepseek_r1", "<think>\nOkay.</think>Hi", thought("Okay.", "Hi")},
		{"forced, never closed", "/step3", " <thx", thought("<thx", "")},
		{"kimi", "/kimi", "◁think▷a◁b◁/think▷c", thought("a◁b", "c")},
		{"mistral", "/mistral", "[THINK]a[/THINK]b", thought("a", "b")},
		{"granite", "/granite", "Here's my thought process: a\n\nHere is my response: b", thought("a", " b")},
		{"granite without", "/granite", "Here is my answer", thought("", "Here is my answer")},
		{"with a call", "hermes/qwen3", "<think>\nI use <tool_call>.\n</think>\n\nHm.<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\":\"P\"}}</tool_call>",
			answer{"Hm.", "I use <tool_call>.", both.calls}},
		{"call and never closed", "hermes/deepseek_r1", `I <tool_call>{"name": "f"}</tool_call>`, thought(`I <tool_call>{"name": "f"}</tool_call>`, "")},

		{"final", "/gpt_oss", harmony + "final<|message|>Hi.<|return|>", thought("I think.", "Hi.")},
		{"call", "harmony/gpt_oss", harmony + "commentary<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\":\"P\"}<|call|>", both},
		{"recipient in the role", "harmony/gpt_oss", " to=functions.get_time<|channel|>commentary json<|message|>{}", called("", "get_time", "{}")},
		{"two calls", "harmony", "<|channel|>commentary to=functions.get_time<|message|>{}<|call|><|start|>assistant<|channel|>commentary to=functions.get_time<|message|><|call|>", called("", "get_time", "{}", "get_time", "{}")},
		{"calls without tools", "/gpt_oss", "<|channel|>commentary to=functions.f <|message|>{}<|call|>", said("<|channel|>commentary to=functions.f <|message|>{}<|call|>")},
		{"reasoning not wanted", "harmony", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b", said("a\nb")},
		{"several thoughts", "/gpt_oss", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>analysis<|message|>b<|end|><|start|>assistant<|message|>c", thought("a\nb", "c")},
		{"no header", "harmony/gpt_oss", "Hello, <you> |", said("Hello, <you> |")},
		{"to", "harmony/gpt_oss", " to be or not", said(" to be or not")},
		{"cut in a header", "harmony/gpt_oss", "<|channel|>analysis<|message|>a<|end|><|start|>assist", thought("a", "")},
		{"cut in the first mark", "harmony/gpt_oss", "<|chan", said("<|chan")},
		{"cut in a call", "harmony/gpt_oss", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1", broken(called("", "f", `{"a": 1`))},
		{"cut before arguments", "harmony/gpt_oss", "<|channel|>commentary to=functions.f<|message|> ", said("<|channel|>commentary to=functions.f<|message|> ")},
		{"arguments of another kind", "harmony/gpt_oss", "<|channel|>commentary to=functions.f<|message|>x = 1<|call|>", said("<|channel|>commentary to=functions.f<|message|>x = 1<|call|>")},
		{"arguments break", "harmony/gpt_oss", "<|channel|>commentary to=functions.f<|message|>{\"a\": 1]<|call|>", broken(called("]", "f", `{"a": 1`))},
		{"text after arguments", "harmony/gpt_oss", "<|channel|>commentary to=functions.f<|message|>{} so<|call|>", called("so", "f", "{}")},
		{"built-in tool", "harmony/gpt_oss", "<|channel|>analysis to=python<|message|>1+1<|call|>", thought("1+1", "")},
	})
}
