package frontend

import (
	"encoding/json"
	"math"
	"math/rand/v2"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/protocol"
)

// params are the fields that chat and text completions share.
type params struct {
	model              string
	stream             bool
	includeUsage       bool
	streamOptionsGiven bool
	maxTokens          *int64
	maxName            string // the field that maxTokens came from
	minTokens          *int64
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
}

const (
	maxChoices = 128           // n, and prompts times n
	maxStops   = 32            // stop strings of a request
	maxCount   = math.MaxInt32 // of anything that is counted in tokens
)

func (p *params) shared() *params { return p }

// sharedFields returns the fields that fill p. What this server cannot do is
// refused by name, unless the value asks for nothing.
func (p *params) sharedFields() fields {
	p.skipSpecial, p.maxName = true, "max_tokens"
	return fields{
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
		"stop_token_ids":    tokenIDs(&p.stopTokenIDs),
		"ignore_eos":        flag(&p.ignoreEOS),
		"user":              ignored,
		"metadata":          ignored,
		"safety_identifier": ignored,
		"prompt_cache_key":  ignored,
		"service_tier":      only(`"auto"`, `"default"`),
		"store":             only("false"),

		"include_stop_str_in_output": flag(&p.includeStop),
		"skip_special_tokens":        flag(&p.skipSpecial),

		"presence_penalty":   only("0"),
		"frequency_penalty":  only("0"),
		"repetition_penalty": only("1"),
		"logit_bias":         only("{}"),
	}
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

// check looks at fields that depend on each other.
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

// checkTokens refuses ids that the model does not have.
func checkTokens(m *servedModel, param string, ids []uint32) *apiError {
	for _, id := range ids {
		if int64(id) >= int64(m.proc.VocabSize()) {
			return wrongValue(param, "%d is not a token of this model", id)
		}
	}
	return nil
}

// choices is how many answers the client wants for each prompt.
func (p *params) choices() int {
	if p.n == nil {
		return 1
	}
	return int(*p.n)
}

// minimum is how many tokens must come before anything may stop the text.
func (p *params) minimum() int {
	if p.minTokens == nil {
		return 0
	}
	return int(*p.minTokens)
}

// budget is the number of tokens to generate after a prompt: what the client says,
// or else fallback, or else all the context has room for. param names the field
// that holds the prompt.
func (p *params) budget(m *servedModel, prompt int, param string, fallback int) (int, *apiError) {
	context := m.card.ContextLength
	room := context - prompt
	switch {
	case prompt == 0:
		return 0, wrongValue(param, "the prompt has no tokens")
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

// request makes what workers get for one choice of one prompt.
func (p *params) request(m *servedModel, prompt []uint32, budget, choice int) protocol.PreprocessedRequest {
	stop := append([]uint32(nil), p.stopTokenIDs...)
	if !p.ignoreEOS {
		stop = append(stop, m.proc.EOS()...)
	}
	return protocol.PreprocessedRequest{
		Model: p.model, ModelSum: m.card.Digest, TokenIDs: append([]uint32(nil), prompt...),
		Stop:     protocol.StopConditions{MaxTokens: budget, MinTokens: p.minimum(), StopTokenIDs: stop},
		Sampling: p.sampling(m.proc.Defaults(), choice),
	}
}

// sampling fills in the model's own defaults where the client says nothing. OpenAI's
// default temperature is 1.
func (p *params) sampling(d chat.GenerationDefaults, choice int) protocol.SamplingOptions {
	o := protocol.SamplingOptions{Temperature: 1, TopP: 1}
	set := func(v *float32, client *float64, model *float64) {
		switch {
		case client != nil:
			*v = float32(*client)
		case model != nil:
			*v = float32(*model)
		}
	}
	set(&o.Temperature, p.temperature, d.Temperature)
	set(&o.TopP, p.topP, d.TopP)
	set(&o.MinP, p.minP, d.MinP)
	switch {
	case p.topK != nil:
		o.TopK = int(*p.topK)
	case d.TopK != nil:
		o.TopK = *d.TopK
	}
	if d.DoSample != nil && !*d.DoSample && p.temperature == nil {
		o.Temperature = 0
	}
	if p.topP != nil && *p.topP == 0 {
		o.Temperature = 0 // nothing but the best token; to engines 0 means off
	}
	if p.seed != nil {
		// Choices of one request must differ, and differ in the same way each time.
		o.Seed = uint64(*p.seed) + uint64(choice)*0x9e3779b97f4a7c15
	} else {
		o.Seed = rand.Uint64()
	}
	return o
}
