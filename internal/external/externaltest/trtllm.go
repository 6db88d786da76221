package externaltest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// trtllm adds what TensorRT-LLM has.
func (d *Double) trtllm(mux *http.ServeMux) {
	mux.HandleFunc("GET /health", func(http.ResponseWriter, *http.Request) {})
	d.get(mux, "/v1/models", d.models(0))
	d.get(mux, "/version", func() any { return map[string]any{"version": "1.2.0"} })
	d.get(mux, "/metrics", func() any {
		d.fabric.note("/metrics takes statistics away from others")
		return []any{}
	})
	d.get(mux, "/server_info", func() any {
		info := map[string]any{"tokenizer": "x"}
		if d.o.Connector == "generation-first" {
			info["disaggregated_params"] = map[string]any{"request_type": "context_only", "ctx_dp_rank": 0, "ctx_info_endpoint": "tcp://" + d.engine + ":5555", "encoded_opaque_state": "b3BhcXVl"}
		}
		return info
	})
	mux.HandleFunc("GET /prometheus/metrics", func(w http.ResponseWriter, r *http.Request) {
		if d.o.NoMetrics {
			http.NotFound(w, r)
			return
		}
		_, _ = fmt.Fprint(w, "trtllm_num_requests_running 2\ntrtllm_num_requests_waiting 1\ntrtllm_kv_cache_utilization 0.25\ntrtllm_kv_cache_tokens_per_block 32\ntrtllm_kv_cache_max_blocks 512\n")
	})
	mux.HandleFunc("POST /v1/completions", d.compute(func(c *call) { d.trtAnswer(c, shapeText) }))
	mux.HandleFunc("POST /v1/chat/completions", d.compute(func(c *call) { d.trtAnswer(c, shapeChat) }))
}

// trtFields are all that a server knows: it refuses others.
type trtFields struct {
	Model         string          `json:"model"`
	Prompt        json.RawMessage `json:"prompt"`
	Messages      json.RawMessage `json:"messages"`
	IDs           []uint32        `json:"prompt_token_ids"`
	Stream        bool            `json:"stream"`
	StreamOptions json.RawMessage `json:"stream_options"`
	MaxTokens     *int            `json:"max_tokens"`
	MaxCompletion *int            `json:"max_completion_tokens"`
	MinTokens     int             `json:"min_tokens"`
	N             *int            `json:"n"`
	Stop          []uint32        `json:"stop_token_ids"`
	IncludeStop   bool            `json:"include_stop_str_in_output"`
	IgnoreEOS     bool            `json:"ignore_eos"`
	SkipSpecial   *bool           `json:"skip_special_tokens"`
	AddSpecial    *bool           `json:"add_special_tokens"`
	Detokenize    *bool           `json:"detokenize"`
	Heat          *float64        `json:"temperature"`
	TopP          *float64        `json:"top_p"`
	TopK          int             `json:"top_k"`
	MinP          float64         `json:"min_p"`
	Repetition    *float64        `json:"repetition_penalty"`
	Frequency     *float64        `json:"frequency_penalty"`
	Presence      *float64        `json:"presence_penalty"`
	Seed          *int64          `json:"seed"`
	LogitBias     json.RawMessage `json:"logit_bias"`
	Logprobs      json.RawMessage `json:"logprobs"`
	Format        json.RawMessage `json:"response_format"`
	User          *string         `json:"user"`
	Tools         json.RawMessage `json:"tools"`
	Params        *trtParams      `json:"disaggregated_params"`
}

type trtParams struct {
	Type     string       `json:"request_type"`
	First    []uint32     `json:"first_gen_tokens,omitempty"`
	Context  *json.Number `json:"ctx_request_id,omitempty"`
	ID       *json.Number `json:"disagg_request_id,omitempty"`
	State    string       `json:"encoded_opaque_state,omitempty"`
	Draft    []uint32     `json:"draft_tokens"`
	Rank     *int         `json:"ctx_dp_rank,omitempty"`
	Endpoint string       `json:"ctx_info_endpoint,omitempty"`
	Style    string       `json:"schedule_style,omitempty"`
	Usage    any          `json:"ctx_usage,omitempty"`
}

// minGlobalID is the least id that is not of a server's own requests.
const minGlobalID = 1 << 42

func (d *Double) trtAnswer(c *call, form shape) {
	var f trtFields
	if !c.read(&f, true) {
		return
	}
	prompt, err := c.prompt()
	if form == shapeChat && f.IDs != nil {
		prompt = f.IDs
	}
	most := 16
	switch {
	case f.MaxCompletion != nil:
		most = *f.MaxCompletion
	case f.MaxTokens != nil:
		most = *f.MaxTokens
	}
	switch {
	case err != nil:
		c.refuse("%v", err)
		return
	case f.StreamOptions != nil && !f.Stream:
		c.refuse("Stream options can only be defined when stream is true.")
		return
	case most < 1:
		c.refuse("max_tokens must be positive")
		return
	case f.TopP != nil && (*f.TopP < 0 || *f.TopP > 1):
		c.refuse("top_p must be between 0 and 1, got %v", *f.TopP)
		return
	}
	s := d.sequence(prompt, most, f.MinTokens, f.Stop, f.IgnoreEOS)
	a := &answer{c: c, s: s, form: form, ids: f.Detokenize != nil && !*f.Detokenize}
	a.logprobs(f.Logprobs, false)
	if f.Params != nil && !d.trtExchange(a, f.Params, f.Stream) {
		return
	}
	if f.Stream {
		a.stream(f.StreamOptions)
	} else {
		a.whole()
	}
}

// trtExchange plays a leg. It reports whether the request goes on.
func (d *Double) trtExchange(a *answer, p *trtParams, stream bool) bool {
	c, prompt := a.c, a.s.ids
	if p.ID == nil {
		c.refuse("no disagg_request_id")
		return false
	}
	if id, err := strconv.ParseInt(p.ID.String(), 10, 64); err != nil || id < minGlobalID {
		c.refuse("disagg_request_id %s is one of a local request", p.ID)
		return false
	}
	first := p.Type == "context_only"
	switch {
	case !first && p.Type != "generation_only":
		c.refuse("request_type %q", p.Type)
		return false
	case first && stream:
		c.refuse("a context-only request is no stream")
		return false
	case !first && p.Context == nil:
		c.refuse("no ctx_request_id")
		return false
	}
	if d.o.Connector == "generation-first" {
		leg := "decode"
		if first {
			leg = "prefill"
		}
		if p.Style != "generation_first" || !first && (p.Endpoint == "" || *p.Context != *p.ID) {
			c.refuse("incomplete params of a generation-first exchange")
			return false
		}
		if err := d.fabric.meet(c.ctx(), p.ID.String(), leg, prompt); err != nil {
			refuse(c.w, http.StatusInternalServerError, "%v", err)
			return false
		}
	}
	if first {
		d.trtContext(a, p)
		return true
	}
	if d.o.Connector == "generation-first" {
		return true
	}
	p.Type = "context_only"
	told, err := json.Marshal(p)
	if err == nil {
		err = d.fabric.take(p.Context.String(), prompt, string(told))
	}
	if err == nil && c.fields["prompt_token_ids"] == nil && !c.promptIsIDs() {
		d.fabric.note("the generation server tokenizes the prompt again")
	}
	if err == nil && (len(p.First) != 1 || p.First[0] != d.o.Next(prompt)%d.o.Vocab) {
		err = fmt.Errorf("the first token became %v", p.First)
	}
	if err != nil {
		refuse(c.w, http.StatusInternalServerError, "%v", err)
		return false
	}
	a.cached = len(prompt) - 1 // all that was transferred
	return true
}

// trtContext has the answer end with the first token, and tell what the generation server
// needs.
func (d *Double) trtContext(a *answer, p *trtParams) {
	prompt := append([]uint32(nil), a.s.ids...)
	a.s.max = 1
	a.s.min = min(a.s.min, 1)
	id := json.Number(strconv.FormatInt(1<<60+int64(d.fabric.count()), 10))
	params := trtParams{Type: "context_only", First: []uint32{d.o.Next(prompt) % d.o.Vocab}, Context: &id, ID: p.ID, State: "b3BhcXVlIHN0YXRl"}
	told, err := json.Marshal(params)
	if err != nil {
		panic(err)
	}
	d.fabric.hold(id.String(), prompt, string(told))
	a.choice = map[string]any{"disaggregated_params": json.RawMessage(told)}
	a.extra = map[string]any{"prompt_token_ids": prompt}
}
