package openai

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
)

const pathCompletions = "/v1/completions"

// tokenRequest returns a request for a prompt in tokens. Options beyond OpenAI's are there only
// where the request has them: some servers refuse them by name. End tokens are the server's
// own, since the API has none.
func tokenRequest(r *external.Request) ([]byte, error) {
	if err := abilities.Check(cluster.BackendOpenAI, r.PreprocessedRequest); err != nil {
		return nil, err
	}
	s := &r.Sampling
	var o wire.Object
	o.Text("model", r.Model)
	o.IDs("prompt", r.TokenIDs)
	o.Bool("stream", true)
	o.Raw("stream_options", []byte(`{"include_usage":true}`))
	o.Int("max_tokens", int64(r.Stop.MaxTokens))
	o.Float("temperature", s.Temperature)
	o.Float("top_p", wire.OrOne(s.TopP))
	o.Float("frequency_penalty", s.FrequencyPenalty)
	o.Float("presence_penalty", s.PresencePenalty)
	o.Seed(s, "seed")
	if s.TopK > 0 {
		o.Int("top_k", int64(s.TopK))
	}
	if s.MinP > 0 {
		o.Float("min_p", s.MinP)
	}
	if wire.OrOne(s.RepetitionPenalty) != 1 {
		o.Float("repetition_penalty", s.RepetitionPenalty)
		o.Float("repeat_penalty", s.RepetitionPenalty) // of llama.cpp
	}
	o.LogitBias(s.LogitBias)
	return o.Bytes(), nil
}

var abilities = wire.Abilities{}
