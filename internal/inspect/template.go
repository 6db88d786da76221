package inspect

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/chat"
)

// templateTime bounds all that is rendered.
const templateTime = 10 * time.Second

// Words that no template has by itself: where they come out, the template has a
// place for what they were put into.
const (
	wordUser   = "qzuser"
	wordSystem = "qzsystem"
	wordAnswer = "qzanswer"
	wordAgain  = "qzagain"
	wordTool   = "qztool"
	wordResult = "qzresult"
)

func message(role, content string) json.RawMessage {
	raw, _ := json.Marshal(map[string]string{"role": role, "content": content}) // strings always marshal
	return raw
}

// probe renders conversations with one template.
type probe struct{ p *chat.Processor }

// render returns the text and whether the template took the conversation.
func (b probe) render(ctx context.Context, messages []json.RawMessage, tools bool, kwargs map[string]json.RawMessage, prompt bool) (string, error) {
	var list json.RawMessage
	if tools {
		list = json.RawMessage(`[{"type":"function","function":{"name":"` + wordTool +
			`","description":"d","parameters":{"type":"object","properties":{"x":{"type":"string","description":"d"}},"required":["x"]}}}]`)
	}
	return b.p.RenderChat(ctx, messages, list, kwargs, prompt)
}

// holds reports whether a conversation renders with all words in it, in order.
func (b probe) holds(ctx context.Context, messages []json.RawMessage, tools bool, words ...string) bool {
	text, err := b.render(ctx, messages, tools, nil, false)
	if err != nil {
		return false
	}
	for _, w := range words {
		at := strings.Index(text, w)
		if at < 0 {
			return false
		}
		text = text[at+len(w):]
	}
	return true
}

// template finds out what the chat template can do.
func (r *Report) template(ctx context.Context, p *chat.Processor) {
	if !p.HasTemplate() {
		r.warn("no chat template: chats are refused, plain completions work")
		return
	}
	r.Chat.Template = true
	ctx, cancel := context.WithTimeout(ctx, templateTime)
	defer cancel()
	b := probe{p}
	user := []json.RawMessage{message("user", wordUser)}
	plain, err := b.render(ctx, user, false, nil, false)
	if err != nil {
		r.warn("the chat template refuses a plain conversation: %v", err)
		return
	}
	if !strings.Contains(plain, wordUser) {
		r.warn("the chat template omits the user's message")
	}
	if prompted, err := b.render(ctx, user, false, nil, true); err == nil {
		if rest, ok := strings.CutPrefix(prompted, plain); ok {
			r.Chat.GenerationPrompt = rest
		}
	}
	system := append([]json.RawMessage{message("system", wordSystem)}, user...)
	r.Chat.System = b.holds(ctx, system, false, wordSystem, wordUser)
	r.Chat.Turns = b.holds(ctx, append(user[:1:1], message("assistant", wordAnswer), message("user", wordAgain)), false, wordUser, wordAnswer, wordAgain)
	r.Chat.Tools = b.holds(ctx, user, true, wordTool)
	called := json.RawMessage(`{"role":"assistant","content":"","tool_calls":[{"id":"call12345","type":"function","function":{"name":"` + wordTool +
		`","arguments":"{\"x\":\"y\"}"}}]}`)
	answered := json.RawMessage(`{"role":"tool","tool_call_id":"call12345","name":"` + wordTool + `","content":"` + wordResult + `"}`)
	r.Chat.ToolResults = b.holds(ctx, append(user[:1:1], called, answered), true, wordUser, wordTool, wordResult)
	r.Chat.Toggles = b.toggles(ctx, user)
}

// toggles finds template arguments that clients use to switch thinking and that
// change what is rendered.
func (b probe) toggles(ctx context.Context, user []json.RawMessage) []string {
	found := []string{}
	for _, t := range []struct{ name, one, other string }{
		{"enable_thinking", "true", "false"},
		{"thinking", "true", "false"},
		{"reasoning_effort", `"low"`, `"high"`},
	} {
		one, err1 := b.render(ctx, user, false, map[string]json.RawMessage{t.name: json.RawMessage(t.one)}, true)
		other, err2 := b.render(ctx, user, false, map[string]json.RawMessage{t.name: json.RawMessage(t.other)}, true)
		if err1 == nil && err2 == nil && one != other {
			found = append(found, t.name)
		}
	}
	return found
}
