package dynamo

import (
	"context"

	"github.com/dynctl/dynctl/internal/outside"
)

// Model describes a model that a program serves with an engine of its own.
type Model struct {
	Name string // as clients ask for it
	// Dir is a folder with tokenizer.json and, as far as the model has them,
	// tokenizer_config.json, special_tokens_map.json, chat_template.jinja,
	// generation_config.json and config.json. Empty means a small tokenizer that knows
	// every byte, with a ChatML template.
	Dir           string
	ContextLength int // tokens of prompt and answer; default 4096
	// Concurrent is the number of requests that the engine handles well at a time; default
	// 64. Frontends measure load by it, the program itself takes more.
	Concurrent int
}

// ServeModel serves a model: frontends of the runtime's namespace offer it under its name,
// and send prompts to the engine. Programs that serve the same model share its requests; what
// one of them has begun when it dies, another one continues. The model is served until the
// end of the runtime.
func (r *Runtime) ServeModel(ctx context.Context, m Model, engine Engine) error {
	var inner outside.Engine
	if engine != nil {
		inner = func(ctx context.Context, p *outside.Prompt, emit func(tokens ...uint32) error) error {
			return remote(engine(ctx, &Prompt{
				ID: p.ID, Tokens: p.Tokens, Generated: p.Generated, MaxTokens: p.MaxTokens,
				Temperature: p.Temperature, TopP: p.TopP, TopK: p.TopK, Seed: p.Seed, tok: p.Tokenizer,
			}, emit))
		}
	}
	_, err := outside.ServeModel(ctx, r.d, outside.Model(m), inner)
	return err
}
