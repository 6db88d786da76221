package frontend

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// prefillTries is the number of prefill workers that a request tries before its decode
// worker prefills.
const prefillTries = 2

// Reasons for a local prefill that only the frontend can find.
const (
	whyPrefillFailed  = "prefill worker failed"
	whyPrefillTimeout = "remote prefill timed out"
	whyPrefillBusy    = "prefill workers busy"
	whyPromptProbs    = "prompt logprobs"
)

// firstHop is the prefill of a request at the worker that the frontend has chosen. It
// belongs to the goroutine of the request. The prefill worker keeps the KV while the
// stream is open, until its deadline; close releases it.
type firstHop struct {
	stream    requestplane.Stream
	flight    *router.Flight
	params    *protocol.DisaggregatedParams
	bootstrap *protocol.BootstrapInfo
	deadline  time.Time
}

func (h *firstHop) close() {
	if h != nil {
		h.stream.Close()
		h.flight.End()
	}
}

// disaggregate says in the request how its prompt is prefilled. With the strategy
// router it has a prefill worker compute it first, or while the decode worker gets
// ready.
func (g *generation) disaggregate(ctx context.Context) error {
	if g.hop != nil && time.Now().Before(g.hop.deadline) {
		return nil // the decode worker has refused; another one may use it
	}
	g.endHop()
	hints := &g.req.Disagg
	hints.Strategy, hints.Why = g.strategy, ""
	hints.Params, hints.Bootstrap, hints.Deadline = nil, nil, time.Time{}
	if g.strategy != protocol.StrategyPrefillFirst {
		return nil
	}
	settings := g.f.cfg.Settings()
	tried := map[cluster.InstanceID]string{}
	for range prefillTries {
		why := g.prefill(ctx, settings, tried)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if g.hop != nil {
			hints.Why, hints.Params, hints.Bootstrap, hints.Deadline = "", g.hop.params, g.hop.bootstrap, g.hop.deadline
			return nil
		}
		if hints.Why == "" || why != whyNoOther {
			hints.Why = why
		}
		if len(tried) == 0 || why == whyNoOther {
			return nil // no worker was asked, or none is left
		}
	}
	return nil
}

// whyNoOther is the reason when no prefill worker is left that has not failed. The
// decision then reports the failed worker's reason instead.
const whyNoOther = "no other prefill worker"

// prefill asks one prefill worker and sets g.hop, or returns why the decode worker must
// prefill. It adds workers that fail to tried.
func (g *generation) prefill(ctx context.Context, settings Settings, tried map[cluster.InstanceID]string) (why string) {
	if g.req.Output.PromptLogprobs != nil {
		return whyPromptProbs
	}
	g.current()
	begin := time.Now()
	instances := g.f.prefills.Instances()
	candidates := g.prefillCandidates(instances, tried)
	if len(tried) > 0 && len(tried) == len(candidates) {
		return whyNoOther
	}
	waiting := 0
	for _, c := range candidates {
		waiting += max(0, g.f.prefillLoad.InFlight(c.ID)-1) // one is being computed
	}
	remote, why := router.DecidePrefill(router.PrefillState{
		PromptTokens: len(g.req.TokenIDs), PrefillWorkers: len(candidates), QueueDepth: waiting, Force: g.req.Disagg.Force,
	}, settings.Prefill)
	switch {
	case !remote && why == router.WhyQueueFull:
		return whyPrefillBusy
	case !remote:
		return why
	}
	r := g.routed()
	g.f.caches.describe(candidates, r.Hashes)
	d, flight, err := g.f.prefillLoad.Choose(r, router.View{Candidates: candidates}, g.f.policies[router.LeastLoaded].Pick)
	if err != nil {
		return whyNoOther
	}
	g.announcePrefill(ctx, d, r, begin)
	at := slices.IndexFunc(instances, func(i cluster.Instance) bool { return i.InstanceID == d.Chosen.ID })
	hop, err := g.ask(ctx, instances[at], settings) // the candidates come from there
	if err == nil {
		hop.flight = flight
		g.hop = hop
		return ""
	}
	flight.End()
	why = prefillVerdict(err)
	tried[d.Chosen.ID] = why
	if ctx.Err() == nil {
		g.f.log.Info("prefill worker failed a request", "request", g.id, "worker", d.Chosen.Worker, "reason", why, "error", err)
	}
	return why
}

// prefillCandidates returns the instances that prefill for the model.
func (g *generation) prefillCandidates(instances []cluster.Instance, tried map[cluster.InstanceID]string) []router.Candidate {
	var out []router.Candidate
	for _, i := range instances {
		if _, ok := g.m.prefills[i.InstanceID]; ok {
			out = append(out, router.Candidate{ID: i.InstanceID, Worker: i.Worker, Excluded: exclusion(g.only.prefill, i.InstanceID, tried[i.InstanceID])})
		}
	}
	return out
}

// prefillVerdict returns, in the words of decisions, why a prefill worker did not take a
// prompt.
func prefillVerdict(err error) string {
	switch {
	case errors.Is(err, requestplane.ErrOverloaded):
		return whyPrefillBusy
	case errors.Is(err, errPrefillTimeout), errors.Is(err, requestplane.ErrTimeout):
		return whyPrefillTimeout
	}
	return whyPrefillFailed
}

var (
	errPrefillTimeout = errors.New("remote prefill timed out")
	errNoParams       = errors.New("the prefill worker did not say where the KV is")
)

// ask sends the prompt to a prefill worker. With a bootstrap room it returns when the
// worker has opened the room, otherwise when the KV is computed.
func (g *generation) ask(ctx context.Context, inst cluster.Instance, settings Settings) (*firstHop, error) {
	hop := &firstHop{deadline: time.Now().Add(settings.RemoteTimeout)}
	if id, e := inst.InstanceID, g.m.prefills[inst.InstanceID].Disaggregated; e != nil && settings.Background {
		hop.bootstrap = &protocol.BootstrapInfo{Worker: inst.Worker, ID: id, Address: e.Address(id), Room: rand.Uint64() >> 1}
	}
	g.hops++
	req := protocol.PreprocessedRequest{
		// A prefill worker may get another attempt of the same request.
		RequestID: attemptID(g.id, g.hops-1), Tenant: g.req.Tenant, Model: g.req.Model, ModelSum: g.req.ModelSum, TokenIDs: g.req.TokenIDs,
		Generated: g.req.Generated, Stop: protocol.StopConditions{MaxTokens: 1}, ReceivedAt: g.req.ReceivedAt,
		Disagg: protocol.DisaggHints{Strategy: protocol.StrategyPrefillFirst, Deadline: hop.deadline, Bootstrap: hop.bootstrap},
	}
	// The context of the call is the request's: its end ends the hop, too.
	stream, err := g.f.prefills.Call(ctx, inst, req.RequestID, nil, req)
	if err != nil {
		return nil, err
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
	if err == nil && out.Params == nil && hop.bootstrap == nil {
		err = errNoParams
	}
	if err != nil {
		stream.Close()
		return nil, err
	}
	hop.params = out.Params
	return hop, nil
}

// endHop releases the KV that a prefill worker keeps for the request, if any.
func (g *generation) endHop() {
	g.hop.close()
	g.hop = nil
}

// announcePrefill publishes the choice of a prefill worker.
func (g *generation) announcePrefill(ctx context.Context, d router.Decision, r router.Request, begin time.Time) {
	g.f.announceDecision(ctx, cluster.RouterDecision{
		RequestID: attemptID(g.id, g.attempts), Time: begin, Model: g.m.name, Phase: cluster.RolePrefill, Policy: d.Policy, Chosen: d.Chosen.Worker, Weighed: d.Weighed,
		PromptToks: len(g.req.TokenIDs), Blocks: len(g.req.TokenIDs) / g.m.card.BlockSize,
		Predicted: predicted(d.Chosen, r), DecidedNS: int64(time.Since(begin)), Candidates: d.Candidates[:min(len(d.Candidates), maxCandidates)],
	})
}
