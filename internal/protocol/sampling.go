package protocol

// SamplingOptions say how the next token is chosen from the logits. Temperature 0 is
// greedy.
//
// Order of operations: allowed ids, bad words, minimum length, logit bias, penalties
// (repetition, frequency, presence), temperature, min-p, top-k, top-p, draw. It is that
// of vLLM, vllm/v1/sample/sampler.py.
type SamplingOptions struct {
	Temperature float32 `json:"temperature"`
	TopP        float32 `json:"top_p"` // 1 or 0: off
	TopK        int     `json:"top_k"` // 0 or negative: off
	MinP        float32 `json:"min_p"` // 0: off
	// Seed fixes the random draws. The draw for output position i depends only on (Seed,
	// i), not on other sequences in the batch.
	Seed uint64 `json:"seed"`

	// RepetitionPenalty applies to the tokens of prompt and output. It divides their
	// positive logits and multiplies their negative ones; 1 or 0: off.
	RepetitionPenalty float32 `json:"repetition_penalty"`
	// FrequencyPenalty is subtracted from a token's logit once for each occurrence in the
	// output, PresencePenalty once if the token occurs at all.
	FrequencyPenalty float32 `json:"frequency_penalty"`
	PresencePenalty  float32 `json:"presence_penalty"`

	// LogitBias is added to the logits. Each id occurs at most once.
	LogitBias []TokenBias `json:"logit_bias"`
	// AllowedTokenIDs are the only tokens that may be sampled; empty allows all.
	AllowedTokenIDs []uint32 `json:"allowed_token_ids"`
	// BadWords are token sequences that the output must not contain. The last token of a
	// sequence is not sampled right after the others.
	BadWords [][]uint32 `json:"bad_words_token_ids"`
}

// TokenBias adds Bias to the logit of one token.
type TokenBias struct {
	Token uint32  `json:"token"`
	Bias  float32 `json:"bias"`
}

// OutputOptions select what an answer contains beside the tokens.
type OutputOptions struct {
	// Logprobs asks for the log probability of each output token, and of this many most
	// likely tokens at its position; nil asks for none.
	Logprobs *int `json:"logprobs"`
	// PromptLogprobs asks the same for the tokens of the prompt after the first. The
	// worker that answers then computes the prompt itself, without a prefix cache.
	PromptLogprobs *int `json:"prompt_logprobs"`
}

// MaxLogprobs is the largest number of most likely tokens that a request may ask for.
const MaxLogprobs = 20

// Logprobs holds the log probabilities of consecutive tokens: natural logarithms of the
// softmax over the model's logits, before any sampling option. Values below -9999 are
// raised to -9999, so that all are finite.
type Logprobs struct {
	// Tokens holds one value for each token.
	Tokens []float32 `json:"log_probs"`
	// Width is the number of most likely tokens listed for each token. TopIDs and
	// TopValues hold Width entries for each, the most likely first.
	Width     int       `json:"width"`
	TopIDs    []uint32  `json:"top_ids"`
	TopValues []float32 `json:"top_log_probs"`
}

// Append adds the values of the tokens that follow. Both must have the same Width.
func (l *Logprobs) Append(next *Logprobs) {
	l.Tokens = append(l.Tokens, next.Tokens...)
	l.TopIDs = append(l.TopIDs, next.TopIDs...)
	l.TopValues = append(l.TopValues, next.TopValues...)
}

// Valid reports whether l has values for n tokens, and Width most likely tokens for each.
func (l *Logprobs) Valid(n int) bool {
	return len(l.Tokens) == n && l.Width >= 0 && l.Width <= MaxLogprobs &&
		len(l.TopIDs) == n*l.Width && len(l.TopValues) == n*l.Width
}

// Top returns the most likely tokens at the position of token i, with their values.
func (l *Logprobs) Top(i int) (ids []uint32, values []float32) {
	from, to := i*l.Width, (i+1)*l.Width
	return l.TopIDs[from:to], l.TopValues[from:to]
}
