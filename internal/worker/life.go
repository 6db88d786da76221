package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/undo"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Run loads the model, serves until ctx ends, the engine breaks or a drain is
// complete, and releases everything. It returns ErrDrained after a drain and the
// cause of ctx, or the failure, otherwise.
func (w *Worker) Run(ctx context.Context) (err error) {
	var back undo.Stack
	defer func() { back.Run(stopTimeout, w.log) }()

	t, err := w.newTerm(ctx, w.Role())
	if err != nil {
		return err
	}
	back.Push("leave the cluster", func(ctx context.Context) error {
		if w.cfg.LastWord != nil {
			w.cfg.LastWord(ctx, err)
		}
		return w.term.Load().drt.Close(ctx)
	})
	w.term.Store(t)
	back.Push("remove the metrics", func(context.Context) error { w.meters.close(); return nil })

	// Publishing ends before the lease goes.
	status := ondemand.New(context.WithoutCancel(ctx), w.publishStatus)
	back.Push("stop publishing", func(ctx context.Context) error {
		status.Close()
		w.events.publishing.Close()
		w.encodings.publishing.Close()
		w.publishEncodings(ctx) // the last ones
		return nil
	})
	w.board.publish(status)

	c, err := w.load(ctx, &back)
	if err != nil {
		return err
	}
	w.core.Store(&loadedCore{c})
	// The metadata is there before anyone can learn the agent's name.
	if err := t.publishMetadata(ctx, c); err != nil {
		return err
	}
	return w.serve(ctx, c)
}

// load loads what computes. What it has begun is released by back.
func (w *Worker) load(ctx context.Context, back *undo.Stack) (core, error) {
	w.setState(cluster.StateLoading, "")
	begin := time.Now()
	loaded, err := w.cfg.Load(ctx, func(p float64) {
		w.board.update(func(st *cluster.WorkerStatus) { st.Progress = p })
	})
	if err != nil {
		return nil, fmt.Errorf("load model: %w", err)
	}
	w.board.update(func(st *cluster.WorkerStatus) { st.Weights = loaded.Card.Weights })
	w.log.Info("model is loaded", "model", loaded.Card.DisplayName, "weights", loaded.Card.Weights, "digest", role.ShortDigest(loaded.Card.Digest))
	w.meters.now().ModelLoadTime.Set(time.Since(begin).Seconds())
	if loaded.Server != nil {
		return w.newOutside(loaded, back), nil
	}
	return w.newBuiltin(ctx, loaded, back)
}

// serve runs the engine and everything around it, in one role after the other.
func (w *Worker) serve(ctx context.Context, c core) error {
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	g, running := errgroup.WithContext(running)
	engineCtx, stopEngine := context.WithCancelCause(context.WithoutCancel(ctx))
	g.Go(func() error { return engineEnded(running, c.run(engineCtx)) })
	err := w.terms(running, c)
	w.log.Info("stopping", "cause", err)
	// First nobody finds us, then nobody reaches us, then the engine ends what is
	// left (its callers are told to go elsewhere), then the rest stops.
	t := w.term.Load()
	t.leave(context.WithoutCancel(ctx))
	stopEngine(err)
	stop(err)
	t.close(context.WithoutCancel(ctx))
	if gerr := g.Wait(); errors.Is(err, context.Canceled) {
		err = errors.Join(gerr, err)
	}
	t.end()
	return err
}

// terms serves in one term after the other, until the worker ends. Between two terms its server
// may sleep.
func (w *Worker) terms(ctx context.Context, c core) error {
	for {
		if err := w.rest(ctx, c); err != nil {
			return err
		}
		t := w.term.Load()
		if err := t.begin(ctx, c); err != nil {
			return err
		}
		w.setState(cluster.StateReady, "")
		next, err := w.obey(ctx, c, t)
		if err != nil {
			return err
		}
		if err := w.nextTerm(ctx, c, t, next); err != nil {
			return err
		}
	}
}

// engineEnded turns the end of the engine into the reason for the worker's end,
// unless the worker is ending anyway.
func engineEnded(running context.Context, err error) error {
	if running.Err() != nil || errors.Is(err, ErrDrained) {
		return nil
	}
	return err
}
