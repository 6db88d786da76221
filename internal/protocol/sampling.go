package protocol

// SamplingOptions choose the next token from the logits. Temperature 0 is greedy.
//
// Order of operations: allowed ids, bad words, minimum length, logit bias,
// penalties (repetition, frequency, presence), temperature, min-p, top-k, top-p,
// draw. It is that of vLLM, vllm/v1/sample/sampler.py.
type SamplingOptions struct {
	Temperature float32 `json:"temperature"`
	TopP        float32 `json:"top_p"` // 1 or 0: off
	TopK        int     `json:"top_k"` // 0 or negative: off
	MinP        float32 `json:"min_p"` // 0: off
	// Seed fixes the random draws: the draw for output position i depends on
	// (Seed, i) only, whatever else is in the batch.
	Seed uint64 `json:"seed"`

	// RepetitionPenalty divides the positive logits of tokens of prompt and output
	// and multiplies the negative ones; 1 or 0: off.
	RepetitionPenalty float32 `json:"repetition_penalty"`
	// FrequencyPenalty is subtracted once for each time that a token is in the
	// output, PresencePenalty once if it is there at all.
	FrequencyPenalty float32 `json:"frequency_penalty"`
	PresencePenalty  float32 `json:"presence_penalty"`

	// LogitBias is added to logits; an id is in it at most once.
	LogitBias []TokenBias `json:"logit_bias"`
	// AllowedTokenIDs, if there are any, are the only ones that may be drawn.
	AllowedTokenIDs []uint32 `json:"allowed_token_ids"`
	// BadWords are sequences that the output may not contain: the last token of one
	// is not drawn where the others stand before it.
	BadWords [][]uint32 `json:"bad_words_token_ids"`
}

// TokenBias is what is added to the logit of one token.
type TokenBias struct {
	Token uint32  `json:"token"`
	Bias  float32 `json:"bias"`
}

// OutputOptions say what an answer tells beside the tokens.
type OutputOptions struct {
	// Logprobs asks for the log probability of each token and those of so many of
	// the most likely ones in its place; nil asks for none.
	Logprobs *int `json:"logprobs"`
	// PromptLogprobs asks the same for the tokens of the prompt after the first. Such
	// a prompt is computed where the answer is, without a prefix cache.
	PromptLogprobs *int `json:"prompt_logprobs"`
}

// MaxLogprobs bounds the most likely tokens that can be asked for.
const MaxLogprobs = 20

// Logprobs are log probabilities of a run of tokens: natural logarithms of the
// softmax over the model's logits, before any of the sampling options. What is
// below -9999 is -9999, so that all are finite.
type Logprobs struct {
	// Tokens holds one value for each token of the run.
	Tokens []float32 `json:"log_probs"`
	// Width is how many of the most likely tokens are told for each token. TopIDs
	// and TopValues hold Width entries for each, the most likely first.
	Width     int       `json:"width"`
	TopIDs    []uint32  `json:"top_ids"`
	TopValues []float32 `json:"top_log_probs"`
}

// Append adds those of the tokens that follow. Both must have the same width.
func (l *Logprobs) Append(next *Logprobs) {
	l.Tokens = append(l.Tokens, next.Tokens...)
	l.TopIDs = append(l.TopIDs, next.TopIDs...)
	l.TopValues = append(l.TopValues, next.TopValues...)
}

// Valid reports whether there are values for n tokens, with as many of the most
// likely ones as Width says.
func (l *Logprobs) Valid(n int) bool {
	return len(l.Tokens) == n && l.Width >= 0 && l.Width <= MaxLogprobs &&
		len(l.TopIDs) == n*l.Width && len(l.TopValues) == n*l.Width
}

// Top returns the most likely tokens in the place of token i, and their values.
func (l *Logprobs) Top(i int) (ids []uint32, values []float32) {
	from, to := i*l.Width, (i+1)*l.Width
	return l.TopIDs[from:to], l.TopValues[from:to]
}
