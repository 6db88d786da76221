package sglang

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

const pathGenerate = "/generate"

// requestID returns an id of a request at a server. Each leg and attempt has another one: a
// server refuses an id that it knows.
func requestID(r *external.Request) string {
	return fmt.Sprintf("%s-%08x", r.RequestID, rand.Uint32()) // #nosec G404 -- tells attempts apart
}

// room checks where the legs of r meet.
func (e *Engine) room(r *external.Request) error {
	switch m := r.Meeting; {
	case r.Handoff != nil, m != nil && e.connector != connectorBootstrap:
		return wire.Unavailable("the server's connector is %q: it takes no KV in this way", e.connector)
	case m != nil && (m.Host == "" || m.Port <= 0 || m.Room >= 1<<63):
		return wire.Unavailable("an exchange needs the host, port and room of a bootstrap server")
	}
	return nil
}

// tokenRequest returns a request for the tokens of r, the same for both legs but for its id.
func tokenRequest(r *external.Request, rid string) ([]byte, error) {
	if err := abilities.Check(cluster.BackendSGLang, r.PreprocessedRequest); err != nil {
		return nil, err
	}
	var o wire.Object
	o.IDs("input_ids", r.TokenIDs)
	o.Text("rid", rid)
	o.Bool("stream", true)
	if n := r.Output.Logprobs; n != nil {
		o.Bool("return_logprob", true)
		o.Int("logprob_start_len", -1)
		o.Int("top_logprobs_num", int64(*n))
		o.Bool("return_text_in_logprobs", false)
	}
	o.Raw("sampling_params", sampling(r.PreprocessedRequest))
	if m := r.Meeting; m != nil {
		o.Text("bootstrap_host", m.Host)
		o.Int("bootstrap_port", int64(m.Port))
		o.Uint("bootstrap_room", m.Room)
	}
	return o.Bytes(), nil
}

// clientRequest returns a client's body as the server gets it.
func clientRequest(r *external.Request, rid string) (path string, b *wire.Body, err error) {
	if b, err = wire.ClientBody(r.Body, r.Model); err != nil {
		return "", nil, err
	}
	if path, err = wire.Path(r.API); err != nil {
		return "", nil, err
	}
	b.Set("rid", wire.Text(rid))
	if m := r.Meeting; m != nil {
		if err := external.Splittable(r.Body); err != nil {
			return "", nil, wire.Invalid("%v", err)
		}
		b.Set("bootstrap_host", wire.Text(m.Host))
		b.Set("bootstrap_port", json.RawMessage(strconv.Itoa(m.Port)))
		b.Set("bootstrap_room", json.RawMessage(strconv.FormatUint(m.Room, 10)))
	}
	return path, b, nil
}

var abilities = wire.Abilities{
	MinTokens: true, VisibleStop: true, Logprobs: true, TopLogprobs: true,
	Guided: []string{"json_object", "json_schema", "regex", "choice", "ebnf"},
}

// sampling returns the options. End tokens are those of the request alone.
func sampling(r *protocol.PreprocessedRequest) json.RawMessage {
	s := &r.Sampling
	var o wire.Object
	o.Int("max_new_tokens", int64(r.Stop.MaxTokens))
	o.Int("min_new_tokens", wire.MinTokens(&r.Stop))
	o.IDs("stop_token_ids", wire.StopIDs(&r.Stop))
	o.Bool("ignore_eos", true)
	o.Bool("skip_special_tokens", false)
	o.Bool("no_stop_trim", true)
	o.Sampling(s, "sampling_seed")
	if s.TopK > 0 {
		o.Int("top_k", int64(s.TopK))
	} else {
		o.Int("top_k", -1)
	}
	constrain(&o, r.Guided)
	return o.Bytes()
}

// constrain adds a constraint.
func constrain(o *wire.Object, g *protocol.Guided) {
	if g == nil {
		return
	}
	switch g.Kind {
	case "json_object":
		o.Text("json_schema", `{"type":"object"}`)
	case "json_schema":
		o.Text("json_schema", g.Text)
	case "regex":
		o.Text("regex", g.Text)
	case "ebnf":
		o.Text("ebnf", g.Text)
	case "choice":
		quoted := make([]string, len(g.Choices))
		for i, c := range g.Choices {
			quoted[i] = regexp.QuoteMeta(c)
		}
		o.Text("regex", "("+strings.Join(quoted, "|")+")")
	}
}
