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

// serve runs the worker as long as the assignment says so. It returns what the worker
// was at last, and nil when it ended as asked, or an error when it failed: after wait, it
// is to run again.
func (r *runner) serve(ctx context.Context, as cluster.Assignment, restarts int, wait time.Duration) (cluster.Assignment, error) {
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
		err = nil
	}
	return present(w, as), err
}

// outcome is the status of a worker whose Run, under ctx, ended with err.
func outcome(ctx context.Context, w *worker.Worker, err error) cluster.WorkerStatus {
	st := w.Status()
	st.InstanceID, st.LeaseTTLMS = 0, 0
	if errors.Is(err, worker.ErrDrained) || errors.Is(context.Cause(ctx), errNotNeeded) {
		st.State, st.Reason = cluster.StateDrained, ""
	} else {
		st.State, st.Reason = cluster.StateFailed, err.Error()
		st.NoMemory, st.FitsAlone = errors.Is(err, ErrMemory), errors.Is(err, errFitsAlone)
	}
	return st
}

// keepStatus moves the status of a worker that leaves from its lease to that of the
// node, unless its successor on another node has written there already.
func (r *runner) keepStatus(ctx context.Context, st cluster.WorkerStatus) error {
	ctx, cancel := r.a.stores.store.WhileAnswering(ctx)
	defer cancel()
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
			next = r.lastOrder(present(w, as))
		case next = <-r.updates:
			if !r.take(next) || finishing == nil {
				continue
			}
		}
		what := instruction(present(w, as), next)
		if what == leave && next.Desire == cluster.DesireRun && listening(w) && !r.possible(w, next) {
			continue
		}
		if !listening(w) {
			if what != goOn { // it serves nobody yet
				stop(errNotNeeded)
			}
			continue
		}
		select {
		case err := <-ended:
			return err
		case err := <-r.order(ctx, w, what, next):
			if err != nil && ctx.Err() == nil {
				r.log.Error("worker does not take orders, ending it", "error", err)
				stop(err)
			}
		}
	}
}

// possible reports whether a change of a worker that serves, which has it stop and start
// again, can succeed. What cannot is declined: the worker goes on.
func (r *runner) possible(w *worker.Worker, next cluster.Assignment) bool {
	err := r.a.admit(next, r.name)
	if err != nil {
		w.Decline(cluster.Declined{Generation: next.Generation, Why: err.Error()})
	}
	return err == nil
}

// present is what a worker is that was started as as: its role may be another one by
// now. Its own idea of an assignment has the defaults of the node filled in.
func present(w *worker.Worker, as cluster.Assignment) cluster.Assignment {
	now := w.Assignment()
	as.Role, as.Generation = now.Role, now.Generation
	return as
}

// what an assignment means for a worker that runs.
type what int

const (
	goOn  what = iota // and take back what it was told before
	leave             // drain; another run may begin
	turn              // take another role
)

// instruction compares what a worker is with what is asked. A change that is not complete
// is taken back by an assignment with the old role, model and engine.
func instruction(now, next cluster.Assignment) what {
	switch {
	case next.Desire != cluster.DesireRun:
		return leave
	case now.Generation == next.Generation:
		return goOn
	case now.Flips(next):
		return turn
	case now.Role == next.Role && now.Like(next): // a change was taken back
		return goOn
	}
	return leave
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
func (r *runner) order(ctx context.Context, w *worker.Worker, do what, as cluster.Assignment) <-chan error {
	told := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(ctx, stopStep)
		defer cancel()
		switch {
		case do == goOn:
			told <- w.Resume(ctx, as)
		case do == turn:
			told <- w.Turn(ctx, as)
		case as.Desire == cluster.DesireRun:
			// Another model, engine or device: this run ends, a new one begins.
			told <- w.Drain(ctx, time.Now().Add(r.a.cfg.Drain.Deadline), false)
		default:
			told <- w.Drain(ctx, as.DrainDeadline, as.DrainForce)
		}
	}()
	return told
}
