package parse

import (
	"runtime"
	"strings"
	"testing"
)

// TestCostIsLinear: whatever a model writes, twice as much of it costs twice as much.
func TestCostIsLinear(t *testing.T) {
	pieces := []string{
		"{", "[", "<", `{"name":`, `{"name":"f","arguments":`, `{"name":"f","arguments":{"a":"`, "<tool_call>", "<tool_call>\n{\"name\": \"f\"", "<think>", "</thin", "[f(a=", "<function=f>",
		"<|channel|>", "<|python_tag|>", "[TOOL_CALLS]", "\\", "\"", " ", "x", "```json\n{", "<parameter=a>", "f(\"", "<|", "{\"parameters\":{\"x\":[",
	}
	tools := []Tool{{Name: "f", Parameters: []byte(`{"type":"object","properties":{"a":{"type":"string"}}}`)}}
	cost := func(tool, reasoning, text string) uint64 {
		p, err := New(Options{Tool: tool, Reasoning: reasoning, Tools: tools})
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for i := 0; i < len(text); i += 4 {
			p.Feed(text[i:min(i+4, len(text))])
		}
		p.Finish()
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	check := func(tool, reasoning string) {
		for _, piece := range pieces {
			const n = 8 << 10
			once, twice := cost(tool, reasoning, strings.Repeat(piece, n/len(piece))), cost(tool, reasoning, strings.Repeat(piece, 2*n/len(piece)))
			if twice > 3*once+256<<10 {
				t.Errorf("%s, %s: %q costs %d bytes, twice as much of it %d", tool, reasoning, piece, once, twice)
			}
		}
	}
	for _, tool := range append(ToolParsers(), List) {
		check(tool, "")
	}
	for _, reasoning := range ReasoningParsers() {
		check("", reasoning)
	}
}
