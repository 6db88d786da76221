package served

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// prefill computes prompts for decode servers.
type prefill struct {
	*duty
	elsewhere *elsewhere
}

// Register implements role.Role.
func (d *prefill) Register(ctx context.Context) (err error) {
	if d.elsewhere, err = d.follow(ctx); err != nil {
		return err
	}
	return d.register(ctx, cluster.EndpointGenerate, d.compute)
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
	entry, err := d.s.admit(&p, "")
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
	var done external.Prefilled
	images, err := d.elsewhere.embed(ctx, r)
	if err == nil {
		done, err = d.s.Engine.Prefill(ctx, r)
	}
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
		Worker: d.Worker, Prefill: d.Worker, PrefillNS: int64(time.Since(entry.began)), CachedTokens: max(done.CachedTokens, 0), CacheUnknown: done.CachedTokens < 0, Encoded: images,
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
