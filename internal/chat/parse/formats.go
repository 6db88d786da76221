package parse

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// None is the name that turns a parser off.
const None = "none"

// ErrUnknown is returned for names of formats that the package does not know, with
// the list of those that it does.
var ErrUnknown = errors.New("unknown parser")

// List is the format of calls that are forced by a constraint: one JSON list of
// objects with name and arguments. No model chooses it by itself, so it is not among
// [ToolParsers], and only [New] knows it.
const List = "list"

// callFormat is a way to write tool calls.
type callFormat struct {
	name string
	open []string // marks that begin a block
	bare byte     // with which a block may begin without a mark, 0 for none
	// block reads what follows open[hit], or the bare beginning if hit is -1.
	block    func(c *calls, hit int) block
	shortIDs bool // templates want ids of nine letters and digits
	forced   bool // the text is nothing but calls
}

const harmonyFormat = "harmony"

// callFormats are the known ways to write tool calls, but for harmony's, which is
// part of the way its texts are built.
func callFormats() []*callFormat {
	return []*callFormat{
		inObjects("hermes", "</tool_call>", "<tool_call>"),
		inObjects("nemotron_deci", "</TOOLCALL>", "<TOOLCALL>"),
		inObjects("nemotron_nano", "</TOOLCALL>", "<TOOLCALL>"),
		inObjects("jamba", "</tool_calls>", "<tool_calls>"),
		{
			name: "llama3_json", open: []string{"<|python_tag|>"}, bare: '{',
			block: func(c *calls, hit int) block { return &objects{c: c, bare: hit < 0} },
		},
		{
			name: "phi4", open: []string{"functools[", "<|tool_call|>"},
			block: func(c *calls, hit int) block {
				if hit == 0 {
					return &objects{c: c, list: true, state: objectsItem}
				}
				return &objects{c: c, closer: "<|/tool_call|>"}
			},
		},
		{
			name: "pythonic", open: []string{"<|python_start|>", "<|tool_call_start|>"}, bare: '[',
			block: func(c *calls, hit int) block {
				closers := map[int]string{0: "<|python_end|>", 1: "<|tool_call_end|>"}
				return &pythonic{c: c, bare: hit < 0, closer: closers[hit]}
			},
		},
		inHeads("mistral", mistral(), true),
		inHeads("deepseek_v3", deepseekV3(), false),
		inHeads("deepseek_v3_1", deepseekV31(), false),
		inHeads("kimi_k2", kimiK2(), false),
		inTags("deepseek_v3_2", deepseekV32()),
		inTags("qwen3_coder", qwen3Coder(), "<function="),
		inTags("minimax_m2", minimaxM2()),
		inTags("glm45", glm()),
		inTags("glm47", glm()),
	}
}

func inObjects(name, closer string, open ...string) *callFormat {
	return &callFormat{name: name, open: open, block: func(c *calls, _ int) block { return &objects{c: c, closer: closer} }}
}

func inHeads(name string, f *headFormat, shortIDs bool) *callFormat {
	open := []string{f.item}
	if f.section != "" {
		open = []string{f.section, f.item}
	}
	return &callFormat{name: name, open: open, shortIDs: shortIDs, block: func(c *calls, hit int) block { return newHeaded(c, f, hit) }}
}

func inTags(name string, f *tagFormat, open ...string) *callFormat {
	return &callFormat{
		name: name, open: append([]string{f.open}, open...),
		block: func(c *calls, hit int) block { return newTagged(c, f, hit) },
	}
}

const gptOSS = "gpt_oss"

// thinkFormats are the known ways to mark reasoning by name, but for harmony's.
func thinkFormats() map[string]*thinkFormat {
	return map[string]*thinkFormat{
		"basic":         thinkTags(false),
		"qwen3":         thinkTags(false),
		"nemotron_deci": thinkTags(false),
		"nemotron_nano": thinkTags(true),
		"deepseek_r1":   thinkTags(true),
		"step3":         thinkTags(true),
		"minimax_m2":    thinkTags(true),
		"glm45":         thinkTags(false),
		"kimi_k25":      thinkTags(false),
		"kimi":          {open: []string{"◁think▷"}, close: []string{"◁/think▷"}},
		"mistral":       {open: []string{"[THINK]"}, close: []string{"[/THINK]"}},
		"granite":       granite(),
	}
}

// ToolParsers lists the names of the known tool call formats.
func ToolParsers() []string {
	names := []string{harmonyFormat}
	for _, f := range callFormats() {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// ReasoningParsers lists the names of the known reasoning formats.
func ReasoningParsers() []string {
	names := []string{gptOSS}
	for name := range thinkFormats() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// CheckTool returns [ErrUnknown] for a name that is neither a tool call format, nor
// [None], nor empty.
func CheckTool(name string) error { return check(name, ToolParsers()) }

// CheckReasoning is CheckTool for reasoning formats.
func CheckReasoning(name string) error { return check(name, ReasoningParsers()) }

func check(name string, known []string) error {
	if name == "" || name == None || slices.Contains(known, name) {
		return nil
	}
	return fmt.Errorf("%w %q: use one of %s, or %s", ErrUnknown, name, strings.Join(known, ", "), None)
}

func callFormatOf(name string) *callFormat {
	if name == List {
		return &callFormat{name: List, bare: '[', forced: true, block: func(c *calls, _ int) block { return &objects{c: c} }}
	}
	for _, f := range callFormats() {
		if f.name == name {
			return f
		}
	}
	return nil
}

// Marks lists the strings that parsers of these names look for. Where a tokenizer
// has one of them as a special token, the token must leave its text.
func Marks(tool, reasoning string) []string {
	var list []string
	if tool == harmonyFormat || reasoning == gptOSS {
		list = append(list, harmonyStart, harmonyChannel, harmonyMessage, harmonyEnd, harmonyCall, harmonyReturn, "<|constrain|>")
	}
	if f := callFormatOf(tool); f != nil {
		list = append(list, f.open...)
		list = append(list, innerMarks(tool)...)
	}
	if f := thinkFormats()[reasoning]; f != nil {
		list = append(append(list, f.open...), f.close...)
	}
	return list
}

// Framed reports whether one of the formats frames whole texts with special tokens,
// so that no constraint on the text alone fits it.
func Framed(tool, reasoning string) bool { return tool == harmonyFormat || reasoning == gptOSS }

// ReasoningEnds lists the marks that end the reasoning of a format.
func ReasoningEnds(name string) []string {
	if f := thinkFormats()[name]; f != nil {
		return f.close
	}
	return nil
}

// innerMarks returns marks inside blocks that tokenizers may have as special tokens.
func innerMarks(tool string) []string {
	switch tool {
	case "hermes", "qwen3_coder":
		return []string{"</tool_call>"}
	case "nemotron_deci", "nemotron_nano":
		return []string{"</TOOLCALL>"}
	case "jamba":
		return []string{"</tool_calls>"}
	case "phi4":
		return []string{"functools", "<|/tool_call|>"}
	case "pythonic":
		return []string{"<|python_end|>", "<|tool_call_end|>"}
	case "mistral":
		return []string{"[ARGS]", "[CALL_ID]", "[/TOOL_CALLS]"}
	case "deepseek_v3", "deepseek_v3_1":
		return []string{"<｜tool▁calls▁end｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>"}
	case "kimi_k2":
		return []string{"<|tool_calls_section_end|>", "<|tool_call_end|>", "<|tool_call_argument_begin|>"}
	case "deepseek_v3_2":
		return []string{"｜DSML｜", "</｜DSML｜function_calls>"}
	case "minimax_m2":
		return []string{"</minimax:tool_call>"}
	case "glm45", "glm47":
		return []string{"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}
	}
	return nil
}

// Detect guesses the names of the formats that a chat template teaches its model;
// they are empty where it shows none.
func Detect(template string) (tool, reasoning string) {
	has := func(s string) bool { return strings.Contains(template, s) }
	for _, d := range []struct {
		mark, tool string
		also       string // must be there, too
	}{
		{harmonyChannel, harmonyFormat, harmonyStart},
		{"<function=", "qwen3_coder", ""},
		{"<minimax:tool_call>", "minimax_m2", ""},
		{"<arg_key>", "glm45", ""},
		{"<|tool_calls_section_begin|>", "kimi_k2", ""},
		{"｜DSML｜", "deepseek_v3_2", ""},
		{"<｜tool▁calls▁begin｜>", "deepseek_v3", "```json"},
		{"<｜tool▁calls▁begin｜>", "deepseek_v3_1", ""},
		{"[TOOL_CALLS]", "mistral", ""},
		{"functools", "phi4", ""},
		{"<|/tool_call|>", "phi4", ""},
		{"<TOOLCALL>", "nemotron_deci", ""},
		{"<tool_calls>", "jamba", ""},
		{"<tool_call>", "hermes", ""},
		{"<|python_start|>", "pythonic", ""},
		{"<|tool_call_start|>", "pythonic", ""},
		{"<|python_tag|>", "llama3_json", ""},
		{"ipython", "llama3_json", ""},
	} {
		if has(d.mark) && has(d.also) {
			tool = d.tool
			break
		}
	}
	for _, d := range [][2]string{
		{harmonyChannel, gptOSS}, {"[THINK]", "mistral"}, {"◁think▷", "kimi"},
		{"Here is my thought process", "granite"}, {"Here's my thought process", "granite"}, {"<think>", "basic"},
	} {
		if has(d[0]) {
			reasoning = d[1]
			break
		}
	}
	return tool, reasoning
}
