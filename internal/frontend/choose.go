package frontend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// choose picks a worker and announces the decision. If no worker has failed the request
// yet, choose returns at once. Otherwise it waits up to limits.takeover for another
// worker. If all workers are overloaded and nothing is generated yet, it returns
// ErrOverloaded so that the client retries later.
func (g *generation) choose(ctx context.Context) (inst cluster.Instance, flight *router.Flight, err error) {
	var last bool // nobody is awaited any more: who was may be there now
	for begin := time.Now(); ; {
		inst, flight, err = g.pick()
		now := time.Now()
		if errors.Is(err, router.ErrNoWorkers) && g.stranded() {
			return inst, flight, err
		}
		if errors.Is(err, router.ErrNoWorkers) && g.stuck.IsZero() && !last {
			last = now.Sub(begin) >= g.patience()
			select {
			case <-time.After(g.f.limits.poll):
				continue
			case <-ctx.Done():
				return inst, flight, context.Cause(ctx)
			}
		}
		switch {
		case g.stuck.IsZero(), errors.Is(err, router.ErrAllBusy), err == nil && now.Sub(g.stuck) < g.f.limits.takeover:
		case g.overloaded() && g.req.Generated == 0:
			err = requestplane.ErrOverloaded
		case now.Sub(g.stuck) >= g.f.limits.takeover:
			flight.End()
			err = fmt.Errorf("%w: none took over within %s (%w)", errLost, g.f.limits.takeover, cmp.Or(err, errRefused))
		default:
			g.forgive(now)
			select {
			case <-time.After(g.f.limits.poll):
				continue
			case <-ctx.Done():
				return inst, flight, context.Cause(ctx)
			}
		}
		g.announce(ctx)
		return inst, flight, err
	}
}

// stranded reports that no decode worker is left that can take the KV of the prefill worker.
func (g *generation) stranded() bool { return g.hop != nil && !g.hasPeer(g.hop.rt) }

func (g *generation) overloaded() bool {
	for _, f := range g.failed {
		if f.why == whyOverloaded {
			return true
		}
	}
	return false
}

// patience returns how long a request waits while no worker of its model can be called.
func (g *generation) patience() time.Duration {
	switch {
	case g.f.awaited(g.m):
		return g.f.limits.card
	case g.f.registry.declares(g.m.declared()):
		return g.f.limits.successor
	}
	return 0
}

// awaited reports whether a decode worker is registered that m may be able to use soon:
// its model card has not come yet, or it is in quarantine. When the store has lost its data,
// a worker registers again, its endpoint before its card. From then on its former
// registration is not used, and who calls it puts it in quarantine.
func (f *Frontend) awaited(m *servedModel) bool {
	carded, routable := *f.registry.carded.Load(), f.workers.Instances()
	return slices.ContainsFunc(f.workers.All(), func(i cluster.Instance) bool {
		if !carded[i.InstanceID] {
			return true
		}
		_, callable := slices.BinarySearchFunc(routable, i.InstanceID, func(i cluster.Instance, id cluster.InstanceID) int { return cmp.Compare(i.InstanceID, id) })
		return m.has(i.InstanceID) && !callable
	})
}

// forgive makes workers eligible again that failed the request limits.forgive ago. It is
// called only when there are no others.
func (g *generation) forgive(now time.Time) {
	for id, f := range g.failed {
		if now.Sub(f.at) >= g.f.limits.forgive {
			delete(g.failed, id)
		}
	}
}

// current adds workers of the model that came later, so that they can take over.
func (g *generation) current() {
	if m := g.f.registry.find(g.m.name); m != nil && m.card.Digest == g.m.card.Digest {
		g.m = m
	}
}

// attemptID returns the id of an attempt. Each attempt needs its own, because a worker
// may still run an earlier one.
func attemptID(id string, attempts int) string {
	if attempts == 0 {
		return id
	}
	return id + "~" + strconv.Itoa(attempts)
}

// pick lets the router choose among the current workers of the model. The caller must
// end the flight when the request has left the worker.
func (g *generation) pick() (inst cluster.Instance, flight *router.Flight, err error) {
	begin := time.Now()
	list := g.f.candidates.take()
	defer g.f.candidates.give(list)
	instances, r, v, reusable := g.view(list)
	g.found = nil // caches may change before the next decision
	d, flight, err := g.f.load.Choose(r, v, g.policy().Pick)
	g.decided(d, r, reusable, begin)
	if err == nil {
		if g.hop != nil {
			flight.Prefilled() // a prefill worker computes the prompt
		}
		g.f.caches.routed(d.Chosen.ID, r.Hashes)
		g.noteSession(d.Chosen.ID)
		at, _ := slices.BinarySearchFunc(instances, d.Chosen.ID, func(i cluster.Instance, id cluster.InstanceID) int { return cmp.Compare(i.InstanceID, id) })
		inst = instances[at] // the candidates come from there
	}
	return inst, flight, g.named(err)
}

// view describes the request and the workers that could take it to the router, in the memory
// of list. It also returns the number of leading blocks of the prompt that at least one worker
// holds.
func (g *generation) view(list *[]router.Candidate) (instances []cluster.Instance, r router.Request, v router.View, reusable int) {
	g.current()
	instances = g.f.workers.Instances()
	*list = g.appendDecode(*list, instances)
	v = router.View{Candidates: *list}
	if g.req.Generated == 0 && g.moved == nil { // what has begun goes on, however busy the workers are
		v.Limits = g.f.cfg.Settings().Busy
	}
	r = g.routed()
	g.keepSession(&r, v.Candidates)
	has := g.lookup(r)
	g.f.caches.describe(v.Candidates, has)
	return instances, r, v, has.most
}

// lookup returns what the caches hold of the prompt. All that is decided at one time is
// decided by the same lookup.
func (g *generation) lookup(r router.Request) held {
	if g.found == nil {
		g.found = new(g.f.caches.lookup(r.Hashes))
	}
	return *g.found
}

// appendDecode appends the instances that can decode for the model: the one that the sequence
// has moved to, or all.
func (g *generation) appendDecode(to []router.Candidate, instances []cluster.Instance) []router.Candidate {
	if followed := g.followed(instances); len(followed) > 0 {
		return append(to, followed...)
	}
	for i := range instances {
		inst := &instances[i]
		if rt, ok := g.m.workers[inst.InstanceID]; ok {
			why := g.failed[inst.InstanceID].why
			if g.hop != nil && why == "" && !exchanges(g.hop.rt, rt) {
				why = whyOtherKV
			}
			if g.hop == nil && why == "" && rt.NeedsPrefill {
				why = whyNeedsPrefill
			}
			to = append(to, g.candidate(inst, rt, g.only.decode, why))
		}
	}
	return to
}

// candidateLists keeps memory for the candidates of decisions.
type candidateLists struct{ pool sync.Pool }

func (c *candidateLists) take() *[]router.Candidate {
	if list, ok := c.pool.Get().(*[]router.Candidate); ok {
		return list
	}
	return new([]router.Candidate)
}

func (c *candidateLists) give(list *[]router.Candidate) {
	*list = (*list)[:0]
	c.pool.Put(list)
}

// decided keeps a decision, to be announced.
func (g *generation) decided(d router.Decision, r router.Request, reusable int, begin time.Time) {
	g.req.RequestID = attemptID(g.id, g.attempts)
	g.decision = cluster.RouterDecision{
		RequestID: g.req.RequestID, Time: begin, Model: g.m.name, Phase: cluster.RoleDecode, Policy: d.Policy,
		Chosen: d.Chosen.Worker, Weighed: d.Weighed, PromptToks: g.req.PromptTokens(), Blocks: len(g.req.TokenIDs) / g.m.card.BlockSize,
		Predicted: predicted(d.Chosen, r), Reusable: new(findable(reusable, r)), DecidedNS: int64(time.Since(begin)), Candidates: d.Candidates,
	}
}

// routed describes the request to the router.
func (g *generation) routed() router.Request {
	if card := &g.m.card; g.chain.BlockSize != card.BlockSize || g.chain.Seed != card.HashSeed {
		g.chain = blockhash.Chain{BlockSize: card.BlockSize, Seed: card.HashSeed, Media: protocol.Spans(g.req.Media)}
	}
	g.chain.Extend(g.req.TokenIDs)
	return router.Request{ID: g.id, PromptTokens: g.req.PromptTokens(), BlockSize: g.m.card.BlockSize, Hashes: g.chain.Seq}
}

// predicted returns how many blocks a worker should find in its cache.
func predicted(c router.Candidate, r router.Request) int { return findable(c.Overlap.Blocks(), r) }

// findable returns how many of the held leading blocks of a prompt a worker can find. It
// computes at least the last token of a prompt.
func findable(held int, r router.Request) int {
	return max(0, min(held, (r.PromptTokens-1)/r.BlockSize))
}

// followed returns the worker to which the sequence has moved, if it still exists. Any
// other worker would have to compute the sequence again.
func (g *generation) followed(instances []cluster.Instance) []router.Candidate {
	if g.moved == nil {
		return nil
	}
	for _, i := range instances {
		if i.InstanceID == g.moved.InstanceID {
			return []router.Candidate{{ID: i.InstanceID, Worker: i.Worker}}
		}
	}
	g.f.log.Info("a sequence was moved to a worker that has stopped", "request", g.id, "to", g.moved.Worker)
	g.moved = nil
	if g.stuck.IsZero() {
		g.stuck = time.Now() // as after a loss: other workers may come
	}
	return nil
}

// located adds to the announced decision where the prompt was computed.
func (g *generation) located(ctx context.Context, t *protocol.Timing) {
	all := *t
	if all.Encoded.Parts == 0 {
		all.Encoded = g.pulled.Encoded
	}
	if t.PrefillWay == protocol.WayPull {
		all.ComputeNS = g.pulled.PrefillNS
	}
	if g.timing.Worker == "" {
		g.timing = all // later timings belong to a migration
	}
	g.decision.Prefill, g.decision.PrefillWhy, g.decision.PrefillWay = t.Prefill, t.PrefillWhy, string(t.PrefillWay)
	g.decision.QueueNS, g.decision.PrefillNS, g.decision.ComputeNS, g.decision.Images, g.decision.KV = t.QueueNS, t.PrefillNS, all.ComputeNS, nil, nil
	if kv := t.KV; kv != (protocol.KVMoved{}) {
		g.decision.KV = &cluster.RoutedKV{NS: kv.NS, ExposedNS: kv.ExposedNS, Bytes: kv.Bytes, Transport: kv.Transport}
	}
	if e := all.Encoded; e.Parts > 0 {
		g.decision.Images = &cluster.RoutedImages{Count: e.Parts, Cached: e.Cached, EncodeNS: e.NS, MoveNS: e.MoveNS, Bytes: e.Bytes, By: e.By, Chosen: e.Chosen}
	}
	g.decision.Overlap, g.decision.OverlapUnknown = t.CachedTokens/g.m.card.BlockSize, t.CacheUnknown
	if t.CacheUnknown {
		g.announce(ctx)
		return
	}
	g.foundCached(ctx, t.CachedTokens)
}

// foundCached records what the worker has found of the prompt in its cache.
func (g *generation) foundCached(ctx context.Context, tokens int) {
	g.decision.Overlap, g.decision.OverlapUnknown = tokens/g.m.card.BlockSize, false
	reusable := max(*g.decision.Reusable, g.decision.Overlap) // others may have come since
	g.decision.Reusable = &reusable
	g.f.caches.found(g.at.InstanceID, g.decision.Predicted, reusable, g.decision.Overlap)
	g.announce(ctx)
}

// decoded adds to the announced decision how long the worker decoded, if it says so.
func (g *generation) decoded(ctx context.Context, ns int64) {
	if ns <= 0 {
		return
	}
	g.decodeNS += ns
	g.decision.DecodeNS = ns
	g.announce(ctx)
}

// announce makes the last decision known.
func (g *generation) announce(ctx context.Context) {
	if g.routing.tell {
		g.told.set(g.decision)
	}
	g.f.announceDecision(ctx, g.decision)
}
