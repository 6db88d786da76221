package externaltest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// call is one request to compute.
type call struct {
	d        *Double
	w        http.ResponseWriter
	r        *http.Request
	body     []byte
	fields   map[string]json.RawMessage
	failure  Failure
	streams  bool // its answer has begun as a stream
	complete bool
}

func (c *call) ctx() context.Context { return c.r.Context() }

// failAtOnce meets failures before an answer. It reports whether the call is over.
func (c *call) failAtOnce() bool {
	switch c.failure {
	case Internal:
		refuse(c.w, http.StatusInternalServerError, "the engine died")
	case Busy:
		refuse(c.w, http.StatusServiceUnavailable, "busy")
	case TooMany:
		refuse(c.w, http.StatusTooManyRequests, "too many requests")
	case Refuse:
		refuse(c.w, http.StatusBadRequest, "temperature is too hot: %s", strings.Repeat("very ", 10_000))
	case EchoKey:
		refuse(c.w, http.StatusBadRequest, "who is %s?", c.r.Header.Get("Authorization"))
	case Redirect:
		http.Redirect(c.w, c.r, c.d.URL+"/elsewhere", http.StatusTemporaryRedirect)
	default:
		return false
	}
	return true
}

// failHere meets failures within an answer, after the first token. It reports whether the
// call is over.
func (c *call) failHere() bool {
	switch c.failure {
	case Cut:
		panic(http.ErrAbortHandler)
	case Stall:
		c.flush()
		<-c.ctx().Done()
	case Garbage:
		if c.streams {
			_, _ = io.WriteString(c.w, "data: {\"choices\": nonsense\n\n")
		} else {
			_, _ = io.WriteString(c.w, "<html>")
		}
		c.complete = true
	case Endless:
		c.w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(c.w, "data: ")
		for c.ctx().Err() == nil {
			if _, err := c.w.Write(bytes.Repeat([]byte("x"), 64<<10)); err != nil {
				return true
			}
		}
	case ErrorEvent:
		if c.streams {
			c.event(map[string]any{"error": map[string]any{"message": "CUDA error", "code": 500}})
			_, _ = io.WriteString(c.w, "data: [DONE]\n\n")
		} else {
			refuse(c.w, http.StatusOK, "CUDA error")
		}
		c.complete = true
	default:
		return false
	}
	return true
}

func (c *call) refuse(format string, args ...any) {
	refuse(c.w, http.StatusBadRequest, format, args...)
	c.complete = true
}

// read reads the body into v. Engines that refuse fields that they do not know are strict.
func (c *call) read(v any, strict bool) bool {
	dec := json.NewDecoder(bytes.NewReader(c.body))
	dec.UseNumber()
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(v); err != nil {
		c.refuse("the body: %v", err)
		return false
	}
	return true
}

func (c *call) flush() {
	if f, ok := c.w.(http.Flusher); ok {
		f.Flush()
	}
}

// begin begins a stream.
func (c *call) begin() {
	c.streams = true
	c.w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	c.w.WriteHeader(http.StatusOK)
	if c.d.o.Comments {
		_, _ = io.WriteString(c.w, ": ping\n\n\n")
	}
	c.flush()
}

func (c *call) event(v any) {
	_, _ = io.WriteString(c.w, "data: ")
	reply(c.w, v)
	_, _ = io.WriteString(c.w, "\n\n")
	if c.d.o.Comments {
		_, _ = io.WriteString(c.w, ":\n\ndata:\n\n")
	}
	c.flush()
}

func (c *call) done() {
	_, _ = io.WriteString(c.w, "data: [DONE]\n\n")
	c.complete = true
}

// generate generates an answer. each, if not nil, is called with every token. It reports false
// if the call is over before the answer.
func (c *call) generate(s *sequence, each func(id uint32, reason string)) (ids []uint32, reason string, ok bool) {
	for reason == "" {
		if gate := c.d.o.Gate; gate != nil && gate(c.ctx()) != nil {
			return nil, "", false
		}
		if c.ctx().Err() != nil {
			return nil, "", false
		}
		var id uint32
		id, reason = s.next()
		ids = append(ids, id)
		if each != nil {
			each(id, reason)
		}
		if c.failHere() {
			return nil, "", false
		}
	}
	return ids, reason, true
}

// usage counts tokens as servers of OpenAI's API do.
func (c *call) usage(prompt, completion, cached int) map[string]any {
	return map[string]any{
		"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion,
		"prompt_tokens_details": map[string]any{"cached_tokens": cached},
	}
}

// cachedOf is how much of a prompt of n tokens a double finds in its cache: some.
func cachedOf(n int) int { return n / 16 * 8 }

// promptIsIDs reports whether the prompt of a text completion is a list of tokens.
func (c *call) promptIsIDs() bool {
	raw := bytes.TrimSpace(c.fields["prompt"])
	return len(raw) > 0 && raw[0] == '['
}

// prompt reads the prompt of a text completion, or the messages of a chat.
func (c *call) prompt() ([]uint32, error) {
	if raw, ok := c.fields["messages"]; ok {
		return PromptOf(mediaName.ReplaceAll(raw, nil)), nil
	}
	raw, ok := c.fields["prompt"]
	if !ok {
		return nil, fmt.Errorf("no prompt")
	}
	var ids []uint32
	var text string
	switch {
	case json.Unmarshal(raw, &ids) == nil && len(ids) > 0:
		return ids, nil
	case json.Unmarshal(raw, &text) == nil && text != "":
		return PromptOf([]byte(text)), nil
	}
	return nil, fmt.Errorf("the prompt is neither a text nor a list of tokens")
}
