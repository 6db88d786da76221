package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// errNotNeeded ends a worker that serves nobody yet.
var errNotNeeded = errors.New("no longer needed")

// serve runs the worker as long as the assignment says so. It returns nil when the
// worker ended as asked, and an error when it failed: after wait, it is to run again.
func (r *runner) serve(ctx context.Context, as cluster.Assignment, restarts int, wait time.Duration) error {
	wctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var w *worker.Worker
	cfg := r.a.workerConfig(as, restarts, r.log)
	cfg.LastWord = func(ctx context.Context, err error) {
		st := outcome(wctx, w, err)
		st.UpdatedAt = time.Now()
		switch st.State {
		case cluster.StateDrained: // not before its lease is gone
			st.State = cluster.StateDraining
		case cluster.StateFailed:
			st.Restarts, st.RetryAt = restarts+1, st.UpdatedAt.Add(wait)
		}
		if err := r.keepStatus(ctx, st); err != nil {
			r.log.Debug("status not written", "error", err)
		}
	}
	w = worker.New(cfg)
	over := make(chan struct{})
	r.mu.Lock()
	r.w, r.over = w, over
	r.mu.Unlock()

	ended := make(chan error, 1)
	go func() { ended <- w.Run(wctx) }()
	err := r.direct(wctx, w, as, stop, ended)

	last := outcome(wctx, w, err)
	r.mu.Lock()
	r.w, r.last = nil, last
	r.mu.Unlock()
	close(over)
	if last.State == cluster.StateDrained {
		return nil
	}
	return err
}

// outcome is the status of a worker whose Run, under ctx, ended with err.
func outcome(ctx context.Context, w *worker.Worker, err error) cluster.WorkerStatus {
	st := w.Status()
	st.InstanceID, st.LeaseTTLMS = 0, 0
	if errors.Is(err, worker.ErrDrained) || errors.Is(context.Cause(ctx), errNotNeeded) {
		st.State, st.Reason = cluster.StateDrained, ""
	} else {
		st.State, st.Reason, st.NoMemory = cluster.StateFailed, err.Error(), errors.Is(err, ErrMemory)
	}
	return st
}

// keepStatus moves the status of a worker that leaves from its lease to that of the
// node, unless its successor on another node has written there already.
func (r *runner) keepStatus(ctx context.Context, st cluster.WorkerStatus) error {
	_, _, err := store.UpdateJSON(ctx, r.a.stores.store, cluster.StatusKey(r.a.cfg.Namespace, r.name),
		func(now cluster.WorkerStatus, exists bool) (cluster.WorkerStatus, error) {
			if exists && now.Node != st.Node {
				return now, errMovedAway
			}
			return st, nil
		}, store.WithLease(r.a.drt.ID()))
	return err
}

var errMovedAway = errors.New("the worker runs on another node by now")

// direct hands changes of the assignment to a worker until it has ended, and returns
// what its Run returned.
func (r *runner) direct(ctx context.Context, w *worker.Worker, as cluster.Assignment, stop context.CancelCauseFunc, ended <-chan error) error {
	finishing := r.finishing // nil once that is under way
	for {
		var next cluster.Assignment
		select {
		case err := <-ended:
			return err
		case <-finishing:
			finishing = nil
			next = r.lastOrder(as)
		case next = <-r.updates:
			if !r.take(next) || finishing == nil {
				continue
			}
		}
		leave := next.Desire != cluster.DesireRun || next.Generation != as.Generation
		if !listening(w) {
			if leave { // it serves nobody yet
				stop(errNotNeeded)
			}
			continue
		}
		select {
		case err := <-ended:
			return err
		case err := <-r.order(ctx, w, leave, next):
			if err != nil && ctx.Err() == nil {
				r.log.Error("worker does not take orders, ending it", "error", err)
				stop(err)
			}
		}
	}
}

// lastOrder is what the end of the node asks of a worker.
func (r *runner) lastOrder(as cluster.Assignment) cluster.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	as.Desire, as.DrainDeadline, as.DrainForce = cluster.DesireDrain, r.stopBy, false
	return as
}

// listening reports whether a worker is up and so takes orders.
func listening(w *worker.Worker) bool {
	switch w.Status().State {
	case cluster.StateReady, cluster.StateDegraded, cluster.StateDraining:
		return true
	}
	return false
}

// order tells a running worker what a changed assignment asks of it.
func (r *runner) order(ctx context.Context, w *worker.Worker, leave bool, as cluster.Assignment) <-chan error {
	told := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, stopStep)
		defer cancel()
		switch {
		case !leave:
			told <- w.Resume(ctx)
		case as.Desire == cluster.DesireRun:
			// Another model, engine or device: this run ends, a new one begins.
			told <- w.Drain(ctx, time.Now().Add(r.a.cfg.Drain.Deadline), false)
		default:
			told <- w.Drain(ctx, as.DrainDeadline, as.DrainForce)
		}
	}()
	return told
}
