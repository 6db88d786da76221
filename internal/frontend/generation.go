package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
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

	only        pinned
	constraints router.Constraints
	session     string           // its id, "" for none
	held        bool             // by the last choice: the session allows only its worker
	at          cluster.Instance // the worker of the last attempt
	timing      protocol.Timing  // of the first output
	counts      *prefillCount    // of the prefill server of this attempt's answer; nil without one
	pulled      protocol.Timing  // of the prefill worker whose KV is pulled; zero without one
	decodeNS    int64            // of all workers that told it
	handovers   int              // of the sequence, with its KV

	chain blockhash.Chain // of the tokens
	found *held           // what caches hold of them, for what is decided now; nil if not looked up

	routing routeAsk // as the headers of the request want it
	told    toldRoute

	// flush is called before the generation waits, whoever for; output that is there
	// already is emitted first. nil for nothing.
	flush func() error

	strategy string    // of disaggregation, as it was when the request began
	hop      *firstHop // nil unless a prefill worker keeps something for the request
	// failedPrefills holds the prefill workers that failed the request beside a decode worker,
	// and why.
	failedPrefills map[cluster.InstanceID]string
	hops           int // begun so far
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
	// Of workers with engines that others wrote.
	whyOtherKV      = "takes no KV of the prefill worker"
	whyNeedsPrefill = "computes no prompts"
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
	defer g.endCounts()
	for {
		if g.req.Stop.MaxTokens <= 0 && g.req.Output.PromptLogprobs == nil && g.req.Body == nil {
			// The worker was lost after the last token but before the finish reason, or
			// only the prompt was asked for.
			return emit(protocol.EngineOutput{Finish: protocol.FinishLength})
		}
		if g.flush != nil {
			if err := g.flush(); err != nil {
				return err
			}
		}
		if err := g.refuse(ctx); err != nil {
			return err
		}
		if err := g.disaggregate(ctx); err != nil {
			return err
		}
		if g.hop != nil && g.hop.answer != nil {
			return g.passOn(ctx, emit)
		}
		leave := g.f.metrics.EnterStage(metrics.StageRoute)
		begin := time.Now()
		inst, flight, err := g.choose(ctx)
		leave(time.Since(begin))
		if err != nil && g.stranded() && ctx.Err() == nil {
			continue // without the KV, others may do
		}
		if err != nil {
			return err
		}
		hop := g.hop
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
		if g.req.Body != nil && progress {
			return fmt.Errorf("%w: what its server has answered so far cannot be continued elsewhere: %w", errLost, err)
		}
		if errors.Is(err, errFirstLeg) {
			if err := g.failedBeside(hop, err); err != nil {
				return err
			}
			continue
		}
		if _, refused := verdict(err, progress); !refused || g.hop != nil && g.hop.rt.Backend != "" {
			// KV prepared for the lost worker is useless to another, and a server that has
			// refused may have been in the room.
			g.endHop()
		}
		if err := g.failedOn(inst, err, progress); err != nil {
			return err
		}
	}
}

// errFirstLeg ends an attempt of a decode worker whose prefill worker has failed meanwhile.
var errFirstLeg = errors.New("the prefill beside it failed")

// failedBeside decides what follows from the failure of a prefill that ran beside its decode
// worker: another prefill worker, in another room, or none.
// The decode worker may have begun all the same: hop is what it had then.
func (g *generation) failedBeside(hop *firstHop, err error) error {
	if g.failedPrefills == nil {
		g.failedPrefills = map[cluster.InstanceID]string{}
	}
	g.failedPrefills[hop.id] = router.WhyPrefillFailed
	g.f.log.Info("prefill worker failed a request beside its decode worker", "request", g.id, "worker", hop.decision.Chosen, "error", err)
	g.endHop()
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
	return nil
}

// passOn passes on the answer of a prefill worker that was the whole answer.
func (g *generation) passOn(ctx context.Context, emit func(protocol.EngineOutput) error) error {
	for _, out := range g.hop.answer {
		g.req.Advance(out.TokenIDs)
		if out.Timing != nil {
			g.timing = *out.Timing
		}
		if err := emit(out); err != nil {
			return err
		}
	}
	return context.Cause(ctx)
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

// emitError marks an error on the client's side.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// attempt runs the request on one worker and keeps its output, so that another worker can
// continue. progress reports whether the attempt gave output. After nil the generation is
// complete, or g.moved names the worker that continues.
func (g *generation) attempt(ctx context.Context, inst cluster.Instance, flight *router.Flight, emit func(protocol.EngineOutput) error) (progress bool, err error) {
	defer flight.End()
	g.endCounts()
	g.attempts++
	g.began, g.at = time.Now(), inst
	leave := g.f.metrics.EnterStage(metrics.StageDispatch)
	ctx, beside := g.besideHop(ctx)
	defer beside()
	req := g.req
	if g.moved != nil {
		req.Handover, g.moved = g.moved.Handover, nil
	}
	stream, err := g.f.workers.Call(ctx, inst, req.RequestID, nil, req)
	leave(time.Since(g.began))
	if err != nil {
		return false, besideError(ctx, err)
	}
	defer stream.Close()
	var out protocol.EngineOutput
	begun := len(g.req.TokenIDs) / g.m.card.BlockSize
	blocks := begun
	for {
		if err := stream.Recv(ctx, &out); err != nil {
			if errors.Is(err, io.EOF) {
				err = requestplane.ErrIncomplete // the stream ended without a finish reason
			}
			return progress, besideError(ctx, err)
		}
		if out.Finish == protocol.FinishCancelled {
			return progress, fmt.Errorf("cancelled by %s: %w", inst.Worker, requestplane.ErrIncomplete)
		}
		if !progress {
			flight.Prefilled()
			progress, g.failed, g.stuck = true, nil, time.Time{}
		}
		g.req.Advance(out.TokenIDs)
		if full := len(g.req.TokenIDs) / g.m.card.BlockSize; full > blocks {
			flight.Grow(full - begun)
			blocks = full
		}
		if out.PromptLogprobs != nil {
			g.req.Output.PromptLogprobs = nil // reported once, whatever follows
		}
		if out.Timing != nil {
			g.located(ctx, out.Timing)
			beside()
			g.arrived(out.Timing) // the KV has arrived or is not wanted
		}
		if g.counts != nil {
			g.counts.correct(ctx, &out)
		} else if out.Usage != nil && g.timing.CacheUnknown {
			g.foundCached(ctx, out.Usage.CachedTokens) // it is told at the end
		}
		g.decoded(ctx, out.DecodeNS)
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
			return progress, fmt.Errorf("%s moved the request but named no worker: %w", inst.Worker, requestplane.ErrIncomplete)
		case left:
			return progress, nil
		}
		if out.Finish != protocol.FinishNone {
			return progress, nil
		}
		if g.flush != nil && !stream.Pending() {
			if err := g.flush(); err != nil {
				return progress, &emitError{err}
			}
		}
	}
}
