package frontend

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/metrics"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	params
	messages []json.RawMessage
	kwargs   map[string]json.RawMessage
	noPrompt bool // add_generation_prompt is false
}

func (q *chatRequest) fields() fields {
	f := q.sharedFields()
	add := true
	f["messages"] = q.readMessages
	f["max_completion_tokens"] = integer(&q.maxTokens, 1, 1<<31)
	f["chat_template_kwargs"] = func(name string, raw json.RawMessage) *apiError {
		if json.Unmarshal(raw, &q.kwargs) != nil {
			return invalid(name, "Invalid type for '%s': expected an object.", name)
		}
		return nil
	}
	f["add_generation_prompt"] = func(name string, raw json.RawMessage) *apiError {
		err := flag(&add)(name, raw)
		q.noPrompt = !add
		return err
	}
	f["logprobs"] = only("false")
	f["top_logprobs"] = only("0")
	f["response_format"] = only(`{"type":"text"}`)
	f["tools"] = only("[]")
	f["tool_choice"] = only(`"none"`, `"auto"`)
	f["parallel_tool_calls"] = ignored
	f["functions"] = only("[]")
	f["function_call"] = only(`"none"`, `"auto"`)
	f["modalities"] = only(`["text"]`)
	f["audio"] = only()
	f["prediction"] = ignored // a hint for speed
	f["reasoning_effort"] = func(name string, raw json.RawMessage) *apiError {
		if q.kwargs == nil {
			q.kwargs = map[string]json.RawMessage{}
		}
		q.kwargs[name] = raw
		return nil
	}
	f["verbosity"] = ignored
	f["web_search_options"] = only()
	return f
}

// readMessages checks the outline of the messages; what a template makes of them
// is its own business.
func (q *chatRequest) readMessages(name string, raw json.RawMessage) *apiError {
	if json.Unmarshal(raw, &q.messages) != nil {
		return invalid(name, "Invalid type for '%s': expected a list of messages.", name)
	}
	for i, m := range q.messages {
		var outline struct {
			Role    *string         `json:"role"`
			Content json.RawMessage `json:"content"`
		}
		at := func(field string) string { return name + "[" + itoa(i) + "]" + field }
		if json.Unmarshal(m, &outline) != nil {
			return invalid(at(""), "Invalid type for '%s': expected an object.", at(""))
		}
		if outline.Role == nil {
			return invalid(at(".role"), "Missing required parameter: '%s'.", at(".role")).withCode("missing_required_parameter")
		}
		switch *outline.Role {
		case "system", "developer", "user", "assistant", "tool":
		default:
			return invalid(at(".role"), "Invalid value: '%s'. Supported values are: 'system', 'developer', 'user', 'assistant' and 'tool'.", *outline.Role)
		}
		if err := checkContent(at(".content"), outline.Content); err != nil {
			return err
		}
	}
	return nil
}

// checkContent accepts a string, null, or a list of text parts.
func checkContent(at string, raw json.RawMessage) *apiError {
	var text string
	if len(raw) == 0 || string(raw) == "null" || json.Unmarshal(raw, &text) == nil {
		return nil
	}
	var parts []struct {
		Type string `json:"type"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return invalid(at, "Invalid type for '%s': expected a string or a list of content parts.", at)
	}
	for i, p := range parts {
		if p.Type != "text" {
			where := at + "[" + itoa(i) + "].type"
			return invalid(where, "Invalid value: '%s'. This model takes 'text' parts only.", p.Type)
		}
	}
	return nil
}

func (f *Frontend) chatCompletions(w http.ResponseWriter, r *http.Request) {
	var q chatRequest
	f.serve(w, r, metrics.EndpointChatCompletions, q.fields(), &q.params, func(m *servedModel) (answerer, []*choice, []int, *apiError) {
		if len(q.messages) == 0 {
			return nil, nil, nil, invalid("messages", "Missing required parameter: 'messages'.").withCode("missing_required_parameter")
		}
		prompt, err := m.proc.RenderChat(r.Context(), q.messages, nil, q.kwargs, !q.noPrompt)
		if err != nil {
			return nil, nil, nil, invalid("messages", "The chat template of the model refused the conversation: %v", err)
		}
		tokens := m.proc.EncodeChat(prompt)
		choices, aerr := q.makeChoices(m, [][]uint32{tokens}, 0)
		return &chatAnswer{id: newID("chatcmpl-"), model: q.model, created: time.Now().Unix(), choices: len(choices)}, choices, []int{len(tokens)}, aerr
	})
}

// chatAnswer writes a chat completion, streamed or whole.
type chatAnswer struct {
	id, model string
	created   int64
	choices   int
	started   map[int]bool // which choices have sent their role
	text      []strings.Builder
	finish    []string
}

type chatMessage struct {
	Role    string  `json:"role,omitempty"`
	Content *string `json:"content,omitempty"`
	Refusal *string `json:"refusal,omitempty"`
}

type chatChunkChoice struct {
	Index        int         `json:"index"`
	Delta        chatMessage `json:"delta"`
	Logprobs     *struct{}   `json:"logprobs"`
	FinishReason *string     `json:"finish_reason"`
}

type chatChunk struct {
	ID                string            `json:"id"`
	Object            string            `json:"object"`
	Created           int64             `json:"created"`
	Model             string            `json:"model"`
	SystemFingerprint *string           `json:"system_fingerprint"`
	Choices           []chatChunkChoice `json:"choices"`
	Usage             *usage            `json:"usage,omitempty"`
}

func (a *chatAnswer) chunk(choices ...chatChunkChoice) chatChunk {
	if choices == nil {
		choices = []chatChunkChoice{}
	}
	return chatChunk{ID: a.id, Object: "chat.completion.chunk", Created: a.created, Model: a.model, Choices: choices}
}

// events returns the events of one delta: the role comes first, alone, and the
// finish reason last, alone.
func (a *chatAnswer) events(d delta) []any {
	if a.started == nil {
		a.started = map[int]bool{}
	}
	var out []any
	if !a.started[d.index] {
		a.started[d.index] = true
		empty := ""
		out = append(out, a.chunk(chatChunkChoice{Index: d.index, Delta: chatMessage{Role: "assistant", Content: &empty}}))
	}
	if d.text != "" {
		out = append(out, a.chunk(chatChunkChoice{Index: d.index, Delta: chatMessage{Content: &d.text}}))
	}
	if d.finish != "" {
		out = append(out, a.chunk(chatChunkChoice{Index: d.index, FinishReason: &d.finish}))
	}
	return out
}

func (a *chatAnswer) usageEvent(u usage) any {
	c := a.chunk()
	c.Usage = &u
	return c
}

func (a *chatAnswer) gather(d delta) {
	if a.text == nil {
		a.text, a.finish = make([]strings.Builder, a.choices), make([]string, a.choices)
	}
	a.text[d.index].WriteString(d.text)
	a.finish[d.index] = d.finish
}

func (a *chatAnswer) whole(u usage) any {
	type message struct {
		Role    string  `json:"role"`
		Content string  `json:"content"`
		Refusal *string `json:"refusal"`
	}
	type entry struct {
		Index        int       `json:"index"`
		Message      message   `json:"message"`
		Logprobs     *struct{} `json:"logprobs"`
		FinishReason string    `json:"finish_reason"`
	}
	entries := make([]entry, a.choices)
	for i := range entries {
		entries[i] = entry{Index: i, Message: message{Role: "assistant", Content: a.text[i].String()}, FinishReason: a.finish[i]}
	}
	return struct {
		ID                string  `json:"id"`
		Object            string  `json:"object"`
		Created           int64   `json:"created"`
		Model             string  `json:"model"`
		SystemFingerprint *string `json:"system_fingerprint"`
		Choices           []entry `json:"choices"`
		Usage             usage   `json:"usage"`
	}{a.id, "chat.completion", a.created, a.model, nil, entries, u}
}
