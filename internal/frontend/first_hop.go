package frontend

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// firstHop is the prefill of a request at the worker that the frontend has chosen. It
// belongs to the goroutine of the request. The prefill worker keeps the KV while the
// stream is open, until its deadline; close releases it.
type firstHop struct {
	f         *Frontend
	card      *cluster.ModelCard
	id        cluster.InstanceID // of the prefill worker
	rt        cluster.RuntimeConfig
	stream    requestplane.Stream
	flight    *router.Flight
	params    *protocol.DisaggregatedParams
	bootstrap *protocol.BootstrapInfo
	deadline  time.Time
	decision  cluster.RouterDecision // that chose the worker
	// cached counts the tokens of the prompt that the prefill worker found in its cache; counted
	// says that it knows. They are set when followed is closed, or when there is none.
	cached  int
	counted bool
	// answer is set if the prefill worker has given the whole answer.
	answer []protocol.EngineOutput
	// failed ends, with the reason as its cause, when a prefill that runs beside its decode worker
	// has failed: the decode worker may wait for its KV for ever. It is nil if nothing runs there.
	failed context.Context
	fail   context.CancelCauseFunc

	// stop ends follow, which closes followed; nil if nobody follows.
	stop     context.CancelFunc
	followed chan struct{}
}

var (
	errPrefillTimeout = errors.New("remote prefill timed out")
	errNoParams       = errors.New("the prefill worker did not say where the KV is")
)

// ask sends the prompt to a prefill worker. With a bootstrap room it returns when the
// worker has opened the room, otherwise when the KV is computed.
func (g *generation) ask(ctx context.Context, hop *firstHop, inst cluster.Instance, settings Settings) error {
	hop.deadline = time.Now().Add(settings.RemoteTimeout)
	hop.rt = g.m.prefills[inst.InstanceID]
	switch id := inst.InstanceID; {
	case hop.rt.Meets != nil: // each attempt has a room of its own
		hop.bootstrap = &protocol.BootstrapInfo{Worker: inst.Worker, ID: id, Room: rand.Uint64() >> 1, Place: hop.rt.Meets}
	case hop.rt.Disaggregated != nil && settings.Background:
		hop.bootstrap = &protocol.BootstrapInfo{Worker: inst.Worker, ID: id, Address: hop.rt.Disaggregated.Address(id), Room: rand.Uint64() >> 1}
	}
	g.hops++
	req := protocol.PreprocessedRequest{
		Tenant: g.req.Tenant, Model: g.req.Model, ModelSum: g.req.ModelSum, TokenIDs: g.req.TokenIDs, Media: g.req.Media,
		Generated: g.req.Generated, Stop: protocol.StopConditions{MaxTokens: 1}, ReceivedAt: g.req.ReceivedAt,
	}
	if hop.rt.Backend != "" {
		req = g.req // servers that meet get the same request
	}
	req.RequestID = attemptID(g.id, g.hops-1) // a prefill worker may get another attempt of the same request
	req.Disagg = protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Deadline: hop.deadline, Bootstrap: hop.bootstrap}
	// The context of the call is the request's: its end ends the hop, too.
	stream, err := g.f.prefills.Call(ctx, inst, req.RequestID, nil, req)
	if err != nil {
		return err
	}
	hop.stream = stream
	until := hop.deadline
	if hop.bootstrap != nil {
		until = time.Now().Add(min(g.f.limits.enter, settings.RemoteTimeout))
	}
	wait, cancel := context.WithDeadlineCause(ctx, until, errPrefillTimeout)
	defer cancel()
	var out protocol.EngineOutput
	err = stream.Recv(wait, &out)
	switch {
	case err != nil || out.Params != nil || hop.bootstrap != nil:
	case hop.rt.Backend == "":
		err = errNoParams
	default:
		err = hop.takeAnswer(wait, out)
	}
	if err != nil {
		stream.Close()
		return err
	}
	hop.params = out.Params
	if hop.bootstrap == nil {
		if hop.computed(ctx, out.Timing); out.Timing != nil {
			g.pulled = *out.Timing
		}
		return nil
	}
	following, stop := context.WithCancel(ctx)
	hop.stop, hop.followed = stop, make(chan struct{})
	hop.failed, hop.fail = context.WithCancelCause(context.Background())
	go hop.follow(following)
	return nil
}

// follow waits until the prompt is computed, while the decode worker gets ready.
func (h *firstHop) follow(ctx context.Context) {
	defer close(h.followed)
	var out protocol.EngineOutput
	for out.Timing == nil {
		if err := h.stream.Recv(ctx, &out); err != nil {
			if ctx.Err() == nil && h.rt.Backend != "" {
				h.fail(err) // of a failure in a room of ours the decode worker hears there
			}
			return
		}
	}
	h.computed(ctx, out.Timing)
	if h.rt.Backend != "" { // nothing is kept for the decode server
		h.flight.End()
	}
}

// computed records that the prefill worker has computed the prompt; timing, if not nil,
// says what it had in its cache.
func (h *firstHop) computed(ctx context.Context, timing *protocol.Timing) {
	h.flight.Prefilled()
	if timing == nil { // of the release before
		return
	}
	h.cached, h.counted = timing.CachedTokens, !timing.CacheUnknown
	d := &h.decision
	d.Prefill, d.Overlap, d.OverlapUnknown = d.Chosen, timing.CachedTokens/h.card.BlockSize, timing.CacheUnknown
	if d.OverlapUnknown {
		h.f.announceDecision(ctx, *d)
		return
	}
	reusable := max(*d.Reusable, d.Overlap) // others may have come since
	d.Reusable = &reusable
	h.f.caches.found(h.id, d.Predicted, reusable, d.Overlap)
	h.f.announceDecision(ctx, *d)
}

// maxFirstAnswer bounds the pieces of an answer of a prefill worker.
const maxFirstAnswer = 64

// takeAnswer takes the whole answer, of which out is the first piece: a prefill server may find
// that its first token is the last one.
func (h *firstHop) takeAnswer(ctx context.Context, out protocol.EngineOutput) error {
	h.answer = append(h.answer, out)
	for out.Finish == protocol.FinishNone {
		if len(h.answer) == maxFirstAnswer || len(out.TokenIDs) == 0 && out.Raw == nil {
			return errNoParams
		}
		out = protocol.EngineOutput{}
		if err := h.stream.Recv(ctx, &out); err != nil {
			return err
		}
		h.answer = append(h.answer, out)
	}
	return nil
}

func (h *firstHop) close() {
	if h == nil {
		return
	}
	if h.stop != nil {
		h.stop()
		<-h.followed
	}
	h.stream.Close()
	h.flight.End()
}

// arrived ends the prefill of an answer that begins to come. What a server tells of the prompt that
// it has computed may still be on its way.
func (g *generation) arrived(t *protocol.Timing) {
	h := g.hop
	if h == nil || h.rt.Backend == "" || t.PrefillWay == "" {
		g.endHop()
		return
	}
	g.counts = &prefillCount{hop: h}
	if h.followed == nil {
		g.endHop()
	}
	g.hop, g.pulled = nil, protocol.Timing{}
}

// endCounts ends the waiting for what a prefill server tells.
func (g *generation) endCounts() {
	if g.counts != nil && g.counts.hop.followed != nil {
		g.counts.hop.close()
	}
	g.counts = nil
}

// endHop releases the KV that a prefill worker keeps for the request, if any.
func (g *generation) endHop() {
	g.hop.close()
	g.hop, g.pulled = nil, protocol.Timing{}
}
