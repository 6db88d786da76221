package parse_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// shown prints the events of one piece of text, abbreviated.
func shown(events []parse.Event) string {
	var b strings.Builder
	for _, e := range events {
		switch e.Kind {
		case parse.Content:
			b.WriteString("C:" + e.Text)
		case parse.Reasoning:
			b.WriteString("R:" + e.Text)
		case parse.CallBegin:
			b.WriteString("<" + e.Name + ">")
		case parse.CallArguments:
			b.WriteString("A:" + e.Text)
		case parse.CallEnd:
			b.WriteString("</>")
		}
	}
	return b.String()
}

// Each step shows what is certain, and nothing later than it must.
func TestPromptness(t *testing.T) {
	for _, tc := range []struct {
		name, parsers string
		steps         []string // piece, what it shows, piece, ...
	}{
		{"text", "hermes", []string{"Hi", "C:Hi", " a <", "C: a ", "b", "C:<b", "<tool", "", "_cal!", "C:<tool_cal!"}},
		{"arguments", "hermes", []string{
			"Ok\n<tool_call>\n{\"name\":", "C:Ok\n", ` "f", "arguments": `, "", "{", "<f>A:{", `"city": "Pa`, `A:"city": "Pa`, `ris", `, `A:ris"`,
			`"n": 1`, `A:, "n": `, `2}`, "A:12}</>", "}\n</tool_call>", "", "\n", "", "x", "C:\nx",
		}},
		{"broken block", "hermes", []string{"<tool_call>", "", "\n{", "", "x", "C:<tool_call>\n{x"}},
		{"JSON that is no call", "llama3_json", []string{`{"na`, "", `me": "Bob"`, `C:{"name": "Bob"`, "}", "C:}"}},
		{"other JSON", "llama3_json", []string{`{"ci`, "", `ty"`, `C:{"city"`}},
		{"list that is no call", "pythonic", []string{"[", "", "1", "C:[1"}},
		{"text in a parameter", "qwen3_coder", []string{
			"<tool_call><function=get_weather>", "", "<parameter=city>", `<get_weather>A:{"city": "`, "\nPar", "A:Par", "is\n", "A:is", "</para", "", "meter>", `A:"`, "</function>", "A:}</>",
		}},
		{"typed parameter", "qwen3_coder", []string{"<function=get_weather><parameter=days>", `<get_weather>A:{"days": `, "12", "", "</parameter>", "A:12"}},
		{"pythonic", "pythonic", []string{"[get_weather(", "", "city=", "", `"Pa`, `<get_weather>A:{"city": "Pa`, `ris")`, `A:ris"}</>`}},
		{"reasoning", "/qwen3", []string{"<th", "", "ink>\n", "", "I see", "R:I see", " it.\n", "R: it.", "So", "R:\nSo", "\n</thi", "", "nk>\n\n", "", "Hi", "C:Hi"}},
		{"no reasoning", "/qwen3", []string{"<", "", "a", "C:<a", " <think>", "C: <think>"}},
		{"harmony", "harmony/gpt_oss", []string{
			"<|channel|>", "", "analysis<|message|>", "", "Hm", "R:Hm", "<|en", "", "d|><|start|>assistant<|channel|>commentary to=functions.f<|message|>", "",
			`{"a"`, `<f>A:{"a"`, ":1}", "A::1}</>",
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, err := parse.New(options(tc.parsers))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(tc.steps); i += 2 {
				if got := shown(p.Feed(tc.steps[i])); got != tc.steps[i+1] {
					t.Fatalf("step %q shows %q, want %q", tc.steps[i], got, tc.steps[i+1])
				}
			}
		})
	}
}

// The end of the prompt says whether the model is thinking already.
func TestPrompt(t *testing.T) {
	for _, tc := range []struct {
		reasoning, prompt, text string
		want                    answer
	}{
		{"qwen3", "<|im_start|>assistant\n<think>\n", "Hm.\n</think>\n\nHi", answer{content: "Hi", reasoning: "Hm."}},
		{"qwen3", "<|im_start|>assistant\n<think>\n\n</think>\n\n", "Hi <think>", said("Hi <think>")},
		{"deepseek_r1", "<｜Assistant｜></think>", "Hi", said("Hi")},
		{"deepseek_r1", "<｜Assistant｜>", "Hm</think>Hi", answer{content: "Hi", reasoning: "Hm"}},
		{"qwen3", "What is <think>?<|im_end|>\n<|im_start|>assistant\n", "A mark", said("A mark")},
	} {
		o := options("/" + tc.reasoning)
		o.Prompt = tc.prompt
		if got := read(t, o, tc.text); got.String() != tc.want.String() {
			t.Errorf("%s after %q: got %v, want %v", tc.reasoning, tc.prompt, got, tc.want)
		}
	}
}

func TestOneCall(t *testing.T) {
	const one = `<tool_call>{"name": "get_time", "arguments": {}}</tool_call>`
	o := options("hermes")
	o.OneCall = true
	if got, want := read(t, o, "a"+one+"\n"+one+"b"), called("a", "get_time", "{}"); got.String() != want.String() {
		t.Errorf("got %v, want %v", got, want)
	}
	p, err := parse.New(o)
	if err != nil {
		t.Fatal(err)
	}
	if p.Feed(one[:len(one)-14]); p.Done() {
		t.Error("done before the arguments are complete")
	}
	if p.Feed("}}"); !p.Done() || !p.Called() {
		t.Error("not done after a call")
	}
	if rest := append(p.Feed(one), p.Finish()...); len(rest) != 0 {
		t.Errorf("events after the end: %v", rest)
	}
}

func TestThinking(t *testing.T) {
	p, err := parse.New(options("hermes/qwen3"))
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		text string
		want bool
	}{{"\n", false}, {"<think", true}, {">", true}, {"a", true}, {"</think", true}, {">", false}, {"b", false}} {
		if p.Feed(step.text); p.Thinking() != step.want {
			t.Errorf("after %q: %v", step.text, p.Thinking())
		}
	}
}

// A long text that is held back becomes text in the end, and what is broken late
// costs no more than what is broken early.
func TestLongBlocks(t *testing.T) {
	long := `<tool_call>{"arguments": {"a": "` + strings.Repeat("<tool_call>{", 95_000)
	for name, text := range map[string]string{
		"never ends": long, "is broken": long + `"]`, "many begin": strings.Repeat(`<tool_call>{"name": "`, 1<<13),
		"deep": `<tool_call>{"name": "f", "arguments": ` + strings.Repeat(`{"a":`, 1<<16),
	} {
		got := read(t, options("hermes"), text)
		if name == "deep" {
			if len(got.calls) != 1 || !got.calls[0].broken || len(got.calls[0].args)+len(got.content) < 5<<16 {
				t.Errorf("%s: %d calls, %d bytes of content", name, len(got.calls), len(got.content))
			}
			continue
		}
		if got.content != text || len(got.calls) > 0 {
			t.Errorf("%s: %d bytes became %d", name, len(text), len(got.content))
		}
	}
}

func TestDetect(t *testing.T) {
	for _, tc := range []struct{ template, tool, reasoning string }{
		{"", "", ""},
		{"{% for m in messages %}{{ m.content }}{% endfor %}", "", ""},
		{"<|im_start|>assistant <tool_call>\\n{\"name\": ...}</tool_call> <think>", "hermes", "basic"},
		{"<tool_call>\n<function=example>", "qwen3_coder", ""},
		{"<|start|>assistant<|channel|>final<|message|>", "harmony", "gpt_oss"},
		{"<｜tool▁calls▁begin｜> ```json <think>", "deepseek_v3", "basic"},
		{"<｜tool▁calls▁begin｜><｜tool▁sep｜>", "deepseek_v3_1", ""},
		{"[AVAILABLE_TOOLS][TOOL_CALLS] [THINK]", "mistral", "mistral"},
		{"Environment: ipython", "llama3_json", ""},
		{"functools", "phi4", ""},
	} {
		tool, reasoning := parse.Detect(tc.template)
		if tool != tc.tool || reasoning != tc.reasoning {
			t.Errorf("%q: %q and %q, want %q and %q", tc.template, tool, reasoning, tc.tool, tc.reasoning)
		}
		if err := parse.CheckTool(tool); err != nil {
			t.Error(err)
		}
		if err := parse.CheckReasoning(reasoning); err != nil {
			t.Error(err)
		}
	}
}

func TestMarks(t *testing.T) {
	for _, name := range parse.ToolParsers() {
		if len(parse.Marks(name, "")) == 0 {
			t.Errorf("%s has no marks", name)
		}
	}
	for _, name := range parse.ReasoningParsers() {
		if len(parse.Marks("", name)) == 0 {
			t.Errorf("%s has no marks", name)
		}
	}
	if got := parse.Marks("mistral", "mistral"); !slices.Contains(got, "[TOOL_CALLS]") || !slices.Contains(got, "[/THINK]") {
		t.Errorf("got %q", got)
	}
	if got := parse.Marks("", parse.None); got != nil {
		t.Errorf("got %q", got)
	}
}

// BenchmarkFeed is the cost of one token of ordinary text.
func BenchmarkFeed(b *testing.B) {
	p, err := parse.New(options("hermes/qwen3"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		p.Feed(" token")
	}
}
