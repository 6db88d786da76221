package parse

import "strings"

func deepseekV3() *headFormat {
	return &headFormat{
		section: "<｜tool▁calls▁begin｜>", sectionEnd: "<｜tool▁calls▁end｜>",
		item: "<｜tool▁call▁begin｜>", itemEnd: "<｜tool▁call▁end｜>", fence: "```",
		header: func(text string) (name, id string, ok bool) { // function<sep>NAME\n```json\n
			_, text, ok = strings.Cut(text, "<｜tool▁sep｜>")
			name, fence, _ := strings.Cut(text, "\n")
			fence = strings.TrimSpace(fence)
			return strings.TrimSpace(name), "", ok && (fence == "" || fence == "```json" || fence == "```")
		},
	}
}

func deepseekV31() *headFormat {
	f := deepseekV3()
	f.header = func(text string) (name, id string, ok bool) { // NAME<sep>
		name, rest, ok := strings.Cut(text, "<｜tool▁sep｜>")
		return strings.TrimSpace(name), "", ok && strings.TrimSpace(rest) == ""
	}
	return f
}

func kimiK2() *headFormat {
	return &headFormat{
		section: "<|tool_calls_section_begin|>", sectionEnd: "<|tool_calls_section_end|>",
		item: "<|tool_call_begin|>", itemEnd: "<|tool_call_end|>",
		header: func(text string) (name, id string, ok bool) { // functions.NAME:NUMBER<sep>
			id, rest, ok := strings.Cut(text, "<|tool_call_argument_begin|>")
			id = strings.TrimSpace(id)
			name = strings.TrimPrefix(id, "functions.")
			if i := strings.LastIndexByte(name, ':'); i >= 0 {
				name = name[:i]
			}
			return name, id, ok && strings.TrimSpace(rest) == ""
		},
	}
}

// mistral reads the newer form of its calls, a mark and a name for each, and the
// older one, a list of objects after one mark.
func mistral() *headFormat {
	return &headFormat{
		item: "[TOOL_CALLS]", lists: true, listEnd: "[/TOOL_CALLS]",
		header: func(text string) (name, id string, ok bool) { // NAME[CALL_ID]ID[ARGS]
			text = strings.TrimSuffix(strings.TrimSpace(text), "[ARGS]")
			name, id, _ = strings.Cut(text, "[CALL_ID]")
			return strings.TrimSpace(name), strings.TrimSpace(id), true
		},
	}
}
