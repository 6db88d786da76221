package frontend

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/protocol"
)

// params holds the fields that chat and text completions share.
type params struct {
	model              string
	stream             bool
	includeUsage       bool
	streamOptionsGiven bool
	maxTokens          *int64
	maxName            string // the field that maxTokens came from
	minTokens          *int64
	truncate           *int64               // truncate_prompt_tokens
	media              []protocol.MediaPart // images of the prompt, set by prompts
	n                  *int64
	temperature, topP  *float64
	minP               *float64
	topK               *int64
	seed               *int64
	stop               []string
	stopTokenIDs       []uint32
	ignoreEOS          bool
	includeStop        bool
	skipSpecial        bool
	sampler            samplerParams
	// logprobs is the number of most likely tokens to report for each token, or nil for
	// no log probabilities. promptLogprobs does the same for the prompt.
	logprobs       *int
	promptLogprobs bool
	tokensAsIDs    bool // return_tokens_as_token_ids
	guided         guidedParams
	nvext          nvextParams
}

const (
	maxChoices = 128           // n, and prompts times n
	maxStops   = 32            // stop strings of a request
	maxCount   = math.MaxInt32 // of anything that is counted in tokens
)

func (p *params) shared() *params { return p }

// sharedFields returns the fields that fill p. Unsupported fields are refused by name,
// unless their value asks for nothing.
func (p *params) sharedFields() fields {
	p.skipSpecial, p.maxName = true, "max_tokens"
	f := fields{
		"model":             text(&p.model),
		"stream":            flag(&p.stream),
		"stream_options":    p.streamOptions(),
		"max_tokens":        integer(&p.maxTokens, 1, maxCount),
		"min_tokens":        integer(&p.minTokens, 0, maxCount),
		"n":                 integer(&p.n, 1, maxChoices),
		"temperature":       number(&p.temperature, 0, 2),
		"top_p":             number(&p.topP, 0, 1),
		"top_k":             integer(&p.topK, -1, maxCount),
		"min_p":             number(&p.minP, 0, 1),
		"seed":              integer(&p.seed, math.MinInt64, math.MaxInt64),
		"stop":              stops(&p.stop, maxStops),
		"stop_token_ids":    tokenIDs(&p.stopTokenIDs, maxStopIDs),
		"ignore_eos":        flag(&p.ignoreEOS),
		"user":              ignored,
		"metadata":          ignored,
		"safety_identifier": ignored,
		"prompt_cache_key":  ignored,
		"service_tier":      ignored,
		"store":             ignored,
		"priority":          p.nvext.queueing.readPlace,

		"prompt_cache_retention": ignored,
		"truncate_prompt_tokens": integer(&p.truncate, -1, maxCount),

		"include_stop_str_in_output": flag(&p.includeStop),
		"skip_special_tokens":        flag(&p.skipSpecial),
		"return_tokens_as_token_ids": flag(&p.tokensAsIDs),
		"nvext":                      object(p.nvext.read),
	}
	p.sampler.addFields(f)
	p.guided.addFields(f)
	return f
}

func (p *params) streamOptions() field {
	members := object(func(path, key string, raw json.RawMessage) *apiError {
		switch key {
		case "include_usage":
			return flag(&p.includeUsage)(path, raw)
		case "include_obfuscation": // padding against traffic analysis; none is added
			return nil
		}
		return invalid(path, "Unknown parameter: '%s'.", path).withCode("unknown_parameter")
	})
	return func(name string, raw json.RawMessage) *apiError {
		p.streamOptionsGiven = true
		return members(name, raw)
	}
}

// check validates fields that depend on each other.
func (p *params) check() *apiError {
	switch {
	case p.model == "":
		return missing("model")
	case p.streamOptionsGiven && !p.stream:
		return invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case p.minTokens != nil && p.maxTokens != nil && *p.minTokens > *p.maxTokens:
		return wrongValue("min_tokens", "%d is more than '%s', %d", *p.minTokens, p.maxName, *p.maxTokens)
	}
	return nil
}

// bind checks token ids in a request against the model, and turns words into tokens.
func (p *params) bind(ctx context.Context, m *servedModel) *apiError {
	if err := checkTokens(m, "stop_token_ids", p.stopTokenIDs); err != nil {
		return err
	}
	if err := p.guided.bind(ctx, m); err != nil {
		return err
	}
	if err := p.nvext.bind(m); err != nil {
		return err
	}
	return p.sampler.bind(m)
}

// checkTokens refuses ids outside of the model's vocabulary.
func checkTokens(m *servedModel, param string, ids []uint32) *apiError {
	for _, id := range ids {
		if int64(id) >= int64(m.proc.VocabSize()) {
			return wrongValue(param, "%d is not a token of this model", id)
		}
	}
	return nil
}

// choices returns how many answers the client wants for each prompt.
func (p *params) choices() int {
	if p.n == nil {
		return 1
	}
	return int(*p.n)
}

// minimum returns how many tokens must come before the text may stop.
func (p *params) minimum() int {
	if p.minTokens == nil {
		return 0
	}
	return int(*p.minTokens)
}

// promptTooLong returns the error for a prompt with at least the given number of tokens.
func promptTooLong(param string, context, atLeast int) *apiError {
	return tooLong(param, "This model's maximum context length is %d tokens. However, the prompt has at least %d tokens.", context, atLeast)
}

// promptError returns the client's error for a prompt that cannot be tokenized.
func promptError(m *servedModel, param string, err error) *apiError {
	var long *chat.TooLongError
	switch {
	case errors.As(err, &long):
		return promptTooLong(param, m.card.ContextLength, long.AtLeast)
	case errors.Is(err, chat.ErrSplit):
		return wrongValue(param, "%v", chat.ErrSplit)
	}
	return asAPIError(err)
}

// budget returns the number of tokens to generate after a prompt: the client's limit, or
// else fallback, or else all that the context has room for. param names the field that
// holds the prompt.
func (p *params) budget(m *servedModel, prompt int, param string, fallback int) (int, *apiError) {
	context := m.card.ContextLength
	room := context - prompt
	switch {
	case prompt == 0:
		return 0, wrongValue(param, "the prompt has no tokens")
	case room == 0 && p.maxTokens != nil && *p.maxTokens == 0:
		return 0, nil
	case room < 1:
		return 0, tooLong(param, "This model's maximum context length is %d tokens. However, the prompt has %d tokens.", context, prompt)
	case p.maxTokens == nil && (fallback == 0 || fallback > room):
		return room, nil
	case p.maxTokens == nil:
		return fallback, nil
	case *p.maxTokens > int64(room):
		return 0, tooLong(p.maxName, "This model's maximum context length is %d tokens. However, %d tokens were requested: %d in the prompt and %d in the completion.",
			context, int64(prompt)+*p.maxTokens, prompt, *p.maxTokens)
	}
	return int(*p.maxTokens), nil
}

// request makes the worker's request for one choice of one prompt.
func (p *params) request(m *servedModel, prompt []uint32, budget, choice int) protocol.PreprocessedRequest {
	stop := protocol.StopConditions{MaxTokens: budget, MinTokens: p.minimum()}
	if p.includeStop { // then the text ends with the token, as it does with a string
		stop.StopTokenIDsVisible = slices.Clone(p.stopTokenIDs)
	} else {
		stop.StopTokenIDs = slices.Clone(p.stopTokenIDs)
	}
	if !p.ignoreEOS {
		stop.StopTokenIDs = append(stop.StopTokenIDs, m.proc.EOS()...)
	}
	r := protocol.PreprocessedRequest{
		Model: p.model, ModelSum: m.card.Digest, Adapter: m.adapter(), TokenIDs: append([]uint32(nil), prompt...), Media: p.media,
		Guided: p.guided.spec, Stop: stop, Sampling: p.sampling(m.proc.Defaults(), choice), Output: protocol.OutputOptions{Logprobs: p.logprobs},
	}
	if p.promptLogprobs {
		r.Output.PromptLogprobs = p.logprobs
	}
	return r
}
