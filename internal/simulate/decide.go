package simulate

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// prefillFirst decides at the frontend where the prompt is computed, as
// frontend/prefill_router.go does. done is true if the decode worker is not to be called yet.
func (j *job) prefillFirst() (done bool, err error) {
	s := j.s
	part := j.routed
	part.PromptTokens--
	part.Hashes = part.Hashes[:part.PromptTokens/part.BlockSize]
	s.index.Lookup(j.routed.Hashes, &s.match)
	decoders, prefills := s.viewOf(cluster.RoleDecode), s.viewOf(cluster.RolePrefill)
	for i := range prefills.Candidates {
		c := &prefills.Candidates[i]
		c.Overlap = c.Overlap.First(len(part.Hashes))
	}
	state := router.PrefillState{PromptTokens: j.input, PrefillWorkers: len(prefills.Candidates), TransferOverlaps: !s.Sequential}
	if p, err := s.prefills.Preview(part, prefills, s.prefillPolicy().Pick); err == nil {
		state.Prefill = router.PrefillPlace{
			Uncached: p.Chosen.Uncached(part), Waiting: p.Chosen.PrefillTokens, Prompts: float64(p.Chosen.Prefills), Rate: p.Chosen.PrefillRate,
			StepTokens: s.PrefillProfile.Limits.MaxBatchTokens,
		}
		state.TransferRate = p.Chosen.TransferRate
	}
	for i := range prefills.Candidates {
		state.QueueDepth += max(0, prefills.Candidates[i].Prefills-1) // one is being computed
	}
	if d, err := s.load.Preview(j.routed, decoders, s.policy.Pick); err == nil {
		c := &d.Chosen
		state.CachedTokens = j.input - c.Uncached(j.routed)
		state.Decode = router.PrefillPlace{Uncached: c.Uncached(j.routed), Waiting: c.PrefillTokens, Prompts: float64(c.Prefills), Rate: c.PrefillRate, KVTokens: c.KVBlocks * part.BlockSize}
		share := float64(max(c.ActiveBlocks, c.KVInUse)) / float64(c.KVBlocks)
		state.Decode.KVShare = &share
	}
	remote, why := router.DecidePrefill(state, s.Disagg)
	if j.why = why; !remote {
		return j.keepLocal(why)
	}
	p, flight, err := s.prefills.Choose(part, prefills, s.prefillPolicy().Pick)
	if err != nil {
		return j.keepLocal(router.WhyPrefillsBusy)
	}
	h := &hop{s: s, j: j, flight: flight, tokens: j.tokens[:part.PromptTokens]}
	if err := h.submit(s.find(p.Chosen.ID)); err != nil {
		flight.End()
		return j.keepLocal(router.WhyPrefillsBusy)
	}
	j.hop = h
	s.flying++
	s.at(s.now+s.RemoteTimeout, h.expire)
	if s.Sequential {
		return true, h.from.step() // the decode worker is called when the prompt is computed
	}
	return false, h.from.step()
}

// keepLocal has the decode worker compute the prompt, or refuses the request where that would
// stand in for a prefill worker and must not.
func (j *job) keepLocal(why string) (done bool, err error) {
	j.why = why
	if j.s.Disagg.Enforce && router.StandsIn(why) {
		return true, j.refuse(RefusedNotPrefilled)
	}
	return false, nil
}

func (s *simulation) prefillPolicy() router.Policy {
	if s.policy.Name() == router.KV {
		return s.policy
	}
	p, _ := router.NewPolicy(router.LeastLoaded) // it is known
	return p
}

// prefillHints gathers the hints of a request, as frontend/caches.go does. The index has just
// been looked up.
func (s *simulation) prefillHints(j *job) (h protocol.PrefillHints) {
	var workers, rates, told, cached int
	for _, w := range s.workers {
		if w.role != cluster.RolePrefill || w.state != Ready {
			continue
		}
		workers++
		cached += s.match.Find(w.id).Total()
		if w.status.rate > 0 {
			rates, h.Rate = rates+1, h.Rate+w.status.rate
		}
		if w.status.reported {
			told, h.Prompts, h.Waiting = told+1, h.Prompts+float64(w.status.prompts), h.Waiting+w.status.waiting
		}
	}
	h.Rate /= float64(max(1, rates))
	h.Prompts, h.Waiting = h.Prompts/float64(max(1, told)), h.Waiting/max(1, told)
	h.TransferRate = s.PrefillProfile.KV.TransferRate()
	h.Cached = cached * j.routed.BlockSize / max(1, workers)
	return h
}

// decide answers the engine of the decode worker, as worker/decode/disaggregate.go does.
func (j *job) decide(prompt, cached int, h protocol.PrefillHints) engine.Decision {
	s := j.s
	stats := j.worker.engine.Engine.Stats()
	share := float64(stats.KVUsed()) / float64(stats.KVTotal)
	state := router.PrefillState{PromptTokens: prompt, CachedTokens: cached, Decode: router.PrefillPlace{
		Uncached: prompt - cached, Waiting: stats.PrefillTokens, Prompts: float64(stats.Prefilling), Rate: stats.PrefillRate,
		KVTokens: stats.KVTotal * stats.BlockSize, KVShare: &share,
	}}
	limits := s.Disagg
	if s.Strategy == protocol.StrategyDecodeFirst {
		state.QueueDepth, state.PrefillWorkers = len(s.messages), s.ready(cluster.RolePrefill)
		each := float64(state.QueueDepth) / float64(max(1, state.PrefillWorkers))
		uncached := max(1, prompt-h.Cached)
		state.Prefill = router.PrefillPlace{Uncached: uncached, Waiting: h.Waiting + int(each*float64(uncached)), Prompts: h.Prompts + each, Rate: h.Rate}
		state.TransferRate, state.TransferOverlaps = h.TransferRate, true
	} else {
		state.PrefillWorkers, limits.MaxQueueDepth = 1, 1
		if limits.Conditional.ComparesSpeeds() {
			limits.MaxLocalTokens = min(limits.MaxLocalTokens, stats.BlockSize)
		}
	}
	remote, why := router.DecidePrefill(state, limits)
	j.why = why
	return engine.Decision{Remote: remote, Why: why}
}
