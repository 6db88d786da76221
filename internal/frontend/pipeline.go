package frontend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
)

// errRequestTimeout ends requests that run longer than the frontend allows.
var errRequestTimeout = errors.New("the request took longer than this server allows")

// attemptWait is how long a request whose worker was lost waits for another one.
const attemptWait = 15 * time.Second

// generation is one prompt on its way through the workers: the state that moves
// with it when a worker is lost.
type generation struct {
	f   *Frontend
	m   *servedModel
	req protocol.PreprocessedRequest
	// failed are workers that this request must avoid, with the reason.
	failed map[cluster.InstanceID]string
	moves  int // migrations so far
	met    *metrics.Request
	// decision is the last one announced.
	decision cluster.RouterDecision
}

func (f *Frontend) newGeneration(m *servedModel, req protocol.PreprocessedRequest, met *metrics.Request) *generation {
	return &generation{f: f, m: m, req: req, failed: map[cluster.InstanceID]string{}, met: met}
}

// run generates until the end and hands every output to emit, in order and
// exactly once, across as many workers as it takes. An error of emit ends it.
func (g *generation) run(ctx context.Context, emit func(protocol.EngineOutput) error) error {
	for {
		inst, release, err := g.choose(ctx)
		if err != nil {
			return err
		}
		err = g.attempt(ctx, inst, emit)
		release()
		if err == nil || ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		var stop *emitError
		if errors.As(err, &stop) {
			return stop.err
		}
		if !movable(err) {
			return err
		}
		g.failed[inst.InstanceID] = reason(err)
		if !requestplane.NotStarted(err) {
			if g.moves++; g.moves > g.f.cfg.MigrationLimit {
				return fmt.Errorf("moved %d times: %w", g.moves-1, err)
			}
			g.migrated(err)
		}
	}
}

// migrated counts a move to another worker.
func (g *generation) migrated(err error) {
	kind := metrics.MigrationNewRequest
	if g.req.Generated > 0 {
		kind = metrics.MigrationOngoingRequest
	}
	g.met.Migrated(kind)
	g.f.stats.migrated()
	g.f.log.Info("request moves to another worker", "request", g.req.RequestID, "generated", g.req.Generated, "cause", err)
}

// movable reports whether another worker may succeed where one failed.
func movable(err error) bool {
	var remote *requestplane.RemoteError
	return requestplane.NotStarted(err) || errors.Is(err, requestplane.ErrDisconnected) || errors.Is(err, requestplane.ErrOverloaded) ||
		(errors.As(err, &remote) && remote.Kind == requestplane.KindUnavailable)
}

// reason is the short form of why a worker is avoided, as decisions show it.
func reason(err error) string {
	switch {
	case errors.Is(err, requestplane.ErrOverloaded):
		return "overloaded"
	case errors.Is(err, requestplane.ErrDraining):
		return "draining"
	}
	return "lost"
}

// choose picks a worker and announces the decision. When all workers failed this
// request but for overload, it waits a while for another one.
func (g *generation) choose(ctx context.Context) (cluster.Instance, func(), error) {
	deadline := time.Now().Add(attemptWait)
	for {
		inst, release, err := g.pick(ctx)
		if err == nil || len(g.failed) == 0 {
			return inst, release, err
		}
		for _, why := range g.failed {
			if why == "overloaded" {
				return inst, release, requestplane.ErrOverloaded
			}
		}
		if !time.Now().Before(deadline) {
			return inst, release, fmt.Errorf("%w: none came back in %s", err, attemptWait)
		}
		wait, cancel := context.WithTimeout(ctx, 250*time.Millisecond)
		_ = g.f.workers.Wait(wait, 1) // then look again
		<-wait.Done()
		cancel()
		if ctx.Err() != nil {
			return inst, release, context.Cause(ctx)
		}
		// A worker that is back in discovery has a new id or deserves another try.
		for id, why := range g.failed {
			if why == "lost" {
				delete(g.failed, id)
			}
		}
	}
}

func (g *generation) pick(ctx context.Context) (cluster.Instance, func(), error) {
	begin := time.Now()
	instances := map[cluster.InstanceID]cluster.Instance{}
	var candidates []router.Candidate
	for _, inst := range g.f.workers.Instances() {
		if !g.m.workers[inst.InstanceID] {
			continue
		}
		instances[inst.InstanceID] = inst
		candidates = append(candidates, router.Candidate{ID: inst.InstanceID, Worker: inst.Worker, Excluded: g.failed[inst.InstanceID]})
	}
	r := router.Request{ID: g.req.RequestID, PromptTokens: len(g.req.TokenIDs)}
	d, release, err := g.f.load.Choose(candidates, func(c []router.Candidate) (router.Decision, error) {
		return g.f.policy.Pick(r, c)
	})
	g.decision = cluster.RouterDecision{
		RequestID: g.req.RequestID, Time: begin, Model: g.m.name, Phase: cluster.RoleDecode, Policy: d.Policy,
		Chosen: d.Chosen.Worker, PromptToks: len(g.req.TokenIDs), Blocks: len(g.req.TokenIDs) / g.m.card.BlockSize,
		DecidedNS: int64(time.Since(begin)), Candidates: d.Candidates,
	}
	g.f.announce(ctx, g.decision)
	return instances[d.Chosen.ID], release, err
}

// emitError marks an error that came from the client's side.
type emitError struct{ err error }

func (e *emitError) Error() string { return e.err.Error() }

// attempt runs the request on one worker and keeps what it generated, so that
// another worker could go on from there.
func (g *generation) attempt(ctx context.Context, inst cluster.Instance, emit func(protocol.EngineOutput) error) error {
	stream, err := g.f.workers.Call(ctx, inst, g.req.RequestID, nil, g.req)
	if err != nil {
		return err
	}
	defer stream.Close()
	var out protocol.EngineOutput
	for {
		if err := stream.Recv(ctx, &out); err != nil {
			if errors.Is(err, io.EOF) {
				return requestplane.ErrIncomplete // ended without a finish reason
			}
			return err
		}
		g.req.TokenIDs = append(g.req.TokenIDs, out.TokenIDs...)
		g.req.Generated += len(out.TokenIDs)
		g.req.Stop.MaxTokens -= len(out.TokenIDs)
		g.req.Stop.MinTokens = max(g.req.Stop.MinTokens-len(out.TokenIDs), 0)
		if out.Timing != nil {
			g.located(ctx, out.Timing)
		}
		if err := emit(out); err != nil {
			return &emitError{err}
		}
		if out.Finish != protocol.FinishNone {
			return nil
		}
	}
}

// located completes the announced decision with where the prompt was computed.
func (g *generation) located(ctx context.Context, t *protocol.Timing) {
	g.decision.Prefill, g.decision.PrefillWhy = t.Prefill, t.PrefillWhy
	g.decision.Overlap = t.CachedTokens / g.m.card.BlockSize
	g.f.announce(ctx, g.decision)
}
