package vllm

import (
	"encoding/json"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

const (
	pathCompletions = "/v1/completions"
	pathGenerate    = "/inference/v1/generate"
)

// leg is which half of an answer a request asks for.
type leg int

const (
	whole     leg = iota // or the second leg, if there are params
	firstHalf            // the first leg
)

// tokenRequest returns a request for the tokens of r, and where it goes. params, if not nil,
// are those of the KV exchange.
func (d dialect) tokenRequest(r *external.Request, which leg, params json.RawMessage) (path string, body []byte, err error) {
	if err := d.check(r.PreprocessedRequest); err != nil {
		return "", nil, err
	}
	var o wire.Object
	o.Text("model", r.Model)
	o.Bool("stream", which == whole)
	if which == whole {
		o.Raw("stream_options", []byte(`{"include_usage":true}`))
	}
	if params != nil {
		o.Raw("kv_transfer_params", params)
	}
	if d.generate {
		o.IDs("token_ids", r.TokenIDs)
		var s wire.Object
		sampling(&s, r.PreprocessedRequest, which)
		if params != nil { // some releases read it here
			var extra wire.Object
			extra.Raw("kv_transfer_params", params)
			s.Raw("extra_args", extra.Bytes())
		}
		o.Raw("sampling_params", s.Bytes())
		return pathGenerate, o.Bytes(), nil
	}
	o.IDs("prompt", r.TokenIDs)
	o.Bool("add_special_tokens", false)
	o.Bool("return_token_ids", true)
	o.Bool("return_tokens_as_token_ids", true)
	sampling(&o, r.PreprocessedRequest, which)
	return pathCompletions, o.Bytes(), nil
}

var abilities = wire.Abilities{
	AllowedIDs: true, MinTokens: true, VisibleStop: true, Logprobs: true, TopLogprobs: true,
	Guided: []string{"json_object", "json_schema", "regex", "choice", "ebnf"},
}

// check refuses what the server cannot do.
func (d dialect) check(r *protocol.PreprocessedRequest) error {
	if r.Guided != nil && older(d.version, 0, 11) {
		return wire.Invalid("structured output: the server has vLLM %s, and it takes 0.11", wire.Tidy(d.version))
	}
	return abilities.Check(cluster.BackendVLLM, r)
}

// sampling writes the options. End tokens are those of the request alone.
func sampling(o *wire.Object, r *protocol.PreprocessedRequest, which leg) {
	s := &r.Sampling
	o.Sampling(s, "seed")
	o.Int("top_k", int64(max(s.TopK, 0)))
	if len(s.AllowedTokenIDs) > 0 {
		o.IDs("allowed_token_ids", s.AllowedTokenIDs)
	}
	o.Bool("ignore_eos", true)
	o.Bool("skip_special_tokens", false)
	o.IDs("stop_token_ids", wire.StopIDs(&r.Stop))
	if which == firstHalf {
		o.Int("max_tokens", 1)
		return
	}
	o.Int("max_tokens", int64(r.Stop.MaxTokens))
	o.Int("min_tokens", wire.MinTokens(&r.Stop))
	if n := r.Output.Logprobs; n != nil {
		o.Int("logprobs", int64(*n))
	}
	if r.Guided != nil {
		o.Raw("structured_outputs", structured(r.Guided))
	}
}

// structured returns a constraint as vLLM has it since 0.11.
func structured(g *protocol.Guided) json.RawMessage {
	var o wire.Object
	switch g.Kind {
	case "json_object":
		o.Bool("json_object", true)
	case "json_schema":
		o.Text("json", g.Text)
	case "regex":
		o.Text("regex", g.Text)
	case "ebnf":
		o.Text("grammar", g.Text)
	case "choice":
		list, err := json.Marshal(g.Choices)
		if err != nil {
			panic("strings that JSON cannot have: " + err.Error())
		}
		o.Raw("choice", list)
	}
	if g.Compact {
		o.Bool("disable_any_whitespace", true)
	}
	return o.Bytes()
}

// firstLeg changes a client's body into the request of a first leg.
func firstLeg(b *wire.Body) *wire.Body {
	b = b.Clone()
	b.Drop(func(name string) bool {
		return name == "stream_options" || name == "min_tokens" || name == "min_completion_tokens"
	})
	one := json.RawMessage("1")
	b.Set("stream", json.RawMessage("false"))
	b.Set("max_tokens", one)
	if !wire.IsNull(b.Get("max_completion_tokens")) {
		b.Set("max_completion_tokens", one)
	}
	return b
}
