package trtllm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// maxHandoff bounds what a context server tells a generation server, in bytes.
const maxHandoff = 32 << 20

// handoff is what a context server tells, in the form in which it travels between workers. The
// server's own parts keep their bytes.
type handoff struct {
	Params json.RawMessage `json:"disaggregated_params"`
	// IDs is the prompt as the context server had it: a generation server must not tokenize
	// it again.
	IDs json.RawMessage `json:"prompt_token_ids"`
	// PromptTokens is the context server's count; 0 if unknown.
	PromptTokens int `json:"prompt_tokens,omitempty"`
}

// bytes returns the handoff as it travels.
func (h handoff) bytes() json.RawMessage {
	var o wire.Object
	o.Raw("disaggregated_params", h.Params)
	o.Raw("prompt_token_ids", h.IDs)
	o.Int("prompt_tokens", int64(h.PromptTokens))
	return o.Bytes()
}

func readHandoff(raw json.RawMessage) (handoff, error) {
	var h handoff
	if len(raw) > maxHandoff {
		return h, wire.Invalid("the handoff is longer than %d bytes", maxHandoff)
	}
	b, err := wire.ParseBody(raw)
	if err != nil {
		return h, wire.Invalid("the handoff is not an object")
	}
	h.Params, h.IDs = b.Get("disaggregated_params"), b.Get("prompt_token_ids")
	if n := b.Get("prompt_tokens"); n != nil && (json.Unmarshal(n, &h.PromptTokens) != nil || h.PromptTokens < 0) {
		return h, wire.Invalid("the handoff counts no tokens")
	}
	var ids []uint32
	if json.Unmarshal(h.IDs, &ids) != nil || len(ids) == 0 {
		return h, wire.Invalid("the handoff has no prompt_token_ids")
	}
	if _, err := wire.ParseBody(h.Params); err != nil {
		return h, wire.Invalid("the handoff has no disaggregated_params")
	}
	return h, nil
}

// second returns the params of a second leg.
func (h handoff) second() (json.RawMessage, error) {
	b, err := wire.ParseBody(h.Params)
	if err != nil {
		return nil, err
	}
	if err := b.Single("request_type"); err != nil {
		return nil, err
	}
	b.Set("request_type", wire.Text("generation_only"))
	return b.Bytes(), nil
}

// meetingParams returns the params of a leg of a concurrent exchange. The id of both legs
// follows from the room.
func meetingParams(m *external.Meeting, kind string) (json.RawMessage, error) {
	b := &wire.Body{}
	if kind == generationOnly {
		var err error
		if b, err = wire.ParseBody(m.Params); err != nil {
			return nil, wire.Unavailable("the context server's place has no disaggregated_params")
		}
	}
	id := json.RawMessage(strconv.FormatUint(inRange(m.Room), 10))
	b.Set("request_type", wire.Text(kind))
	b.Set("disagg_request_id", id)
	b.Set("schedule_style", wire.Text("generation_first"))
	if kind == generationOnly {
		b.Set("ctx_request_id", id)
	}
	return b.Bytes(), nil
}

const (
	contextOnly    = "context_only"
	generationOnly = "generation_only"
)

// Prefill implements external.Engine.
func (e *Engine) Prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	p, err := e.prefill(ctx, r)
	return p, wire.Remote(ctx, err)
}

// firstParams returns the params of a first leg.
func (e *Engine) firstParams(r *external.Request) (json.RawMessage, error) {
	switch {
	case e.connector == contextFirst && r.Meeting == nil:
		var o wire.Object
		o.Text("request_type", contextOnly)
		o.Uint("disagg_request_id", e.ids.next(time.Now()))
		return o.Bytes(), nil
	case e.connector == generationFirst && r.Meeting != nil:
		return meetingParams(r.Meeting, contextOnly)
	}
	return nil, wire.Unavailable("the server's connector is %q: it computes no prompts in this way", e.connector)
}

func (e *Engine) prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	none := external.Prefilled{PromptTokens: -1, CachedTokens: -1}
	params, err := e.firstParams(r)
	if err != nil {
		return none, err
	}
	path, body, streams, usage := pathCompletions, []byte(nil), false, false
	if r.Body == nil {
		if body, err = tokenRequest(r, false, params); err != nil {
			return none, err
		}
	} else {
		if err := external.Splittable(r.Body); err != nil {
			return none, wire.Invalid("%v", err)
		}
		b, err := wire.ClientBody(r.Body, r.Model)
		if err != nil {
			return none, err
		}
		if path, err = wire.Path(r.API); err != nil {
			return none, err
		}
		streams, usage = wire.Streams(b)
		b.Drop(func(name string) bool { return name == "stream_options" })
		b.Set("stream", json.RawMessage("false"))
		b.Set("disaggregated_params", params)
		body = b.Bytes()
	}
	answer, err := e.client.Compute(ctx, path, wire.RequestID(r), body)
	if err != nil {
		return none, err
	}
	if err := e.client.Failure(path, answer); err != nil {
		return none, err
	}
	reply, err := readContext(answer)
	if err != nil {
		return none, err
	}
	p := external.Prefilled{PromptTokens: -1, CachedTokens: reply.Usage.Cached()}
	if reply.Usage != nil {
		p.PromptTokens = reply.Usage.Prompt
	}
	if r.Meeting != nil {
		return p, nil // the generation server answers in any case
	}
	if reply.ended() {
		p.Answer, err = e.answerOf(r, answer, reply, streams, usage)
		return p, err
	}
	h, err := reply.handoff()
	if err != nil {
		return p, err
	}
	p.Handoff = h.bytes()
	return p, nil
}

// contextReply is the answer to a first leg.
type contextReply struct {
	Choices []struct {
		IDs      []uint32        `json:"token_ids"`
		Text     string          `json:"text"`
		Reason   *string         `json:"finish_reason"`
		Params   json.RawMessage `json:"disaggregated_params"`
		Logprobs json.RawMessage `json:"logprobs"`
	} `json:"choices"`
	IDs   json.RawMessage `json:"prompt_token_ids"`
	Usage *wire.Usage     `json:"usage"`
}

func readContext(answer []byte) (*contextReply, error) {
	var r contextReply
	if err := json.Unmarshal(answer, &r); err != nil {
		return nil, wire.Unavailable("the context server's answer: %v", err)
	}
	if len(r.Choices) != 1 {
		return nil, wire.Unavailable("the context server's answer has %d choices, not one", len(r.Choices))
	}
	return &r, nil
}

// ended reports whether the first leg is the whole answer.
func (r *contextReply) ended() bool {
	reason := r.Choices[0].Reason
	return reason != nil && *reason != "" && *reason != "length" && *reason != "not_finished"
}

// handoff returns what the generation server needs.
func (r *contextReply) handoff() (handoff, error) {
	h := handoff{Params: r.Choices[0].Params, IDs: r.IDs}
	if wire.IsNull(h.Params) {
		return h, wire.Unavailable("the server computed the prompt but told nothing for a generation server (no disaggregated_params): start it with a cache_transceiver_config")
	}
	var params struct {
		ID json.Number `json:"ctx_request_id"`
	}
	var ids []uint32
	if err := json.Unmarshal(h.Params, &params); err != nil || params.ID == "" {
		return h, wire.Unavailable("the context server's disaggregated_params have no ctx_request_id")
	}
	if len(h.IDs) > 0 && json.Unmarshal(h.IDs, &ids) != nil {
		var lists []json.RawMessage // of one prompt each
		if json.Unmarshal(h.IDs, &lists) == nil && len(lists) == 1 {
			h.IDs = lists[0]
		}
	}
	if json.Unmarshal(h.IDs, &ids) != nil || len(ids) == 0 {
		return h, wire.Unavailable("the context server's answer has no prompt_token_ids")
	}
	h.PromptTokens = len(ids)
	if r.Usage != nil && r.Usage.Prompt > 0 {
		h.PromptTokens = r.Usage.Prompt
	}
	if size := len(h.Params) + len(h.IDs); size > maxHandoff {
		return h, wire.Unavailable("the context server's params have %d bytes, of at most %d", size, maxHandoff)
	}
	return h, nil
}

// answerOf returns an answer that ended with its first token, as Generate would have emitted
// it.
func (e *Engine) answerOf(r *external.Request, answer []byte, reply *contextReply, streams, usage bool) ([]protocol.EngineOutput, error) {
	var outs []protocol.EngineOutput
	keep := func(o protocol.EngineOutput) error {
		outs = append(outs, o)
		return nil
	}
	if r.Body == nil {
		t := wire.NewTokens(r.PreprocessedRequest, keep)
		if reply.Usage != nil {
			t.SetUsage(*reply.Usage)
		}
		c := reply.Choices[0]
		p := piece(choice{IDs: c.IDs, Text: c.Text, Reason: c.Reason, Logprobs: c.Logprobs}, r.PreprocessedRequest)
		if err := t.Add(p); err != nil && !errors.Is(err, wire.ErrEnough) {
			return nil, err
		}
		return outs, t.Close()
	}
	clean, err := withoutParams(answer)
	if err != nil {
		return nil, err
	}
	out, err := wire.Whole(clean)
	if err != nil || !streams {
		return []protocol.EngineOutput{out}, err
	}
	chunks, err := asChunks(out.Raw, r.API, usage)
	if err != nil {
		return nil, fmt.Errorf("the context server's answer: %w", err)
	}
	for _, c := range chunks {
		outs = append(outs, protocol.EngineOutput{Raw: c})
	}
	return append(outs, protocol.EngineOutput{Finish: out.Finish, Usage: out.Usage}), nil
}
