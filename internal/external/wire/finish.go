package wire

import (
	"encoding/json"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Finish translates the reason of a server for the end of an answer. An end that is none for
// the client, such as an abort, is an error.
func Finish(reason string) (protocol.FinishReason, error) {
	switch reason {
	case "stop", "tool_calls", "function_call", "content_filter", "eos_token", "stop_sequence":
		return protocol.FinishStop, nil
	case "length":
		return protocol.FinishLength, nil
	}
	return "", Unavailable("the server ended the answer with %q", tidy(reason, ""))
}

// Usage is the count of tokens in an answer of the OpenAI API.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// Cached returns how much of the prompt was in a cache; -1 if the server does not tell.
func (u *Usage) Cached() int {
	if u == nil || u.Details == nil || u.Details.Cached == nil {
		return -1
	}
	return *u.Details.Cached
}

// Protocol returns the counts as workers send them.
func (u *Usage) Protocol() *protocol.Usage {
	if u == nil {
		return nil
	}
	return &protocol.Usage{PromptTokens: max(u.Prompt, 0), CompletionTokens: max(u.Completion, 0), CachedTokens: max(u.Cached(), 0)}
}

// Failure returns the error that an event or an object stands for: servers send some with
// status 200. It returns nil for an ordinary one.
func (c *Client) Failure(path string, event []byte) error {
	var e struct {
		Object string          `json:"object"`
		Error  json.RawMessage `json:"error"`
		Code   json.RawMessage `json:"code"`
	}
	if json.Unmarshal(event, &e) != nil || IsNull(e.Error) && e.Object != "error" {
		return nil
	}
	status := codeOf(e.Code)
	var inner struct {
		Code json.RawMessage `json:"code"`
	}
	if status == 0 && json.Unmarshal(e.Error, &inner) == nil {
		status = codeOf(inner.Code)
	}
	if status == 0 {
		status = 500
	}
	key, _ := c.key.get() // an error shows at the next call; the text is tidied as well as can be
	return &Refusal{Path: path, Status: status, Message: tidy(messageOf(event), key)}
}

func codeOf(raw json.RawMessage) int {
	var n int
	if json.Unmarshal(raw, &n) != nil || n < 400 || n > 599 {
		return 0
	}
	return n
}
