package sglang

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/external/wire"
	"github.com/dynctl/dynctl/internal/protocol"
)

// event is one of the answer of /generate.
type event struct {
	Text string   `json:"text"`
	IDs  []uint32 `json:"output_ids"`
	Meta struct {
		Prompt     int     `json:"prompt_tokens"`
		Completion int     `json:"completion_tokens"`
		Cached     *int    `json:"cached_tokens"`
		Finish     *finish `json:"finish_reason"`
		// Logprobs has a value, a token and perhaps its text for each; Top several of them.
		Logprobs []logprob   `json:"output_token_logprobs"`
		Top      [][]logprob `json:"output_top_logprobs"`
	} `json:"meta_info"`
}

type finish struct {
	Type    string `json:"type"`
	Message string `json:"message"`
	Status  int    `json:"status_code"`
}

// UnmarshalJSON also reads the plain text of older releases.
func (f *finish) UnmarshalJSON(b []byte) error {
	if json.Unmarshal(b, &f.Type) == nil {
		return nil
	}
	type plain finish
	return json.Unmarshal(b, (*plain)(f))
}

// failure returns the error for which a server gave an answer up; nil if it did not.
func (f *finish) failure() error {
	if f == nil || f.Type != "abort" {
		return nil
	}
	status := f.Status
	if status < 400 || status > 599 {
		status = 500
	}
	return &wire.Refusal{Path: pathGenerate, Status: status, Message: "the server aborted the request: " + wire.Tidy(f.Message)}
}

// logprob is a list of a value, a token, and perhaps its text.
type logprob struct {
	value float32
	id    uint32
}

// UnmarshalJSON reads the list.
func (l *logprob) UnmarshalJSON(b []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(b, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return errors.New("a log probability without a token")
	}
	var value *float32
	if err := json.Unmarshal(parts[0], &value); err != nil {
		return err
	}
	if value == nil {
		return errors.New("a token without a log probability")
	}
	l.value = *value
	return json.Unmarshal(parts[1], &l.id)
}

// reader makes pieces of events. Servers send all tokens so far with each event, or with
// --stream-output the new ones: the count tells which.
type reader struct {
	width *int // of log probabilities; nil for none
	n     int  // tokens received
	text  string
}

func (r *reader) piece(e *event) (wire.Piece, error) {
	p := wire.Piece{Cached: e.Meta.Cached}
	if f := e.Meta.Finish; f != nil {
		p.Reason = f.Type
	}
	if e.IDs == nil {
		p.Text = r.newText(e.Text)
		return p, nil
	}
	switch total := e.Meta.Completion; len(e.IDs) {
	case total:
		if total < r.n {
			return p, fmt.Errorf("%d tokens after %d", total, r.n)
		}
		p.IDs = e.IDs[r.n:]
	case total - r.n:
		p.IDs = e.IDs
	default:
		return p, fmt.Errorf("%d tokens in an event, where %d came before and the count is %d", len(e.IDs), r.n, total)
	}
	r.n += len(p.IDs)
	if r.width != nil {
		p.Logprobs = newLogprobs(e, p.IDs, *r.width)
	}
	return p, nil
}

// newText returns what is new in a text that has everything so far, or only what is new.
func (r *reader) newText(text string) string {
	if rest, ok := strings.CutPrefix(text, r.text); ok {
		r.text = text
		return rest
	}
	r.text += text
	return text
}

// newLogprobs returns the log probabilities of the last tokens of an event; nil if it lacks
// some.
func newLogprobs(e *event, ids []uint32, width int) *protocol.Logprobs {
	all, top := e.Meta.Logprobs, e.Meta.Top
	skip := len(all) - len(ids)
	if skip < 0 || width > 0 && len(top) != len(all) {
		return nil
	}
	l := &protocol.Logprobs{Width: width}
	for i, id := range ids {
		own := all[skip+i]
		if own.id != id {
			return nil
		}
		var candidates []wire.Candidate
		if width > 0 {
			for _, t := range top[skip+i] {
				candidates = append(candidates, wire.Candidate{ID: t.id, Value: t.value})
			}
		}
		if !wire.AddLogprob(l, own.value, candidates, width) {
			return nil
		}
	}
	return l
}

// Generate implements external.Engine.
func (e *Engine) Generate(ctx context.Context, r *external.Request, emit func(protocol.EngineOutput) error) error {
	rid := requestID(r)
	defer e.abort(ctx, rid)
	return wire.Generate(ctx, emit, func(emit func(protocol.EngineOutput) error) error { return e.generate(ctx, r, rid, emit) })
}

func (e *Engine) generate(ctx context.Context, r *external.Request, rid string, emit func(protocol.EngineOutput) error) error {
	if err := e.room(r); err != nil {
		return err
	}
	if r.Body != nil {
		path, b, err := clientRequest(r, rid)
		if err != nil {
			return err
		}
		return e.client.PassOn(ctx, path, wire.RequestID(r), b, emit)
	}
	body, err := tokenRequest(r, rid)
	if err != nil {
		return err
	}
	answer, read := wire.NewTokens(r.PreprocessedRequest, emit), reader{width: r.Output.Logprobs}
	marked, err := e.client.Stream(ctx, pathGenerate, wire.RequestID(r), body, func(data []byte) error {
		ev, err := e.event(data)
		if err != nil {
			return err
		}
		p, err := read.piece(ev)
		if err != nil {
			return wire.Unavailable("%s: %v", pathGenerate, err)
		}
		answer.SetUsage(wire.Usage{Prompt: ev.Meta.Prompt, Completion: ev.Meta.Completion})
		return answer.Add(p)
	})
	switch {
	case errors.Is(err, wire.ErrEnough):
	case err != nil:
		return err
	case !marked && !answer.Ended():
		return wire.Unavailable("%s: the stream was cut", pathGenerate)
	}
	return answer.Close()
}

// event reads one event, which may be an error.
func (e *Engine) event(data []byte) (*event, error) {
	if err := e.client.Failure(pathGenerate, data); err != nil {
		return nil, err
	}
	var ev event
	if err := json.Unmarshal(data, &ev); err != nil {
		return nil, wire.Unavailable("%s: an event: %v", pathGenerate, err)
	}
	return &ev, ev.Meta.Finish.failure()
}

// Prefill implements external.Engine.
func (e *Engine) Prefill(ctx context.Context, r *external.Request) (external.Prefilled, error) {
	rid := requestID(r)
	p, err := e.prefill(ctx, r, rid)
	e.abort(ctx, rid)
	return p, wire.Remote(ctx, err)
}

// prefill sends the request that the decode server gets, too, and reads its answer to the
// end: a token that the decode server tells as well.
func (e *Engine) prefill(ctx context.Context, r *external.Request, rid string) (external.Prefilled, error) {
	p := external.Prefilled{PromptTokens: -1, CachedTokens: -1}
	if r.Meeting == nil {
		return p, wire.Unavailable("an exchange needs the place where servers meet")
	}
	if err := e.room(r); err != nil {
		return p, err
	}
	if r.Body != nil {
		err := e.prefillBody(ctx, r, rid, &p)
		return p, err
	}
	body, err := tokenRequest(r, rid)
	if err != nil {
		return p, err
	}
	marked, err := e.client.Stream(ctx, pathGenerate, wire.RequestID(r), body, func(data []byte) error {
		ev, err := e.event(data)
		if err != nil {
			return err
		}
		p.PromptTokens = ev.Meta.Prompt
		if ev.Meta.Cached != nil {
			p.CachedTokens = *ev.Meta.Cached
		}
		return nil
	})
	if err == nil && !marked {
		err = wire.Unavailable("%s: the stream was cut", pathGenerate)
	}
	return p, err
}

// prefillBody is as prefill, for a client's body. What the answer says is of no interest.
func (e *Engine) prefillBody(ctx context.Context, r *external.Request, rid string, p *external.Prefilled) error {
	path, b, err := clientRequest(r, rid)
	if err != nil {
		return err
	}
	read := func(data []byte) error {
		if err := e.client.Failure(path, data); err != nil {
			return err
		}
		var answer struct {
			Usage *wire.Usage `json:"usage"`
		}
		if err := json.Unmarshal(data, &answer); err != nil {
			return wire.Unavailable("%s: the answer: %v", path, err)
		}
		if u := answer.Usage; u != nil {
			p.PromptTokens, p.CachedTokens = u.Prompt, u.Cached()
		}
		return nil
	}
	if stream, _ := wire.Streams(b); stream {
		marked, err := e.client.Stream(ctx, path, wire.RequestID(r), b.Bytes(), read)
		if err == nil && !marked {
			err = wire.Unavailable("%s: the stream was cut", path)
		}
		return err
	}
	answer, err := e.client.Compute(ctx, path, wire.RequestID(r), b.Bytes())
	if err != nil {
		return err
	}
	return read(answer)
}
