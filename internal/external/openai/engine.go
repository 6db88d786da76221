package openai

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// Engine is one server.
type Engine struct {
	config wire.Config
	client *wire.Client
}

var _ external.Engine = (*Engine)(nil)

// New returns the server that the configuration names. It sends nothing.
func New(c wire.Config) (*Engine, error) {
	if name := c.Engine.Server.Connector; name != "" && name != wire.ConnectorNone {
		return nil, fmt.Errorf("connector %q: servers with the OpenAI API exchange no KV", name)
	}
	client, err := wire.NewClient(c)
	if err != nil {
		return nil, err
	}
	return &Engine{config: c, client: client}, nil
}

// Exchange implements external.Engine.
func (e *Engine) Exchange() external.Exchange { return external.ExchangeNone }

// Health implements external.Engine. A server without /health is well if it lists its models.
func (e *Engine) Health(ctx context.Context) error { return wire.Remote(ctx, e.health(ctx)) }

func (e *Engine) health(ctx context.Context) error {
	_, err := e.client.Get(ctx, "/health")
	if err != nil && wire.Optional(err) == nil {
		_, err = e.client.Get(ctx, "/v1/models")
	}
	return err
}

// Close implements external.Engine.
func (e *Engine) Close() { e.client.Close() }

// Probe implements external.Engine.
func (e *Engine) Probe(ctx context.Context) (external.Facts, error) {
	var f external.Facts
	err := wire.Ready(e.health(ctx))
	if err == nil {
		var models []wire.Model
		models, err = e.client.Models(ctx, e.config.Model, &f)
		f.Adapters = wire.Adapters(models, e.config.Model)
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return f, err
}

// Load implements external.Engine, by the metrics of llama.cpp. Of other servers nothing is
// known.
func (e *Engine) Load(ctx context.Context) (external.Load, error) {
	b, err := e.client.Get(ctx, "/metrics")
	if err != nil {
		return external.Load{}, wire.Remote(ctx, wire.Optional(err))
	}
	m := wire.ParseMetrics(b, func(name string) bool { return strings.HasPrefix(name, "llamacpp:") })
	return external.Load{
		Running:   m.Int("llamacpp:requests_processing"),
		Waiting:   m.Int("llamacpp:requests_deferred"),
		KVUsage:   m.Share("llamacpp:kv_cache_usage_ratio"),
		Prompt:    m.Count("llamacpp:prompt_tokens_total"),
		Generated: m.Count("llamacpp:tokens_predicted_total"),
	}, nil
}

// Prefill implements external.Engine: it fails.
func (e *Engine) Prefill(context.Context, *external.Request) (external.Prefilled, error) {
	return external.Prefilled{PromptTokens: -1, CachedTokens: -1}, errNoExchange
}

var errNoExchange = wire.Unavailable("servers with the OpenAI API exchange no KV")

// Generate implements external.Engine.
func (e *Engine) Generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	return wire.Generate(ctx, emit, func(emit func(protocol.EngineOutput) error) error { return e.generate(ctx, r, emit) })
}

func (e *Engine) generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	if r.Handoff != nil || r.Meeting != nil {
		return errNoExchange
	}
	if r.Body == nil {
		return e.tokens(ctx, r, emit)
	}
	b, err := wire.ClientBody(r.Body, r.Model)
	if err != nil {
		return err
	}
	path, err := wire.Path(r.API)
	if err != nil {
		return err
	}
	return e.client.PassOn(ctx, path, wire.RequestID(r), b, emit)
}

func (e *Engine) tokens(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	body, err := tokenRequest(r)
	if err != nil {
		return err
	}
	answer := wire.NewTokens(r.PreprocessedRequest, emit)
	marked, err := e.client.Stream(ctx, pathCompletions, wire.RequestID(r), body, func(data []byte) error {
		if err := e.client.Failure(pathCompletions, data); err != nil {
			return err
		}
		var c struct {
			Choices []struct {
				Text   string  `json:"text"`
				Reason *string `json:"finish_reason"`
			} `json:"choices"`
			Usage *wire.Usage `json:"usage"`
		}
		if err := json.Unmarshal(data, &c); err != nil {
			return wire.Unavailable("%s: a chunk: %v", pathCompletions, err)
		}
		if c.Usage != nil {
			answer.SetUsage(*c.Usage)
		}
		for _, choice := range c.Choices {
			p := wire.Piece{Text: choice.Text}
			if choice.Reason != nil {
				p.Reason = *choice.Reason
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
		return wire.Unavailable("%s: the stream was cut", pathCompletions)
	}
	return answer.Close()
}
