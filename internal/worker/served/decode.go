package served

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// decode answers requests, with KV of a prefill server or without.
type decode struct {
	*duty
	elsewhere *elsewhere
}

// Register implements role.Role.
func (d *decode) Register(ctx context.Context) (err error) {
	if d.elsewhere, err = d.follow(ctx); err != nil {
		return err
	}
	return d.register(ctx, cluster.EndpointGenerate, d.generate)
}

// errEnough ends the answer of a server that would go on.
var errEnough = errors.New("the answer is complete")

func (d *decode) generate(ctx context.Context, req *requestplane.Request, send func(any) error) (err error) {
	var p protocol.PreprocessedRequest
	if err := req.Decode(&p); err != nil {
		return err
	}
	r, err := d.request(&p)
	if err != nil {
		return err
	}
	if (p.Disagg.Enforce || d.s.needsPrefill()) && r.Handoff == nil && r.Meeting == nil {
		return &requestplane.RemoteError{Kind: requestplane.KindNotPrefilled, Message: "the prompt would be computed here: " + p.Disagg.Why}
	}
	entry, err := d.s.admit(&p, "")
	if err != nil {
		return err
	}
	defer func() { d.s.release(entry, err) }()
	ctx, end := d.s.during(ctx)
	defer end()
	a := &answer{d: d, p: &p, entry: entry, send: send, stop: protocol.Stopper{Conditions: p.Stop}, usage: protocol.Usage{PromptTokens: len(p.TokenIDs) - p.Generated}}
	if r.Handoff == nil && r.Meeting == nil {
		if a.images, err = d.elsewhere.embed(ctx, r); err != nil {
			return d.s.failed(ctx, r, err)
		}
	}
	err = d.s.Engine.Generate(ctx, r, a.take)
	switch {
	case a.failed != nil:
		return a.failed
	case a.ended:
		return nil
	case err == nil:
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: "the server ended an answer without a reason"}
	}
	return d.s.failed(ctx, r, err)
}

// answer passes on what a server generates for one request.
type answer struct {
	d      *decode
	p      *protocol.PreprocessedRequest
	entry  *request
	send   func(any) error
	stop   protocol.Stopper
	usage  protocol.Usage
	images protocol.Encoded
	first  time.Time
	last   time.Time
	ended  bool
	failed error // of send
}

// take is called for each output, by one goroutine.
func (a *answer) take(out protocol.EngineOutput) error {
	if a.failed != nil || a.ended {
		return errEnough
	}
	if out.Text != "" {
		if a.d.s.Tokenizer == nil {
			return a.fail(&requestplane.RemoteError{Kind: requestplane.KindInternal, Message: "the server answered with text where tokens were asked for"})
		}
		out.TokenIDs, out.Text = append(out.TokenIDs, a.d.s.Tokenizer.Encode(out.Text, false)...), ""
	}
	now := time.Now()
	cached := -1
	if out.Timing != nil {
		cached = out.Timing.CachedTokens
	}
	if u := out.Usage; u != nil {
		cached = u.CachedTokens
		if a.p.Body != nil {
			a.usage = *u
		}
	}
	if told, other := prefilledElsewhere(&a.p.Disagg); other {
		cached = told // the decode server has the whole prompt
		a.usage.CachedTokens = max(cached, 0)
	}
	a.usage.CachedTokens = max(a.usage.CachedTokens, cached)
	out.Timing = nil
	if a.first.IsZero() {
		a.first = now
		out.Timing = a.timing(now, cached)
		a.d.s.computed(a.entry, cached)
	}
	n := a.stop.Keep(out.TokenIDs)
	if n > 0 {
		a.last = now
	}
	if out.Raw != nil && len(out.TokenIDs) == 0 {
		a.last = now
		a.d.s.generated(a.entry, 1) // one chunk is about one token
	}
	a.d.s.generated(a.entry, n)
	out.TokenIDs, out.Logprobs = out.TokenIDs[:n], out.Logprobs.First(n)
	if a.stop.Finish != protocol.FinishNone {
		out.Finish = a.stop.Finish
	}
	out.Usage, out.DecodeNS = nil, 0
	if out.Finish != protocol.FinishNone {
		a.ended = true
		if a.p.Body == nil {
			a.usage.CompletionTokens = a.stop.Sent
		}
		out.Usage, out.DecodeNS = &a.usage, int64(a.last.Sub(a.first))
	}
	if a.failed = a.send(out); a.failed != nil {
		return a.failed
	}
	if a.ended {
		return errEnough
	}
	return nil
}

// prefilledElsewhere reports whether another server has computed the prompt, and how many tokens of it that
// one had in its cache; -1 if that is not known here.
func prefilledElsewhere(d *protocol.DisaggHints) (cached int, other bool) {
	switch h := d.Params; {
	case h != nil && h.Handoff != nil && h.CacheUnknown:
		return -1, true
	case h != nil && h.Handoff != nil:
		return h.Cached, true
	}
	return -1, d.Bootstrap != nil && d.Bootstrap.Place != nil
}

func (a *answer) fail(err error) error {
	a.failed = err
	return err
}

// timing says where the prompt was computed.
func (a *answer) timing(now time.Time, cached int) *protocol.Timing {
	t := &protocol.Timing{Worker: a.d.Worker, Prefill: "local", PrefillWhy: a.p.Disagg.Why, PrefillNS: int64(now.Sub(a.entry.began)), CachedTokens: max(cached, 0), CacheUnknown: cached < 0, Encoded: a.images}
	switch hints := &a.p.Disagg; {
	case hints.Params != nil && hints.Params.Handoff != nil:
		t.Prefill, t.PrefillWhy, t.PrefillWay = hints.Params.Worker, "", protocol.WayPull
	case hints.Bootstrap != nil && hints.Bootstrap.Place != nil:
		t.Prefill, t.PrefillWhy, t.PrefillWay = hints.Bootstrap.Worker, "", protocol.WayBackground
	}
	return t
}
