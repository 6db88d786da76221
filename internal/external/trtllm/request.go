package trtllm

import (
	"encoding/json"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

const pathCompletions = "/v1/completions"

// tokenRequest returns a request for the tokens of r. A server refuses fields that it does not
// know.
func tokenRequest(r *external.Request, stream bool, params json.RawMessage) ([]byte, error) {
	if err := abilities.Check(cluster.BackendTensorRTLLM, r.PreprocessedRequest); err != nil {
		return nil, err
	}
	var o wire.Object
	o.Text("model", r.Model)
	o.IDs("prompt", r.TokenIDs)
	o.Bool("stream", stream)
	if stream {
		o.Raw("stream_options", []byte(`{"include_usage":true}`))
	}
	o.Bool("detokenize", false) // answers with tokens
	sampling(&o, r.PreprocessedRequest)
	if err := constrain(&o, r.Guided); err != nil {
		return nil, err
	}
	if params != nil {
		o.Raw("disaggregated_params", params)
	}
	return o.Bytes(), nil
}

// abilities leave out the most likely tokens, which the server tells as text alone.
var abilities = wire.Abilities{
	MinTokens: true, VisibleStop: true, Logprobs: true,
	Guided: []string{"json_object", "json_schema", "regex", "ebnf"},
}

// sampling writes the options. End tokens are those of the request alone.
func sampling(o *wire.Object, r *protocol.PreprocessedRequest) {
	s := &r.Sampling
	o.Int("max_tokens", int64(r.Stop.MaxTokens))
	o.Int("min_tokens", wire.MinTokens(&r.Stop))
	o.IDs("stop_token_ids", wire.StopIDs(&r.Stop))
	o.Bool("ignore_eos", true)
	o.Bool("include_stop_str_in_output", true) // visible end tokens; others are cut off here
	o.Bool("skip_special_tokens", false)
	o.Bool("add_special_tokens", false)
	o.Sampling(s, "seed")
	o.Int("top_k", int64(max(s.TopK, 0)))
	if r.Output.Logprobs != nil {
		o.Int("logprobs", 1) // 0 means none there
	}
}

// constrain adds a constraint.
func constrain(o *wire.Object, g *protocol.Guided) error {
	if g == nil {
		return nil
	}
	var f wire.Object
	switch g.Kind {
	case "json_object":
		f.Text("type", "json_object")
	case "json_schema":
		f.Text("type", "json")
		f.Raw("schema", []byte(g.Text))
	case "regex":
		f.Text("type", "regex")
		f.Text("regex", g.Text)
	case "ebnf":
		f.Text("type", "ebnf")
		f.Text("ebnf", g.Text)
	}
	if g.Kind == "json_schema" && !json.Valid([]byte(g.Text)) {
		return wire.Invalid("structured output: the schema is not JSON")
	}
	o.Raw("response_format", f.Bytes())
	return nil
}
