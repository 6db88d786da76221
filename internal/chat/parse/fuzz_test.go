package parse_test

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/chat/parse"
)

// alphabet are the pieces that random texts are made of: marks, whole and cut, and
// what stands between them.
var alphabet = []string{
	"<tool_call>", "</tool_call>", "<TOOLCALL>", "</TOOLCALL>", "<tool_calls>", "<|python_tag|>", "functools[", "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]x1",
	"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>", "function<｜tool▁sep｜>", "<｜tool▁sep｜>", "\n```json\n", "\n```", "<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>",
	"<|tool_calls_section_begin|>", "<|tool_call_begin|>", "functions.get_time:0", "<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|tool_calls_section_end|>",
	"<function=get_weather>", "<parameter=days>", "<parameter=city>", "</parameter>", "</function>", "<minimax:tool_call>", `<invoke name="get_time">`, `<parameter name="city">`, "</invoke>",
	"<｜DSML｜function_calls>", `<｜DSML｜invoke name="get_time">`, `<｜DSML｜parameter name="a" string="false">`, "</｜DSML｜parameter>", "</｜DSML｜invoke>",
	"<arg_key>", "city", "</arg_key>", "<arg_value>", "</arg_value>", "<|python_start|>", "<|python_end|>", "<|tool_call|>", "<|/tool_call|>",
	"<think>", "</think>", "[THINK]", "◁think▷", "◁/think▷", "Here is my thought process:", "Here's my response:",
	"<|start|>", "assistant", "<|channel|>", "analysis", "final", "commentary to=functions.get_time", "<|message|>", "<|end|>", "<|call|>",
	`{"name": "get_time", "arguments": {}}`, `{"name": "get_weather", "parameters": {"city": "P`, `{"name": "get_time"`, `"arguments": `, `{"a": [1, -2.5e3, "x\n", null]}`, "{", "}", "[", "]", "(", ")", ",", ", ", ";", ":", `"`, "'", `\`, "=",
	"get_time", "get_time(", "get_weather(city=", "days=3", "True", "None", "12", "-1.5", "a", "é", "😀", "<", "｜", " ", "\n", "\n\n", "\t", "hello ", "\xff", "\x00",
}

var allParsers = func() (list []string) {
	for _, tool := range parse.ToolParsers() {
		list = append(list, tool, tool+"/qwen3")
	}
	for _, reasoning := range parse.ReasoningParsers() {
		list = append(list, "/"+reasoning, "hermes/"+reasoning, "harmony/"+reasoning)
	}
	return list
}()

// Whatever a text is made of and however it is cut, its meaning is the same, and
// arguments of whole calls are objects.
func TestRandomTexts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for _, parsers := range allParsers {
		for range 100 {
			text := ""
			for range 1 + r.IntN(25) {
				piece := alphabet[r.IntN(len(alphabet))]
				if r.IntN(20) == 0 {
					piece = piece[:r.IntN(len(piece)+1)]
				}
				text += piece
			}
			cut(t, parsers, text, r)
			if t.Failed() {
				t.Fatalf("parsers %s, text %q", parsers, text)
			}
		}
	}
}

// cut compares a text with the same text in random pieces, and checks that a text
// without calls comes out as it is.
func cut(t *testing.T, parsers, text string, r *rand.Rand) {
	t.Helper()
	want := read(t, options(parsers), text)
	for _, most := range []int{1, 4, 40} {
		var pieces []string
		for rest := text; rest != ""; {
			n := min(1+r.IntN(most), len(rest))
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if got := read(t, options(parsers), pieces...); got.String() != want.String() {
			t.Errorf("%s, pieces %q\n got %v\nwant %v", parsers, pieces, got, want)
		}
	}
	tool, reasoning, _ := strings.Cut(parsers, "/")
	if len(want.calls) == 0 && reasoning == "" && tool != "harmony" && want.content != text {
		t.Errorf("%s, %q became %q", parsers, text, want.content)
	}
}

// fuzz runs one parser over texts that come from outside.
func fuzz(f *testing.F, parsers ...string) {
	for _, piece := range alphabet {
		f.Add(piece, uint64(1))
	}
	r := rand.New(rand.NewPCG(7, 7))
	for range 50 {
		text := ""
		for range 12 {
			text += alphabet[r.IntN(len(alphabet))]
		}
		f.Add(text, r.Uint64())
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		for _, p := range parsers {
			cut(t, p, text, rand.New(rand.NewPCG(seed, 2)))
		}
	})
}

func FuzzHermes(f *testing.F)     { fuzz(f, "hermes", "hermes/qwen3") }
func FuzzNemotron(f *testing.F)   { fuzz(f, "nemotron_deci", "nemotron_nano/nemotron_nano") }
func FuzzJamba(f *testing.F)      { fuzz(f, "jamba") }
func FuzzLlama3(f *testing.F)     { fuzz(f, "llama3_json") }
func FuzzPhi4(f *testing.F)       { fuzz(f, "phi4") }
func FuzzMistral(f *testing.F)    { fuzz(f, "mistral", "mistral/mistral") }
func FuzzPythonic(f *testing.F)   { fuzz(f, "pythonic") }
func FuzzDeepSeekV3(f *testing.F) { fuzz(f, "deepseek_v3", "deepseek_v3/deepseek_r1") }
func FuzzDeepSeekV31(f *testing.F) {
	fuzz(f, "deepseek_v3_1", "deepseek_v3_2")
}
func FuzzKimi(f *testing.F)       { fuzz(f, "kimi_k2", "kimi_k2/kimi") }
func FuzzQwen3Coder(f *testing.F) { fuzz(f, "qwen3_coder") }
func FuzzMiniMax(f *testing.F)    { fuzz(f, "minimax_m2/minimax_m2") }
func FuzzGLM(f *testing.F)        { fuzz(f, "glm45/glm45") }
func FuzzHarmony(f *testing.F)    { fuzz(f, "harmony", "harmony/gpt_oss", "/gpt_oss", "hermes/gpt_oss") }
func FuzzGranite(f *testing.F)    { fuzz(f, "/granite") }

func TestUnknownNames(t *testing.T) {
	for _, o := range []parse.Options{{Tool: "hermess"}, {Reasoning: "hermes"}} {
		if _, err := parse.New(o); !errors.Is(err, parse.ErrUnknown) || !strings.Contains(err.Error(), "mistral") {
			t.Errorf("%+v: %v", o, err)
		}
	}
	for _, o := range []parse.Options{{}, {Tool: parse.None, Reasoning: parse.None}} {
		if got := read(t, o, "<think>a</think><tool_call>"); got.content != "<think>a</think><tool_call>" {
			t.Errorf("got %v", got)
		}
	}
}
