package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Generate implements external.Engine.
func (e *Engine) Generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	return wire.Generate(ctx, emit, func(emit func(protocol.EngineOutput) error) error { return e.generate(ctx, r, emit) })
}

func (e *Engine) generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	params, err := e.secondParams(r)
	if err != nil {
		return err
	}
	header := wire.RequestID(r)
	if r.Body != nil {
		b, err := wire.ClientBody(r.Body, r.Model)
		if err != nil {
			return err
		}
		path, err := wire.Path(r.API)
		if err != nil {
			return err
		}
		if err := embedded(b, r.Encoded); err != nil {
			return err
		}
		if params != nil {
			b.Set("kv_transfer_params", params)
		}
		return e.client.PassOn(ctx, path, header, b, emit)
	}
	d, err := e.dialect(ctx)
	if err != nil {
		return err
	}
	path, body, err := d.tokenRequest(r, whole, params)
	if err != nil {
		return err
	}
	return e.tokens(ctx, path, header, body, r.PreprocessedRequest, emit)
}

// chunk is an event of either endpoint.
type chunk struct {
	Choices []struct {
		Text     string          `json:"text"`
		IDs      []uint32        `json:"token_ids"`
		Reason   *string         `json:"finish_reason"`
		Logprobs json.RawMessage `json:"logprobs"`
	} `json:"choices"`
	Usage *wire.Usage `json:"usage"`
}

func (e *Engine) tokens(ctx context.Context, path string, header http.Header, body []byte, r *protocol.PreprocessedRequest, emit func(protocol.EngineOutput) error) error {
	answer := wire.NewTokens(r, emit)
	marked, err := e.client.Stream(ctx, path, header, body, func(data []byte) error {
		if err := e.client.Failure(path, data); err != nil {
			return err
		}
		var c chunk
		if err := json.Unmarshal(data, &c); err != nil {
			return wire.Unavailable("%s: a chunk: %v", path, err)
		}
		if c.Usage != nil {
			answer.SetUsage(*c.Usage)
		}
		for _, choice := range c.Choices {
			p := wire.Piece{IDs: choice.IDs}
			if choice.IDs == nil {
				p.Text = choice.Text
			}
			if choice.Reason != nil {
				p.Reason = *choice.Reason
			}
			if r.Output.Logprobs != nil {
				p.Logprobs = readLogprobs(choice.Logprobs, *r.Output.Logprobs)
			}
			if err := answer.Add(p); err != nil {
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
		return wire.Unavailable("%s: the stream was cut", path)
	case !answer.Ended():
		// The last chunk of /inference/v1/generate is left out if it has no tokens.
		if path != pathGenerate {
			break
		}
		reason := "stop"
		if answer.Emitted() >= r.Stop.MaxTokens {
			reason = "length"
		}
		if err := answer.Add(wire.Piece{Reason: reason}); err != nil {
			return err
		}
	}
	return answer.Close()
}

// readLogprobs reads log probabilities in the form of text completions or of chats. It returns
// nil for what it cannot read.
func readLogprobs(raw json.RawMessage, width int) *protocol.Logprobs {
	type token struct {
		Token string  `json:"token"`
		Value float32 `json:"logprob"`
	}
	var v struct {
		Values  []float32            `json:"token_logprobs"`
		Top     []map[string]float32 `json:"top_logprobs"`
		Content []struct {
			token
			Top []token `json:"top_logprobs"`
		} `json:"content"`
	}
	if wire.IsNull(raw) || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	l := &protocol.Logprobs{Width: width}
	for i, value := range v.Values {
		var top []wire.Candidate
		if i < len(v.Top) {
			for name, value := range v.Top[i] {
				if id, ok := wire.TokenID(name); ok {
					top = append(top, wire.Candidate{ID: id, Value: value})
				}
			}
		}
		if !wire.AddLogprob(l, value, top, width) {
			return nil
		}
	}
	for _, c := range v.Content {
		var top []wire.Candidate
		for _, t := range c.Top {
			if id, ok := wire.TokenID(t.Token); ok {
				top = append(top, wire.Candidate{ID: id, Value: t.Value})
			}
		}
		if !wire.AddLogprob(l, c.Value, top, width) {
			return nil
		}
	}
	return l
}
