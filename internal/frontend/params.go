package frontend

import (
	"encoding/json"
	"math/rand/v2"

	"github.com/dynctl/dynctl/internal/chat"
	"github.com/dynctl/dynctl/internal/protocol"
)

// params are the fields that chat and text completions share.
type params struct {
	model              string
	stream             bool
	includeUsage       bool
	maxTokens          *int64
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
	streamOptionsGiven bool
}

// maxChoices bounds n and prompts times n.
const maxChoices = 128

// maxStops is how many stop strings a request may have.
const maxStops = 32

// sharedFields returns the fields that fill p. What this server cannot do is
// refused by name, unless the value asks for nothing.
func (p *params) sharedFields() fields {
	p.skipSpecial = true
	return fields{
		"model":             text(&p.model),
		"stream":            flag(&p.stream),
		"stream_options":    p.streamOptions,
		"max_tokens":        integer(&p.maxTokens, 1, 1<<31),
		"min_tokens":        integer(&p.minTokens, 0, 1<<31),
		"n":                 integer(&p.n, 1, maxChoices),
		"temperature":       number(&p.temperature, 0, 2),
		"top_p":             number(&p.topP, 0, 1),
		"top_k":             integer(&p.topK, -1, 1<<31),
		"min_p":             number(&p.minP, 0, 1),
		"seed":              integer(&p.seed, -1<<63, 1<<63-1),
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

		"presence_penalty":   only("0", "0.0"),
		"frequency_penalty":  only("0", "0.0"),
		"repetition_penalty": only("1", "1.0"),
		"logit_bias":         only("{}"),
	}
}

func (p *params) streamOptions(name string, raw json.RawMessage) *apiError {
	p.streamOptionsGiven = true
	var options map[string]json.RawMessage
	if json.Unmarshal(raw, &options) != nil {
		return invalid(name, "Invalid type for '%s': expected an object.", name)
	}
	for key, value := range options {
		switch key {
		case "include_usage":
			if err := flag(&p.includeUsage)(name+"."+key, value); err != nil {
				return err
			}
		case "include_obfuscation": // padding against traffic analysis; none is added
		default:
			return invalid(name+"."+key, "Unknown parameter: '%s.%s'.", name, key).withCode("unknown_parameter")
		}
	}
	return nil
}

// check looks at fields that depend on each other.
func (p *params) check() *apiError {
	switch {
	case p.model == "":
		return invalid("model", "Missing required parameter: 'model'.").withCode("missing_required_parameter")
	case p.streamOptionsGiven && !p.stream:
		return invalid("stream_options", "The 'stream_options' parameter is only allowed when 'stream' is enabled.")
	case p.minTokens != nil && p.maxTokens != nil && *p.minTokens > *p.maxTokens:
		return invalid("min_tokens", "Invalid value for 'min_tokens': %d is more than 'max_tokens', %d.", *p.minTokens, *p.maxTokens)
	}
	return nil
}

func (p *params) choices() int {
	if p.n == nil {
		return 1
	}
	return int(*p.n)
}

// request makes what a worker gets for one choice of one prompt. fallback is the
// number of tokens when the client sets no limit.
func (p *params) request(m *servedModel, prompt []uint32, choice, fallback int) (protocol.PreprocessedRequest, *apiError) {
	room := m.card.ContextLength - len(prompt)
	if len(prompt) == 0 {
		return protocol.PreprocessedRequest{}, invalid("prompt", "The prompt is empty.")
	}
	if room < 1 {
		return protocol.PreprocessedRequest{}, invalid("messages", "This model's maximum context length is %d tokens, the prompt has %d.", m.card.ContextLength, len(prompt)).withCode("context_length_exceeded")
	}
	max := fallback
	if p.maxTokens != nil {
		max = int(*p.maxTokens)
		if max > room {
			return protocol.PreprocessedRequest{}, invalid("max_tokens", "This model's maximum context length is %d tokens: %d of the prompt and %d requested are more.", m.card.ContextLength, len(prompt), max).withCode("context_length_exceeded")
		}
	}
	if max <= 0 || max > room {
		max = room
	}
	for _, id := range p.stopTokenIDs {
		if int(id) >= m.proc.VocabSize() {
			return protocol.PreprocessedRequest{}, invalid("stop_token_ids", "Invalid value for 'stop_token_ids': %d is not a token of this model.", id)
		}
	}
	r := protocol.PreprocessedRequest{
		Model: p.model, ModelSum: m.card.Digest, TokenIDs: prompt,
		Stop:     protocol.StopConditions{MaxTokens: max, StopTokenIDs: p.stopTokenIDs},
		Sampling: p.sampling(m.proc.Defaults(), choice),
	}
	if p.minTokens != nil {
		r.Stop.MinTokens = int(*p.minTokens)
	}
	if !p.ignoreEOS {
		r.Stop.StopTokenIDs = append(append([]uint32{}, p.stopTokenIDs...), m.proc.EOS()...)
	}
	return r, nil
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
	if p.seed != nil {
		// Choices of one request must differ, and differ in the same way each time.
		o.Seed = uint64(*p.seed) + uint64(choice)*0x9e3779b97f4a7c15
	} else {
		o.Seed = rand.Uint64()
	}
	return o
}
