package wire

import (
	"strconv"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Sampling adds the options of a request that all engines but plain OpenAI servers name alike,
// and the seed under its name. All are written: a server has defaults of its own.
func (o *Object) Sampling(s *protocol.SamplingOptions, seed string) {
	o.Float("temperature", s.Temperature)
	o.Float("top_p", OrOne(s.TopP))
	o.Float("min_p", s.MinP)
	o.Float("repetition_penalty", OrOne(s.RepetitionPenalty))
	o.Float("frequency_penalty", s.FrequencyPenalty)
	o.Float("presence_penalty", s.PresencePenalty)
	o.Seed(s, seed)
	o.LogitBias(s.LogitBias)
}

// Seed adds the seed, where there is something to draw. Servers take signed ones.
func (o *Object) Seed(s *protocol.SamplingOptions, name string) {
	if s.Temperature > 0 {
		o.Uint(name, s.Seed&(1<<63-1))
	}
}

// LogitBias adds biases, if there are any.
func (o *Object) LogitBias(list []protocol.TokenBias) {
	if len(list) == 0 {
		return
	}
	var bias Object
	for _, b := range list {
		bias.Float(strconv.FormatUint(uint64(b.Token), 10), b.Bias)
	}
	o.Raw("logit_bias", bias.Bytes())
}

// OrOne returns x, or 1 for 0, which is off for some options.
func OrOne(x float32) float32 {
	if x == 0 {
		return 1
	}
	return x
}

// StopIDs returns all tokens that end an answer.
func StopIDs(s *protocol.StopConditions) []uint32 {
	return append(append([]uint32(nil), s.StopTokenIDs...), s.StopTokenIDsVisible...)
}

// MinTokens returns the least length of an answer, of which servers want that it is within the
// greatest.
func MinTokens(s *protocol.StopConditions) int64 {
	return int64(min(max(s.MinTokens, 0), s.MaxTokens))
}

// Abilities are what an engine can do for a prompt in tokens that not all can.
type Abilities struct {
	AllowedIDs  bool
	MinTokens   bool
	VisibleStop bool // end tokens that stay in the answer
	Logprobs    bool // of the tokens of the answer
	TopLogprobs bool // with the most likely tokens, as tokens
	Guided      []string
}

// Check refuses a request that asks for what the engine cannot do, or for what none can do
// over HTTP.
func (a Abilities) Check(engine string, r *protocol.PreprocessedRequest) error {
	unsupported := func(field string) error { return Unsupported(engine, field) }
	logprobs := r.Output.Logprobs
	switch {
	case len(r.Media) > 0:
		return unsupported("images of a prompt in tokens")
	case len(r.Sampling.BadWords) > 0:
		return unsupported("bad_words as tokens")
	case len(r.Sampling.AllowedTokenIDs) > 0 && !a.AllowedIDs:
		return unsupported("allowed_token_ids")
	case r.Output.PromptLogprobs != nil:
		return unsupported("prompt_logprobs of a stream")
	case r.Stop.MaxTokens < 1:
		return unsupported("max_tokens of 0")
	case r.Stop.MinTokens > 0 && !a.MinTokens:
		return unsupported("min_tokens")
	case len(r.Stop.StopTokenIDsVisible) > 0 && !a.VisibleStop:
		return unsupported("stop_token_ids that stay in the answer")
	case logprobs != nil && !a.Logprobs:
		return unsupported("logprobs as tokens")
	case logprobs != nil && *logprobs > 0 && !a.TopLogprobs:
		return unsupported("top_logprobs as tokens")
	}
	g := r.Guided
	if g == nil {
		return nil
	}
	if len(g.After) > 0 {
		return unsupported("structured output after reasoning")
	}
	for _, kind := range a.Guided {
		if kind == g.Kind {
			return nil
		}
	}
	return unsupported("structured output of kind " + strconv.Quote(g.Kind))
}
