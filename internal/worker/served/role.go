package served

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// duty is what both roles do: they pass requests on.
type duty struct {
	role.Base
	*role.Term
	s *Server

	renewing sync.WaitGroup
	stop     context.CancelFunc // ends it; nil before Register
}

// register serves requests by h, and publishes the card, again whenever the adapters of the server
// change.
func (d *duty) register(ctx context.Context, h requestplane.Handler) error {
	_, changed := d.s.Adapters()
	if err := d.PublishCard(ctx, nil); err != nil {
		return err
	}
	if _, err := d.Serve(ctx, cluster.EndpointGenerate, d.Metered(h)); err != nil {
		return err
	}
	ctx, d.stop = context.WithCancel(ctx)
	d.renewing.Go(func() { d.renew(ctx, changed) })
	return nil
}

// End implements role.Role.
func (d *duty) End() {
	if d.stop != nil {
		d.stop()
		d.renewing.Wait()
	}
}

// NewRole makes the work of a role for one term. The term has no engine and no KV plane.
func (s *Server) NewRole(as cluster.Role, t *role.Term) (role.Role, error) {
	d := &duty{Term: t, s: s}
	switch {
	case as == cluster.RoleDecode:
		return &decode{d}, nil
	case as != cluster.RolePrefill:
		return nil, fmt.Errorf("servers of %s cannot be %s workers", s.Backend, as)
	case s.Engine.Exchange() == external.ExchangeNone:
		return nil, fmt.Errorf("a prefill worker needs a server that exchanges KV: this one of %s has no connector", s.Backend)
	}
	return &prefill{d}, nil
}

// request translates a request of a frontend for the server.
func (d *duty) request(p *protocol.PreprocessedRequest) (*external.Request, error) {
	model, err := d.model(p)
	if err != nil {
		return nil, err
	}
	if len(p.Media) > 0 {
		return nil, invalid("images reach servers of %s only with the client's own request: serve the model without a folder", d.s.Backend)
	}
	if (p.Body == nil) == (len(p.TokenIDs) == 0) {
		return nil, invalid("a request has either tokens or a body")
	}
	r := &external.Request{PreprocessedRequest: p, Model: model}
	if b := p.Disagg.Bootstrap; b != nil && b.Place != nil {
		r.Meeting = &external.Meeting{ServerPlace: *b.Place, Room: b.Room}
	}
	if h := p.Disagg.Params; h != nil && h.Handoff != nil {
		r.Handoff = h.Handoff
		p.RequestID = h.RequestID
	}
	return r, nil
}

func unavailable(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: fmt.Sprintf(format, args...)}
}

func invalid(format string, args ...any) error {
	return &requestplane.RemoteError{Kind: requestplane.KindInvalidArgument, Message: fmt.Sprintf(format, args...)}
}

// decode answers requests, with KV of a prefill server or without.
type decode struct{ *duty }

// Register implements role.Role.
func (d *decode) Register(ctx context.Context) error {
	return d.register(ctx, d.generate)
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
	entry, err := d.s.admit(&p)
	if err != nil {
		return err
	}
	defer func() { d.s.release(entry, err) }()
	ctx, end := d.s.during(ctx)
	defer end()
	a := &answer{d: d, p: &p, entry: entry, send: send, stop: protocol.Stopper{Conditions: p.Stop}, usage: protocol.Usage{PromptTokens: len(p.TokenIDs) - p.Generated}}
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
	if told, other := elsewhere(&a.p.Disagg); other {
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

// elsewhere reports whether another server has computed the prompt, and how many tokens of it that
// one had in its cache; -1 if that is not known here.
func elsewhere(d *protocol.DisaggHints) (cached int, other bool) {
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
	t := &protocol.Timing{Worker: a.d.Worker, Prefill: "local", PrefillWhy: a.p.Disagg.Why, PrefillNS: int64(now.Sub(a.entry.began)), CachedTokens: max(cached, 0), CacheUnknown: cached < 0}
	switch hints := &a.p.Disagg; {
	case hints.Params != nil && hints.Params.Handoff != nil:
		t.Prefill, t.PrefillWhy, t.PrefillWay = hints.Params.Worker, "", protocol.WayPull
	case hints.Bootstrap != nil && hints.Bootstrap.Place != nil:
		t.Prefill, t.PrefillWhy, t.PrefillWay = hints.Bootstrap.Worker, "", protocol.WayBackground
	}
	return t
}

// prefill computes prompts for decode servers.
type prefill struct{ *duty }

// Register implements role.Role.
func (d *prefill) Register(ctx context.Context) error {
	return d.register(ctx, d.compute)
}

var errHoldExpired = errors.New("the deadline of the prefill has passed")

// compute serves the first leg of a request. It answers with what the decode server needs, and
// stays until the frontend lets go: the server keeps the KV meanwhile.
func (d *prefill) compute(ctx context.Context, req *requestplane.Request, send func(any) error) (err error) {
	var p protocol.PreprocessedRequest
	if err := req.Decode(&p); err != nil {
		return err
	}
	r, err := d.request(&p)
	if err != nil {
		return err
	}
	concurrent := d.s.Engine.Exchange() == external.ExchangeConcurrent
	if p.Disagg.Deadline.IsZero() || concurrent != (r.Meeting != nil) {
		return invalid("a prefill of a server of %s needs a deadline, and a place if its servers meet", d.s.Backend)
	}
	caller := ctx
	ctx, cancel := context.WithDeadlineCause(ctx, p.Disagg.Deadline, errHoldExpired)
	defer cancel()
	entry, err := d.s.admit(&p)
	if err != nil {
		return err
	}
	defer func() { d.s.release(entry, err) }()
	ctx, end := d.s.during(ctx)
	defer end()
	if concurrent {
		if err := send(protocol.EngineOutput{}); err != nil { // the decode server may be called
			return err
		}
	}
	d.s.leg(func(l *legs) { l.begun++ })
	done, err := d.s.Engine.Prefill(ctx, r)
	outcome, took := metrics.LegComputed, time.Since(entry.began)
	defer func() { d.Meter.FirstLeg(outcome, took) }()
	if err != nil {
		err = prefillError(ctx, d.s.failed(ctx, r, err))
		if outcome = metrics.LegLeft; caller.Err() == nil {
			outcome = metrics.LegFailed
			d.s.leg(func(l *legs) { l.failed, l.failure = l.failed+1, cut(err.Error()) })
		}
		return err
	}
	d.s.computed(entry, done.CachedTokens)
	if host := sideChannel(done.Handoff); host != "" {
		d.s.leg(func(l *legs) { l.host = host })
	}
	timing := &protocol.Timing{
		Worker: d.Worker, Prefill: d.Worker, PrefillNS: int64(time.Since(entry.began)), CachedTokens: max(done.CachedTokens, 0), CacheUnknown: done.CachedTokens < 0,
	}
	if done.Answer != nil {
		outcome = metrics.LegAnswered
		for i, out := range done.Answer {
			if i == 0 {
				out.Timing = timing
			}
			if err := send(out); err != nil {
				return err
			}
		}
		return nil
	}
	if concurrent {
		return send(protocol.EngineOutput{Timing: timing})
	}
	deadline := p.Disagg.Deadline
	if done.Lease > 0 && time.Now().Add(done.Lease).Before(deadline) {
		deadline = time.Now().Add(done.Lease)
	}
	err = send(protocol.EngineOutput{Timing: timing, Params: &protocol.DisaggregatedParams{
		Worker: d.Worker, ID: d.ID(), Deadline: deadline, Handoff: done.Handoff, RequestID: p.RequestID, Cached: max(done.CachedTokens, 0), CacheUnknown: done.CachedTokens < 0, Tokens: len(p.TokenIDs),
	}})
	if err != nil {
		return err
	}
	hold, let := context.WithDeadlineCause(ctx, deadline, errHoldExpired)
	defer let()
	<-hold.Done()
	if errors.Is(context.Cause(hold), errHoldExpired) {
		outcome = metrics.LegStranded
		d.s.leg(func(l *legs) { l.stranded++ })
	}
	return nil
}

// sideChannel returns the host from which a hand-off of vLLM has KV fetched, for the status; ""
// if it names none.
func sideChannel(handoff json.RawMessage) string {
	var at struct {
		Host string `json:"remote_host"`
	}
	if json.Unmarshal(handoff, &at) != nil {
		return "" // it is for the decode server to understand
	}
	return cut(at.Host)
}

// prefillError translates the failure of a first leg for the frontend.
func prefillError(ctx context.Context, err error) error {
	if errors.Is(context.Cause(ctx), errHoldExpired) {
		return &requestplane.RemoteError{Kind: requestplane.KindUnavailable, Message: errHoldExpired.Error()}
	}
	return err
}
