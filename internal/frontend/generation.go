package frontend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/blockhash"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
)

// generation is the state of one prompt at the workers. It moves to another worker,
// together with the output so far, when a worker is lost.
type generation struct {
	f   *Frontend
	m   *servedModel // as of the start
	met *metrics.Request
	id  string // of the request and choice; each attempt has its own
	req protocol.PreprocessedRequest

	attempts int          // begun so far
	began    time.Time    // the last of them
	moves    atomic.Int32 // migrations among them
	// failed holds the workers that failed this request since its last output. stuck is
	// the time since which the request looks for another worker; zero if none has failed.
	failed map[cluster.InstanceID]failure
	stuck  time.Time
	// moved is the worker to which the last attempt handed the sequence over; nil after
	// the next attempt begins.
	moved *protocol.Moved
	// decision is the last announced decision.
	decision cluster.RouterDecision

	only      pinned
	session   string           // its id, "" for none
	held      bool             // by the last choice: the session allows only its worker
	at        cluster.Instance // the worker of the last attempt
	timing    protocol.Timing  // of the first output
	handovers int              // of the sequence, with its KV

	chain blockhash.Chain // of the tokens

	routing routeAsk // as the headers of the request want it
	told    toldRoute

	strategy string    // of disaggregation, as it was when the request began
	hop      *firstHop // nil unless a prefill worker keeps something for the request
	hops     int       // begun so far
}

// failure records why and when a worker failed a request.
type failure struct {
	why string // in the words of decisions
	at  time.Time
}

// Reasons why a request avoids a worker.
const (
	whyOverloaded  = "overloaded"
	whyDraining    = "draining"
	whyUnreachable = "unreachable"
	whyStopping    = "stopping"
	whyLost        = "lost"
)

// errLost is returned when a worker was lost and no other could take over.
var errLost = errors.New("worker lost")

// errRefused is returned when workers kept refusing a request.
var errRefused = errors.New("all refused")

func (f *Frontend) newGeneration(m *servedModel, req protocol.PreprocessedRequest, met *metrics.Request) *generation {
	return &generation{f: f, m: m, req: req, met: met, strategy: f.cfg.Settings().Strategy}
}

// run generates until the end, across as many workers as needed. It passes every output
// to emit, in order and exactly once. An error of emit ends it.
func (g *generation) run(ctx context.Context, emit func(protocol.EngineOutput) error) error {
	defer g.endHop()
	for {
		if g.req.Stop.MaxTokens <= 0 && g.req.Output.PromptLogprobs == nil {
			// The worker was lost after the last token but before the finish reason, or
			// only the prompt was asked for.
			return emit(protocol.EngineOutput{Finish: protocol.FinishLength})
		}
		if err := g.refuse(ctx); err != nil {
			return err
		}
		if err := g.disaggregate(ctx); err != nil {
			return err
		}
		leave := g.f.metrics.EnterStage(metrics.StageRoute)
		begin := time.Now()
		inst, flight, err := g.choose(ctx)
		leave(time.Since(begin))
		if err != nil {
			return err
		}
		progress, err := g.attempt(ctx, inst, flight, emit)
		var stop *emitError
		switch {
		case err == nil && g.moved != nil:
			g.f.log.Debug("request follows its sequence", "request", g.id, "from", inst.Worker, "to", g.moved.Worker, "generated", g.req.Generated)
			continue
		case err == nil:
			return nil
		case errors.As(err, &stop):
			return stop.err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		}
		if _, refused := verdict(err, progress); !refused {
			g.endHop() // KV prepared for the lost worker is useless to another
		}
		if err := g.failedOn(inst, err, progress); err != nil {
			return err
		}
	}
}

// failedOn decides what follows from the failure of an attempt. It returns nil to
// continue on another worker, or the error that ends the request. progress reports that
// the attempt gave output.
func (g *generation) failedOn(inst cluster.Instance, err error, progress bool) error {
	why, refused := verdict(err, progress)
	if why == "" {
		return err
	}
	now := time.Now()
	if g.failed == nil {
		g.failed = map[cluster.InstanceID]failure{}
	}
	g.failed[inst.InstanceID] = failure{why, now}
	g.leaveSession(inst.InstanceID, why)
	// A stopping worker may refuse a request that waited long in its queue. The search
	// for another worker begins only then.
	if g.stuck.IsZero() || !refused || why == whyStopping && now.Sub(g.began) >= g.f.limits.forgive {
		g.stuck = now
	}
	if refused {
		g.f.log.Debug("worker refused a request", "request", g.id, "worker", inst.Worker, "reason", why, "error", err)
		return nil
	}
	if int(g.moves.Load()) >= g.f.cfg.MigrationLimit {
		return fmt.Errorf("%w after %d moves: %w", errLost, g.moves.Load(), err)
	}
	g.moves.Add(1)
	kind := metrics.MigrationNewRequest
	if g.req.Generated > 0 {
		kind = metrics.MigrationOngoingRequest
	}
	g.met.Migrated(kind)
	g.f.stats.migrated()
	g.f.log.Info("request moves to another worker", "request", g.id, "from", inst.Worker, "generated", g.req.Generated, "cause", err)
	return nil
}

// verdict returns why another worker may succeed where one failed, or "" if none can.
// refused reports that the worker never began; a retry then does not count as a
// migration.
func verdict(err error, progress bool) (why string, refused bool) {
	var remote *requestplane.RemoteError
	switch {
	case errors.Is(err, requestplane.ErrOverloaded):
		return whyOverloaded, true
	case errors.Is(err, requestplane.ErrDraining):
		return whyDraining, true
	case requestplane.NotStarted(err), errors.Is(err, runtime.ErrNoTransport):
		return whyUnreachable, true
	case errors.As(err, &remote) && remote.Kind == requestplane.KindUnavailable:
		return whyStopping, !progress
	case errors.Is(err, requestplane.ErrDisconnected), errors.As(err, &remote) && remote.Kind == requestplane.KindCancelled:
		return whyLost, false // cancelled, but not by us
	}
	return "", false
}

// choose picks a worker and announces the decision. If no worker has failed the request
// yet, choose returns at once. Otherwise it waits up to limits.takeover for another
// worker. If all workers are overloaded and nothing is generated yet, it returns
// ErrOverloaded so that the client retries later.
func (g *generation) choose(ctx context.Context) (inst cluster.Instance, flight *router.Flight, err error) {
	for {
		inst, flight, err = g.pick()
		now := time.Now()
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

func (g *generation) overloaded() bool {
	for _, f := range g.failed {
		if f.why == whyOverloaded {
			return true
		}
	}
	return false
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
	instances, r, v, reusable := g.view()
	d, flight, err := g.f.load.Choose(r, v, g.policy().Pick)
	g.decided(d, r, reusable, begin)
	if err == nil {
		if g.hop != nil {
			flight.Prefilled() // a prefill worker computes the prompt
		}
		g.f.caches.routed(d.Chosen.ID, r.Hashes)
		g.noteSession(d.Chosen.ID)
		at := slices.IndexFunc(instances, func(i cluster.Instance) bool { return i.InstanceID == d.Chosen.ID })
		inst = instances[at] // the candidates come from there
	}
	return inst, flight, g.named(err)
}

// view describes the request and the workers that could take it to the router. It also
// returns the number of leading blocks of the prompt that at least one worker holds.
func (g *generation) view() (instances []cluster.Instance, r router.Request, v router.View, reusable int) {
	g.current()
	instances = g.f.workers.Instances()
	v = router.View{Candidates: g.decodeCandidates(instances)}
	if g.req.Generated == 0 && g.moved == nil { // what has begun goes on, however busy the workers are
		v.Limits = g.f.cfg.Settings().Busy
	}
	r = g.routed()
	g.keepSession(&r, v.Candidates)
	return instances, r, v, g.f.caches.describe(v.Candidates, r.Hashes)
}

// decodeCandidates returns the instances that can decode for the model: the one that the
// sequence has moved to, or all.
func (g *generation) decodeCandidates(instances []cluster.Instance) []router.Candidate {
	candidates := g.followed(instances)
	if len(candidates) == 0 {
		for _, i := range instances {
			if rt, ok := g.m.workers[i.InstanceID]; ok {
				candidates = append(candidates, router.Candidate{
					ID: i.InstanceID, Worker: i.Worker, Excluded: exclusion(g.only.decode, i.InstanceID, g.failed[i.InstanceID].why), MaxBatchTokens: rt.MaxBatchTokens,
				})
			}
		}
	}
	return candidates
}

// decided keeps a decision, to be announced.
func (g *generation) decided(d router.Decision, r router.Request, reusable int, begin time.Time) {
	g.req.RequestID = attemptID(g.id, g.attempts)
	g.decision = cluster.RouterDecision{
		RequestID: g.req.RequestID, Time: begin, Model: g.m.name, Phase: cluster.RoleDecode, Policy: d.Policy,
		Chosen: d.Chosen.Worker, Weighed: d.Weighed, PromptToks: len(g.req.TokenIDs), Blocks: len(g.req.TokenIDs) / g.m.card.BlockSize,
		Predicted: predicted(d.Chosen, r), Reusable: new(findable(reusable, r)), DecidedNS: int64(time.Since(begin)), Candidates: d.Candidates[:min(len(d.Candidates), maxCandidates)],
	}
}

// routed describes the request to the router.
func (g *generation) routed() router.Request {
	if card := &g.m.card; g.chain.BlockSize != card.BlockSize || g.chain.Seed != card.HashSeed {
		g.chain = blockhash.Chain{BlockSize: card.BlockSize, Seed: card.HashSeed}
	}
	g.chain.Extend(g.req.TokenIDs)
	return router.Request{ID: g.id, PromptTokens: len(g.req.TokenIDs), BlockSize: g.m.card.BlockSize, Hashes: g.chain.Seq}
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
	g.f.log.Info("a sequence moved to a worker that is gone", "request", g.id, "to", g.moved.Worker)
	g.moved = nil
	if g.stuck.IsZero() {
		g.stuck = time.Now() // as after a loss: other workers may come
	}
	return nil
}

// maxCandidates bounds the candidates in an announced decision. In a large cluster they
// would flood the event plane.
const maxCandidates = 16

// emitError marks an error on the client's side.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// attempt runs the request on one worker and keeps its output, so that another worker can
// continue. progress reports whether the attempt gave output. After nil the generation is
// complete, or g.moved names the worker that continues.
func (g *generation) attempt(ctx context.Context, inst cluster.Instance, flight *router.Flight, emit func(protocol.EngineOutput) error) (progress bool, err error) {
	defer flight.End()
	g.attempts++
	g.began, g.at = time.Now(), inst
	leave := g.f.metrics.EnterStage(metrics.StageDispatch)
	req := g.req
	if g.moved != nil {
		req.Handover, g.moved = g.moved.Handover, nil
	}
	stream, err := g.f.workers.Call(ctx, inst, req.RequestID, nil, req)
	leave(time.Since(g.began))
	if err != nil {
		return false, err
	}
	defer stream.Close()
	var out protocol.EngineOutput
	for {
		if err := stream.Recv(ctx, &out); err != nil {
			if errors.Is(err, io.EOF) {
				err = requestplane.ErrIncomplete // the stream ended without a finish reason
			}
			return progress, err
		}
		if out.Finish == protocol.FinishCancelled {
			return progress, fmt.Errorf("cancelled by %s: %w", inst.Worker, requestplane.ErrIncomplete)
		}
		if !progress {
			flight.Prefilled()
			progress, g.failed, g.stuck = true, nil, time.Time{}
		}
		g.req.Advance(out.TokenIDs)
		if out.PromptLogprobs != nil {
			g.req.Output.PromptLogprobs = nil // reported once, whatever follows
		}
		if out.Timing != nil {
			g.located(ctx, out.Timing)
			g.endHop() // the KV has arrived or is not wanted
		}
		left := out.Finish == protocol.FinishMoved
		if left {
			g.moved = out.Moved
			g.handovers++
			out.Finish, out.Moved = protocol.FinishNone, nil
		}
		if err := emit(out); err != nil {
			return progress, &emitError{err}
		}
		switch {
		case left && g.moved == nil:
			return progress, fmt.Errorf("moved by %s to nowhere: %w", inst.Worker, requestplane.ErrIncomplete)
		case left:
			return progress, nil
		}
		if out.Finish != protocol.FinishNone {
			return progress, nil
		}
	}
}

// located adds to the announced decision where the prompt was computed.
func (g *generation) located(ctx context.Context, t *protocol.Timing) {
	if g.timing.Worker == "" {
		g.timing = *t // later timings belong to a migration
	}
	g.decision.Prefill, g.decision.PrefillWhy, g.decision.PrefillWay = t.Prefill, t.PrefillWhy, string(t.PrefillWay)
	g.decision.Overlap = t.CachedTokens / g.m.card.BlockSize
	reusable := max(*g.decision.Reusable, g.decision.Overlap) // others may have come since
	g.decision.Reusable = &reusable
	g.f.caches.found(g.at.InstanceID, g.decision.Predicted, reusable, g.decision.Overlap)
	g.announce(ctx)
}

// announce makes the last decision known.
func (g *generation) announce(ctx context.Context) {
	if g.routing.tell {
		g.told.set(g.decision)
	}
	g.f.announceDecision(ctx, g.decision)
}
