package trtllm

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Generate implements external.Engine.
func (e *Engine) Generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	return wire.Generate(ctx, emit, func(emit func(protocol.EngineOutput) error) error { return e.generate(ctx, r, emit) })
}

// secondParams returns the params of r as a second leg, nil if it is none, and the context
// server's part.
func (e *Engine) secondParams(r *external.Request) (json.RawMessage, *handoff, error) {
	switch {
	case r.Handoff == nil && r.Meeting == nil:
		return nil, nil, nil
	case r.Handoff != nil && e.connector == contextFirst:
		h, err := readHandoff(r.Handoff)
		if err != nil {
			return nil, nil, err
		}
		params, err := h.second()
		return params, &h, err
	case r.Meeting != nil && e.connector == generationFirst:
		params, err := meetingParams(r.Meeting, generationOnly)
		return params, nil, err
	}
	return nil, nil, wire.Unavailable("the server's connector is %q: it takes no KV in this way", e.connector)
}

func (e *Engine) generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	params, h, err := e.secondParams(r)
	if err != nil {
		return err
	}
	if h != nil && h.PromptTokens > 0 && r.Body != nil {
		emit = countPrompt(emit, h.PromptTokens)
	}
	if r.Body != nil {
		path, b, err := clientRequest(r, params, h)
		if err != nil {
			return err
		}
		return e.client.PassOn(ctx, path, wire.RequestID(r), b, emit)
	}
	body, err := tokenRequest(r, true, params)
	if err != nil {
		return err
	}
	return e.tokens(ctx, r, body, emit)
}

// countPrompt has usage count the prompt as the context server did.
func countPrompt(emit func(protocol.EngineOutput) error, n int) func(protocol.EngineOutput) error {
	return func(o protocol.EngineOutput) error {
		if o.Usage != nil {
			u := *o.Usage
			u.PromptTokens = n
			o.Usage = &u
		}
		return emit(o)
	}
}

// clientRequest returns a client's body as the server gets it.
func clientRequest(r *external.Request, params json.RawMessage, h *handoff) (path string, b *wire.Body, err error) {
	if b, err = wire.ClientBody(r.Body, r.Model); err != nil {
		return "", nil, err
	}
	if path, err = wire.Path(r.API); err != nil || params == nil {
		return path, b, err
	}
	if err := external.Splittable(r.Body); err != nil {
		return "", nil, wire.Invalid("%v", err)
	}
	b.Set("disaggregated_params", params)
	switch {
	case h == nil:
	case r.API == protocol.APIChat:
		b.Set("prompt_token_ids", h.IDs)
	default:
		b.Set("prompt", h.IDs)
	}
	return path, b, nil
}

type choice struct {
	IDs      []uint32        `json:"token_ids"`
	Text     string          `json:"text"`
	Reason   *string         `json:"finish_reason"`
	Logprobs json.RawMessage `json:"logprobs"`
}

// piece makes a piece of a choice.
func piece(c choice, r *protocol.PreprocessedRequest) wire.Piece {
	p := wire.Piece{IDs: c.IDs}
	if c.IDs == nil {
		p.Text = c.Text
	}
	if c.Reason != nil && *c.Reason != "not_finished" {
		p.Reason = *c.Reason
	}
	if r.Output.Logprobs != nil {
		p.Logprobs = readLogprobs(c.Logprobs)
	}
	return p
}

// readLogprobs reads the log probabilities of tokens without others; nil if there are none.
func readLogprobs(raw json.RawMessage) *protocol.Logprobs {
	var v struct {
		Values []*float32 `json:"token_logprobs"`
	}
	if wire.IsNull(raw) || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	l := &protocol.Logprobs{}
	for _, value := range v.Values {
		if value == nil || !wire.AddLogprob(l, *value, nil, 0) {
			return nil
		}
	}
	return l
}

func (e *Engine) tokens(ctx context.Context, r *external.Request, body []byte, emit func(protocol.EngineOutput) error) error {
	answer := wire.NewTokens(r.PreprocessedRequest, emit)
	marked, err := e.client.Stream(ctx, pathCompletions, wire.RequestID(r), body, func(data []byte) error {
		if err := e.client.Failure(pathCompletions, data); err != nil {
			return err
		}
		var c struct {
			Choices []choice    `json:"choices"`
			Usage   *wire.Usage `json:"usage"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return wire.Unavailable("%s: a chunk: %v", pathCompletions, err)
		}
		if c.Usage != nil {
			answer.SetUsage(*c.Usage)
		}
		for _, choice := range c.Choices {
			if err := answer.Add(piece(choice, r.PreprocessedRequest)); err != nil {
				return err
			}
		}
		return nil
	})
	switch {
	case errors.Is(err, wire.ErrEnough):
	case err != nil:
		return err
	case !marked && !answer.Ended():
		return wire.Unavailable("%s: the stream was cut", pathCompletions)
	}
	return answer.Close()
}
