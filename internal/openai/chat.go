package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

// Message is one message of a conversation.
type Message struct {
	Role    string `json:"role"` // system, user or assistant
	Content string `json:"content"`
}

// Request asks for the next message of a conversation. The frontend chooses the value of
// fields that are nil or 0.
type Request struct {
	Model    string    `json:"model"`
	Messages []Message `json:"messages"`
	// Prompt is what [Client.Complete] continues.
	Prompt string `json:"-"`
	// Images are URLs of images that stand before the text of the first message of the user.
	Images    []string `json:"-"`
	MaxTokens int      `json:"max_tokens,omitempty"`
	// MinTokens and IgnoreEOS have an answer go on where the model would end it. Frontends
	// that do not know them refuse them.
	MinTokens   int      `json:"min_tokens,omitempty"`
	IgnoreEOS   bool     `json:"ignore_eos,omitempty"`
	Temperature *float64 `json:"temperature,omitempty"`
	Seed        *int64   `json:"seed,omitempty"`
	// NVExt, if not nil, requires a frontend that supports Dynamo's extension.
	NVExt *Extension `json:"nvext,omitempty"`
}

// encoded returns the messages as they are sent: that with the images as a list of parts.
func (q Request) encoded() any {
	if len(q.Images) == 0 {
		return q.Messages
	}
	type url struct {
		URL string `json:"url"`
	}
	type part struct {
		Type  string `json:"type"`
		Text  string `json:"text,omitempty"`
		Image *url   `json:"image_url,omitempty"`
	}
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}
	all, done := make([]message, len(q.Messages)), false
	for i, m := range q.Messages {
		all[i] = message{m.Role, m.Content}
		if m.Role != "user" || done {
			continue
		}
		done = true
		var parts []part
		for _, u := range q.Images {
			parts = append(parts, part{Type: "image_url", Image: &url{u}})
		}
		if m.Content != "" {
			parts = append(parts, part{Type: "text", Text: m.Content})
		}
		all[i].Content = parts
	}
	return all
}

// Delta is the content of one event of a stream. A delta without text only shows that the
// frontend is alive.
type Delta struct {
	Text      string
	Reasoning string
	// Tokens counts those of the answer so far, where the frontend tells it with the text;
	// else it is 0.
	Tokens int
}

// Usage counts tokens.
type Usage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
	// Cached counts the prompt tokens found in a prefix cache; nil when the frontend does
	// not report it. Reasoning counts the reasoning tokens of the answer.
	Cached    *int `json:"cached_tokens"`
	Reasoning *int `json:"reasoning_tokens"`
}

// Answer is a message, with its figures and timing.
type Answer struct {
	RequestID string // the frontend's id of the request; may be empty
	Model     string
	Text      string
	Reasoning string
	// Finish is the reason why the answer ended: stop, length and others.
	Finish string
	Usage  *Usage // nil when not reported
	Ran    *Ran   // nil when not requested or not reported
	// TTFT is the time from sending the request to the first text or reasoning; 0 if
	// there was none. Took is the time to the last of these.
	TTFT, Took time.Duration
}

// TokensPerSecond returns the speed after the first token, by the frontend's count; nil
// if it cannot be computed.
func (a Answer) TokensPerSecond() *float64 {
	dt := (a.Took - a.TTFT).Seconds()
	if a.Usage == nil || a.Usage.Completion < 2 || a.TTFT <= 0 || dt <= 0 {
		return nil
	}
	v := float64(a.Usage.Completion-1) / dt
	return &v
}

// chunk holds the fields of a stream event that this package uses.
type chunk struct {
	envelope
	Model   string `json:"model"`
	NVExt   *Ran   `json:"nvext"`
	Choices []struct {
		Delta struct {
			Content          string `json:"content"`
			ReasoningContent string `json:"reasoning_content"`
			Reasoning        string `json:"reasoning"`
		} `json:"delta"`
		Text         string `json:"text"` // of a text completion
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		Usage
		PromptDetails *struct {
			Cached *int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		CompletionDetails *struct {
			Reasoning *int `json:"reasoning_tokens"`
		} `json:"completion_tokens_details"`
	} `json:"usage"`
}

// Chat asks for the next message and calls each for every delta, on the calling
// goroutine. An error of each ends the request. On failure, the answer holds what arrived
// before. The error is an [Error] when the frontend refuses, ErrBroken when the stream
// ends early, and the cause of ctx when ctx ended.
func (c *Client) Chat(ctx context.Context, q Request, each func(Delta) error) (Answer, error) {
	return c.stream(ctx, "/v1/chat/completions", q.Model, struct {
		Request
		Messages any `json:"messages"`
		streaming
	}{q, q.encoded(), streamed}, each)
}

// maxQueried bounds the answer to a query, in bytes.
const maxQueried = 64 << 20

// Query asks where a chat would run now. Nothing is generated, booked or reserved for it. The
// error is an [Error] when the frontend refuses.
func (c *Client) Query(ctx context.Context, q Request) (Ran, error) {
	q.NVExt = &Extension{Query: true}
	body, err := json.Marshal(struct {
		Request
		Messages any `json:"messages"`
	}{q, q.encoded()})
	if err != nil {
		return Ran{}, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+"/v1/chat/completions", bytes.NewReader(body))
	if err != nil {
		return Ran{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := c.do(req)
	if err != nil {
		return Ran{}, err
	}
	defer resp.Body.Close()
	var a struct {
		NVExt *Ran `json:"nvext"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxQueried)).Decode(&a); err != nil {
		return Ran{}, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if a.NVExt == nil || a.NVExt.Workers == nil {
		return Ran{}, fmt.Errorf("%w: it does not say where the request would run", ErrProtocol)
	}
	return *a.NVExt, nil
}

// Complete continues the request's prompt without a chat template. It is otherwise as Chat.
func (c *Client) Complete(ctx context.Context, q Request, each func(Delta) error) (Answer, error) {
	return c.stream(ctx, "/v1/completions", q.Model, struct {
		Request
		Messages []Message `json:"messages,omitempty"`
		Prompt   string    `json:"prompt"`
		streaming
	}{q, nil, q.Prompt, streamed}, each)
}

// streaming are the fields that ask for a stream with usage.
type streaming struct {
	Stream  bool `json:"stream"`
	Options struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

var streamed = streaming{Stream: true, Options: struct {
	IncludeUsage bool `json:"include_usage"`
}{true}}

// stream posts a question and reads the stream of its answer.
func (c *Client) stream(ctx context.Context, path, model string, question any, each func(Delta) error) (Answer, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return Answer{}, fmt.Errorf("encode the request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	s := stream{each: each, begin: time.Now(), answer: Answer{Model: model}}
	resp, err := c.do(req)
	if err != nil {
		return s.answer, err
	}
	defer resp.Body.Close()
	s.answer.RequestID = resp.Header.Get("X-Request-Id")
	if kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type")); err != nil || kind != "text/event-stream" {
		return s.answer, fmt.Errorf("%w: it is %q, no stream of events", ErrProtocol, resp.Header.Get("Content-Type"))
	}
	err = s.read(NewEvents(resp.Body))
	if err == nil {
		finish(resp.Body)
	}
	s.answer.Text, s.answer.Reasoning = s.text.String(), s.reasoning.String()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	return s.answer, err
}

// finishTime is how long the end of a body may follow the end of its answer, for its
// connection to be used again.
const finishTime = time.Second

// finish reads the end of a body, without which its connection would be closed.
func finish(body io.ReadCloser) {
	late := time.AfterFunc(finishTime, func() { _ = body.Close() })
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, 4<<10) // the answer is complete without it
}

// stream assembles an answer from its events.
type stream struct {
	each            func(Delta) error
	begin           time.Time
	answer          Answer
	text, reasoning strings.Builder
}

func (s *stream) read(events *Events) error {
	for {
		ev, err := events.Next()
		switch {
		case errors.Is(err, io.EOF):
			if s.answer.Finish != "" {
				return nil // some frontends close the connection without the final event
			}
			return fmt.Errorf("%w: the connection was closed", ErrBroken)
		case err != nil:
			return fmt.Errorf("%w: %w", ErrBroken, err)
		case ev.Comment:
			if err := s.each(Delta{}); err != nil {
				return err
			}
			continue
		case strings.TrimSpace(ev.Data) == "[DONE]":
			if s.answer.Finish == "" {
				return fmt.Errorf("%w: it has no end", ErrBroken)
			}
			return nil
		}
		var c chunk
		if err := json.Unmarshal([]byte(ev.Data), &c); err != nil {
			return fmt.Errorf("%w: %w: %w", ErrBroken, ErrProtocol, err)
		}
		if err := s.take(c); err != nil {
			return err
		}
	}
}

// take adds one event to the answer.
func (s *stream) take(c chunk) error {
	if c.Error != nil {
		return fmt.Errorf("%w: %w", ErrBroken, c.err(0))
	}
	if c.Model != "" {
		s.answer.Model = c.Model
	}
	if u := c.Usage; u != nil {
		s.answer.Usage = &u.Usage
		if u.PromptDetails != nil {
			s.answer.Usage.Cached = u.PromptDetails.Cached
		}
		if u.CompletionDetails != nil {
			s.answer.Usage.Reasoning = u.CompletionDetails.Reasoning
		}
	}
	if c.NVExt != nil {
		s.answer.Ran = c.NVExt
	}
	var d Delta
	if len(c.Choices) > 0 { // the request asks for one choice
		first := c.Choices[0]
		d = Delta{Text: first.Delta.Content, Reasoning: first.Delta.ReasoningContent}
		if d.Text == "" {
			d.Text = first.Text
		}
		if d.Reasoning == "" {
			d.Reasoning = first.Delta.Reasoning
		}
		if c.Usage != nil {
			d.Tokens = c.Usage.Completion
		}
		if first.FinishReason != "" {
			s.answer.Finish = first.FinishReason
		}
	}
	if d.Text != "" || d.Reasoning != "" {
		s.answer.Took = time.Since(s.begin)
		if s.answer.TTFT == 0 {
			s.answer.TTFT = s.answer.Took
		}
		s.text.WriteString(d.Text)
		s.reasoning.WriteString(d.Reasoning)
	}
	return s.each(d)
}
