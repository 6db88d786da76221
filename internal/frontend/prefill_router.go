package frontend

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// prefillTries is the number of prefill workers that a request tries before its decode
// worker prefills.
const prefillTries = 2

// whyPromptProbs is the reason for the local prefill of a request that asks for the log
// probabilities of its prompt.
const whyPromptProbs = "prompt logprobs"

// whyEndsWithImage is the reason for a local prefill of a prompt whose last position, which the
// decode worker computes, belongs to an image.
const whyEndsWithImage = "ends with an image"

// whyManyAnswers is the reason for a local prefill of a body that asks for more than one answer:
// servers exchange the KV of one prompt for one.
const whyManyAnswers = "several answers"

// disaggregate says in the request how its prompt is prefilled. With the strategy
// prefill-first it has a prefill worker compute the prompt before the decode worker is
// asked, or while that gets ready.
func (g *generation) disaggregate(ctx context.Context) error {
	if g.hop != nil && time.Now().Before(g.hop.deadline) && !g.stranded() {
		return nil // the decode worker has refused; another one may use it
	}
	g.endHop()
	hints := &g.req.Disagg
	settings := g.f.cfg.Settings()
	hints.Strategy, hints.Why = g.strategy, ""
	if g.m.served {
		hints.Strategy = protocol.StrategyPrefillFirst
	}
	hints.Enforce = settings.Prefill.Enforce && g.req.Generated == 0 // an answer that has begun goes on
	hints.Params, hints.Bootstrap, hints.Deadline, hints.Prefills = nil, nil, time.Time{}, protocol.PrefillHints{}
	if len(g.followed(g.f.workers.Instances())) > 0 {
		return nil // its KV is there already
	}
	if g.strategy != protocol.StrategyPrefillFirst && !g.m.served {
		if settings.Prefill.Conditional.ComparesSpeeds() { // the decode worker decides
			r := g.routed()
			hints.Prefills = g.f.caches.prefillHints(g.m.prefills, g.lookup(r), r.BlockSize)
		}
		return nil
	}
	tried := maps.Clone(g.failedPrefills)
	if tried == nil {
		tried = map[cluster.InstanceID]string{}
	}
	for range prefillTries {
		why := g.prefill(ctx, settings, tried)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if g.hop != nil {
			hints.Why, hints.Params, hints.Bootstrap, hints.Deadline = "", g.hop.params, g.hop.bootstrap, g.hop.deadline
			return nil
		}
		if hints.Why == "" || why != router.WhyNoOtherPrefill {
			hints.Why = why
		}
		if len(tried) == 0 || why == router.WhyNoOtherPrefill {
			break // no worker was asked, or none is left
		}
	}
	if hints.Enforce && router.StandsIn(hints.Why) || g.m.needsPrefill {
		return notPrefilled(hints.Why)
	}
	return nil
}

// prefill asks one prefill worker and sets g.hop, or returns why the decode worker must
// prefill. It adds workers that fail to tried.
func (g *generation) prefill(ctx context.Context, settings Settings, tried map[cluster.InstanceID]string) (why string) {
	if g.req.Output.PromptLogprobs != nil {
		return whyPromptProbs
	}
	if n := len(g.req.Media); n > 0 && g.req.Body == nil && g.req.Media[n-1].End == len(g.req.TokenIDs) {
		return whyEndsWithImage
	}
	if g.req.Body != nil && external.Splittable(g.req.Body) != nil {
		return whyManyAnswers
	}
	g.current()
	begin := time.Now()
	instances := g.f.prefills.Instances()
	candidates := g.prefillCandidates(instances, tried)
	if len(tried) > 0 && len(tried) == len(candidates) {
		return router.WhyNoOtherPrefill
	}
	r, reusable := g.describePrefill(candidates)
	state, _ := g.prefillState(candidates, r, settings)
	if g.m.needsPrefill {
		state.Force = metrics.PrefillRemote
	}
	remote, reason := router.DecidePrefill(state, settings.Prefill)
	switch {
	case !remote && reason == router.WhyQueueFull:
		return router.WhyPrefillsBusy
	case !remote:
		return reason
	}
	d, flight, err := g.f.prefillLoad.Choose(r, router.View{Candidates: candidates, Limits: settings.Busy}, g.prefillPolicy().Pick)
	switch {
	case errors.Is(err, router.ErrAllBusy):
		return router.WhyPrefillsBusy
	case err != nil:
		return router.WhyNoOtherPrefill
	}
	hop := &firstHop{f: g.f, card: &g.m.card, flight: flight, decision: g.prefillDecision(d, r, begin), id: d.Chosen.ID}
	hop.decision.PrefillWhy, hop.decision.Reusable = reason, &reusable
	g.f.announceDecision(ctx, hop.decision)
	at := slices.IndexFunc(instances, func(i cluster.Instance) bool { return i.InstanceID == d.Chosen.ID })
	err = g.ask(ctx, hop, instances[at], settings) // the candidates come from there
	if err != nil || hop.bootstrap == nil {
		g.found = nil // that took time
	}
	if err == nil {
		g.f.caches.routed(d.Chosen.ID, r.Hashes)
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

// prefillState gathers what the decision between remote and local prefill is made from.
// candidates are the prefill workers, r is their part of the prompt; likely is the one that
// would be chosen, if there is one.
func (g *generation) prefillState(candidates []router.Candidate, r router.Request, settings Settings) (s router.PrefillState, likely router.Candidate) {
	s = router.PrefillState{
		PromptTokens: g.req.PromptTokens(), PrefillWorkers: len(candidates), Force: g.req.Disagg.Force, TransferOverlaps: settings.Background,
	}
	p, err := g.f.prefillLoad.Preview(r, router.View{Candidates: candidates, Limits: settings.Busy}, g.prefillPolicy().Pick)
	for _, c := range candidates {
		s.QueueDepth += max(0, c.Prefills-1) // one is being computed
	}
	if err == nil {
		s.Prefill = router.PrefillPlace{
			Uncached: p.Chosen.Uncached(r), Waiting: p.Chosen.PrefillTokens, Prompts: float64(p.Chosen.Prefills), Rate: p.Chosen.PrefillRate,
			StepTokens: g.m.prefills[p.Chosen.ID].MaxBatchTokens,
		}
		s.TransferRate = p.Chosen.TransferRate
		s.TransferOverlaps = s.TransferOverlaps && (g.m.prefills[p.Chosen.ID].Disaggregated != nil || g.m.prefills[p.Chosen.ID].Meets != nil)
	}
	whole, d, err := g.previewDecode()
	if err != nil {
		return s, p.Chosen // choose waits for a decode worker, or reports that there is none
	}
	s.CachedTokens = whole.PromptTokens - d.Chosen.Uncached(whole)
	s.Decode = router.PrefillPlace{
		Uncached: d.Chosen.Uncached(whole), Waiting: d.Chosen.PrefillTokens, Prompts: float64(d.Chosen.Prefills), Rate: d.Chosen.PrefillRate,
		KVTokens: d.Chosen.KVBlocks * whole.BlockSize,
	}
	if d.Chosen.KVBlocks > 0 {
		share := float64(max(d.Chosen.ActiveBlocks, d.Chosen.KVInUse)) / float64(d.Chosen.KVBlocks)
		s.Decode.KVShare = &share
	}
	return s, p.Chosen
}

// previewDecode returns the request and the decode worker that would be chosen now.
func (g *generation) previewDecode() (router.Request, router.Decision, error) {
	list := g.f.candidates.take()
	defer g.f.candidates.give(list)
	_, r, v, _ := g.view(list)
	d, err := g.f.load.Preview(r, v, g.policy().Pick)
	return r, d, g.named(err)
}

// describePrefill describes to the router the prefill workers and their part of the prompt.
// It also returns how many leading blocks of that at least one worker holds.
func (g *generation) describePrefill(candidates []router.Candidate) (part router.Request, reusable int) {
	whole := g.routed()
	part = prefillPart(whole)
	has := g.lookup(whole)
	g.f.caches.describe(candidates, has)
	for i := range candidates {
		candidates[i].Overlap = candidates[i].Overlap.First(len(part.Hashes))
	}
	return part, min(has.most, len(part.Hashes))
}

// prefillPart describes to the router what a prefill worker computes of a prompt: all but
// the last token.
func prefillPart(r router.Request) router.Request {
	r.PromptTokens = max(0, r.PromptTokens-1)
	r.Hashes = r.Hashes[:min(r.PromptTokens/r.BlockSize, len(r.Hashes))]
	return r
}

// prefillPolicy returns the policy that chooses the prefill worker: kv where it also
// chooses the decode worker, else least-loaded. Prompts differ more in their cost than
// answers do, so workers that take turns or are drawn would make some wait while others
// are idle.
func (g *generation) prefillPolicy() router.Policy {
	if p := g.policy(); p.Name() == router.KV {
		return p
	}
	return g.f.policies[router.LeastLoaded]
}

// prefillDecision describes the choice of a prefill worker.
func (g *generation) prefillDecision(d router.Decision, r router.Request, begin time.Time) cluster.RouterDecision {
	return cluster.RouterDecision{
		RequestID: attemptID(g.id, g.attempts), Time: begin, Model: g.m.name, Phase: cluster.RolePrefill, Policy: d.Policy, Chosen: d.Chosen.Worker, Weighed: d.Weighed,
		PromptToks: g.req.PromptTokens(), Blocks: len(g.req.TokenIDs) / g.m.card.BlockSize, Predicted: min(d.Chosen.Overlap.Blocks(), len(r.Hashes)),
		DecidedNS: int64(time.Since(begin)), Candidates: d.Candidates,
	}
}

// prefillCandidates returns the instances that prefill for the model.
func (g *generation) prefillCandidates(instances []cluster.Instance, tried map[cluster.InstanceID]string) []router.Candidate {
	var out []router.Candidate
	for i := range instances {
		inst := &instances[i]
		if rt, ok := g.m.prefills[inst.InstanceID]; ok && g.hasPeer(rt) {
			out = append(out, g.candidate(inst, rt, g.only.prefill, tried[inst.InstanceID]))
		}
	}
	return out
}

// hasPeer reports whether a decode worker that has not failed the request can take the KV of a
// prefill worker. Workers with the built-in engine always can: others are left out of the model.
func (g *generation) hasPeer(prefill cluster.RuntimeConfig) bool {
	if prefill.Backend == "" && !g.m.served {
		return true
	}
	for _, i := range g.f.workers.Instances() {
		rt, ok := g.m.workers[i.InstanceID]
		if _, failed := g.failed[i.InstanceID]; ok && !failed && exchanges(prefill, rt) {
			return true
		}
	}
	return false
}

// prefillVerdict returns, in the words of decisions, why a prefill worker did not take a
// prompt.
func prefillVerdict(err error) string {
	switch {
	case errors.Is(err, requestplane.ErrOverloaded):
		return router.WhyPrefillsBusy
	case errors.Is(err, errPrefillTimeout), errors.Is(err, requestplane.ErrTimeout):
		return router.WhyPrefillTimeout
	}
	return router.WhyPrefillFailed
}
