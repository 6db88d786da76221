package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/jsonscan"
	"github.com/dynctl/dynctl/internal/protocol"
)

// chatRequest is the body of POST /v1/chat/completions.
type chatRequest struct {
	params
	maxCompletion *int64
	messages      []json.RawMessage
	kwargs        map[string]json.RawMessage // variables of the chat template
	effort        string                     // reasoning_effort, one more of them
	addPrompt     *bool                      // add_generation_prompt
	continued     bool                       // continue_final_message
	wantLogprobs  bool                       // logprobs
	topLogprobs   *int64
	tools         toolRequest
	formats       formats // set by prompts

	images   []imageAsk         // in order
	loaded   []image            // the same, set by load
	from     cluster.InstanceID // the frontend that has their content
	mu       sync.Mutex
	releases []func() // of loaded
}

func (q *chatRequest) fields() fields {
	f := q.sharedFields()
	f["messages"] = q.readMessages
	f["max_completion_tokens"] = integer(&q.maxCompletion, 1, maxCount)
	f["add_generation_prompt"] = func(name string, raw json.RawMessage) *apiError {
		q.addPrompt = new(bool)
		return flag(q.addPrompt)(name, raw)
	}
	f["continue_final_message"] = flag(&q.continued)
	f["reasoning_effort"] = text(&q.effort)
	f["chat_template_kwargs"] = into(&q.kwargs)
	f["logprobs"] = flag(&q.wantLogprobs)
	f["top_logprobs"] = integer(&q.topLogprobs, 0, protocol.MaxLogprobs)
	q.tools.fields(f)
	f["functions"] = only("[]")
	f["function_call"] = only(`"none"`, `"auto"`)
	f["modalities"] = only(`["text"]`)
	f["audio"] = only()
	f["prediction"] = ignored // a hint for speed
	f["verbosity"] = ignored
	f["web_search_options"] = only()
	return f
}

// readMessages checks the outline of the messages. It does not check what only a chat
// template interprets.
func (q *chatRequest) readMessages(name string, raw json.RawMessage) *apiError {
	var err error
	switch q.messages, err = rawList(raw, maxMessages); {
	case errors.Is(err, errTooMany):
		return wrongValue(name, "at most %d messages are allowed", maxMessages)
	case err != nil:
		return wrongType(name, "a list of messages")
	}
	for i, m := range q.messages {
		at := name + "[" + strconv.Itoa(i) + "]"
		var outline turn
		if outline.read(m) != nil {
			return wrongType(at, "an object with a role and content")
		}
		if outline.role == nil {
			return missing(at + ".role")
		}
		switch *outline.role {
		case "system", "developer", "user", "assistant", "tool":
		default:
			return wrongValue(at+".role", "'%s' is not one of 'system', 'developer', 'user', 'assistant' and 'tool'", *outline.role)
		}
		if err := q.checkContent(at+".content", outline.content); err != nil {
			return err
		}
		if err := checkTurn(at, &outline); err != nil {
			return err
		}
	}
	return nil
}

// checkContent accepts a string, null, or a list of text parts and images.
func (q *chatRequest) checkContent(at string, raw json.RawMessage) *apiError {
	if len(raw) == 0 || raw[0] == '"' || isNull(raw) {
		return nil
	}
	var bad *apiError
	err := elements(raw, maxParts, func(i int, e json.RawMessage) error {
		var kind string
		var content, image json.RawMessage
		err := members(e, func(key string, value json.RawMessage) (err error) {
			switch {
			case key == "type" && !isNull(value):
				err = json.Unmarshal(value, &kind)
			case key == "text", key == "refusal" && !isNull(value):
				content = value
			case key == "image_url":
				image = value
			}
			return err
		})
		part := at + "[" + strconv.Itoa(i) + "]"
		switch {
		case err != nil:
			return err
		case kind == "image_url":
			bad = q.readImage(part, image)
		case kind != "text" && kind != "refusal":
			bad = wrongValue(part+".type", "'%s' is not supported, only 'text' and 'image_url' are", kind)
		case len(content) == 0 || isNull(content):
			bad = missing(part + "." + kind)
		case content[0] != '"':
			return errNullElement
		}
		if bad != nil {
			return bad
		}
		return nil
	})
	switch {
	case bad != nil:
		return bad
	case errors.Is(err, errTooMany):
		return wrongValue(at, "at most %d parts are allowed", maxParts)
	case err != nil:
		return wrongType(at, "a string or a list of content parts")
	}
	return nil
}

// Limits of a conversation. That of all its values together is in package chat.
const (
	maxMessages = 1 << 16
	maxParts    = 1 << 16 // of one message
)

// turn is the outline of a message, with values as they stand in the body.
type turn struct {
	role              *string
	content           json.RawMessage
	calls, toolCallID json.RawMessage
}

func (t *turn) read(raw json.RawMessage) error {
	return members(raw, func(key string, value json.RawMessage) error {
		switch key {
		case "role":
			if !isNull(value) {
				return json.Unmarshal(value, &t.role)
			}
		case "content":
			t.content = value
		case "tool_calls":
			t.calls = value
		case "tool_call_id":
			t.toolCallID = value
		}
		return nil
	})
}

func (q *chatRequest) forget() { q.messages, q.kwargs, q.tools.raw = nil, nil, nil }

func (q *chatRequest) check() *apiError {
	if q.maxCompletion != nil { // the newer name of the same limit
		q.maxTokens, q.maxName = q.maxCompletion, "max_completion_tokens"
	}
	if err := q.params.check(); err != nil {
		return err
	}
	if err := q.checkLogprobs(); err != nil {
		return err
	}
	if len(q.messages) == 0 {
		return missing("messages")
	}
	if q.continued && q.addPrompt != nil && *q.addPrompt {
		return invalid("continue_final_message", "Cannot set both 'continue_final_message' and 'add_generation_prompt' to true.").withCode("invalid_value")
	}
	return q.tools.check(&q.guided)
}

func (*chatRequest) promptField() string { return "messages" }

func (*chatRequest) defaultTokens() int { return 0 }

// prompts renders the conversation, the one prompt of a chat.
func (q *chatRequest) prompts(ctx context.Context, m *servedModel) ([][]uint32, error) {
	var bad *apiError
	if q.formats, bad = q.tools.formats(m); bad != nil {
		return nil, bad
	}
	if q.effort != "" {
		if q.kwargs == nil {
			q.kwargs = map[string]json.RawMessage{}
		}
		q.kwargs["reasoning_effort"] = appendString(nil, q.effort)
	}
	most := q.mostPrompt(m)
	prompt, err := m.proc.Render(ctx, chat.Conversation{
		Messages: q.messages, Tools: q.tools.shown(), Kwargs: q.kwargs, MostTokens: most,
		AddGenerationPrompt: !q.continued && (q.addPrompt == nil || *q.addPrompt), ContinueFinalMessage: q.continued,
	})
	var long *chat.TooLongError
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &long):
		return nil, promptError(m, "messages", err)
	case errors.Is(err, chat.ErrNoTemplate):
		return nil, invalid("model", "The model '%s' cannot chat: %v.", q.model, err)
	case errors.Is(err, jsonscan.ErrValues):
		return nil, wrongValue("messages", "messages, tools and arguments of the template have more than %d JSON values", chat.MaxValues)
	case err != nil:
		return nil, invalid("messages", "The chat template of the model does not take this conversation: %v", err)
	}
	if prompt, bad = q.illustrate(m, prompt); bad != nil {
		return nil, bad
	}
	q.formats.prompt = prompt
	if bad := q.guided.afterReasoning(m, q.formats); bad != nil {
		return nil, bad
	}
	ids, err := m.proc.EncodeChatWithin(prompt, most)
	if err != nil {
		return nil, promptError(m, "messages", err)
	}
	if ids, bad = q.truncated(m, ids, q.defaultTokens()); bad != nil {
		return nil, bad
	}
	if bad = q.locate(m, ids); bad != nil {
		return nil, bad
	}
	return [][]uint32{ids}, nil
}

func (q *chatRequest) answer(m *servedModel, created int64, choices []*choice) answerer {
	q.formats.apply(m, &q.tools, choices)
	id := newID("chatcmpl-")
	return &chatAnswer{
		id: id, model: q.model, created: created, started: make([]bool, len(choices)),
		chunks: newChunks(id, "chat.completion.chunk", q.model, created, q.includeUsage),
		names:  q.tokenNames(m),
	}
}

// chatAnswer writes a chat completion, streamed or whole.
type chatAnswer struct {
	id, model string
	created   int64
	started   []bool // which choices have sent their role
	chunks    chunks
	names     tokenNames
}

// appendDelta implements answerer: the role comes first, alone, and the finish
// reason last, alone.
func (a *chatAnswer) appendDelta(dst []byte, d delta) []byte {
	if !a.started[d.index] {
		a.started[d.index] = true
		dst = a.chunks.open(dst, d.index)
		dst = append(dst, `,"delta":{"role":"assistant","content":""}`...)
		dst = a.chunks.close(dst, "")
	}
	if d.text != "" || len(d.probs) > 0 {
		dst = a.chunks.open(dst, d.index)
		dst = append(dst, `,"delta":{"content":`...)
		dst = appendString(dst, d.text)
		dst = append(dst, `},"logprobs":`...)
		dst = a.names.appendChat(dst, d.probs)
		dst = a.chunks.end(dst, "")
	}
	for _, e := range d.events {
		dst = a.appendEvent(dst, d.index, e)
	}
	if d.finish != "" {
		dst = a.chunks.open(dst, d.index)
		dst = append(dst, `,"delta":{}`...)
		dst = a.chunks.close(dst, d.finish)
	}
	return dst
}

func (a *chatAnswer) lastEvent(u *usage, e *extension) []byte { return a.chunks.last(u, e) }

func (a *chatAnswer) whole(choices []*choice, u usage, e *extension) any {
	type entry struct {
		Index        int             `json:"index"`
		Message      chatMessage     `json:"message"`
		Logprobs     json.RawMessage `json:"logprobs"`
		FinishReason string          `json:"finish_reason"`
	}
	entries := make([]entry, len(choices))
	for i, c := range choices {
		entries[i] = entry{Index: i, Message: c.message(), FinishReason: c.finish}
		if c.probs != nil {
			entries[i].Logprobs = a.names.appendChat(nil, c.probs.kept)
		}
	}
	return answerBody[entry]{a.id, "chat.completion", a.created, a.model, nil, entries, u, e}
}
