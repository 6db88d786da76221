package agent

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// errNotNeeded ends a worker that is still starting.
var errNotNeeded = errors.New("no longer needed")

// serve runs the worker until it ends. It returns the worker's last assignment. The error
// is nil if the worker ended as asked. After a failure the caller runs it again after
// wait.
func (r *runner) serve(ctx context.Context, as cluster.Assignment, restarts int, wait time.Duration) (cluster.Assignment, error) {
	if err := r.a.declines(as); err != nil {
		return as, err
	}
	wctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var w *worker.Worker
	cfg := r.a.workerConfig(as, restarts, r.log, func(what string) { w.Awaits(what) })
	cfg.LastWord = func(ctx context.Context, err error) {
		st := outcome(wctx, w, err)
		st.UpdatedAt = time.Now()
		switch st.State {
		case cluster.StateDrained: // wait until its lease is gone
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

// outcome returns the status of a worker whose Run, under ctx, returned err.
func outcome(ctx context.Context, w *worker.Worker, err error) cluster.WorkerStatus {
	st := w.Status()
	st.InstanceID, st.LeaseTTLMS, st.Unhealthy = 0, 0, ""
	if errors.Is(err, worker.ErrDrained) || errors.Is(context.Cause(ctx), errNotNeeded) {
		st.State, st.Reason = cluster.StateDrained, ""
	} else {
		st.State, st.Reason = cluster.StateFailed, err.Error()
		st.NoMemory, st.FitsAlone = errors.Is(err, ErrMemory), errors.Is(err, errFitsAlone)
	}
	return st
}

// keepStatus moves the status of a leaving worker from its lease to the node's, unless
// its successor on another node has already written there.
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

// direct passes changes of the assignment to a worker until it has ended, and returns the
// error of its Run.
func (r *runner) direct(ctx context.Context, w *worker.Worker, as cluster.Assignment, stop context.CancelCauseFunc, ended <-chan error) error {
	finishing := r.finishing // nil once finishing has begun
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
		now := present(w, as)
		what := instruction(now, next)
		if what == leave && next.Desire == cluster.DesireRun && listening(w) && !r.possible(w, next) {
			continue
		}
		if !listening(w) {
			if what != goOn && what != doze || now.SleepLevel() != next.SleepLevel() { // the worker is still starting
				stop(errNotNeeded)
			}
			continue
		}
		select {
		case err := <-ended:
			return err
		case err := <-r.order(ctx, w, what, next):
			if err != nil && ctx.Err() == nil {
				r.log.Error("worker does not accept orders, stopping it", "error", err)
				stop(err)
			}
		}
	}
}

// possible reports whether a serving worker can be stopped and started again with the
// assignment next. If not, it declines the change, and the worker continues.
func (r *runner) possible(w *worker.Worker, next cluster.Assignment) bool {
	err := r.a.admit(next, r.name)
	if err != nil {
		w.Decline(cluster.Declined{Generation: next.Generation, Why: err.Error()})
	}
	return err == nil
}

// present returns the current assignment of a worker that was started with as. Role,
// generation and what is asked may have changed since. The other fields come from as, because the worker's
// own copy has the node's defaults filled in.
func present(w *worker.Worker, as cluster.Assignment) cluster.Assignment {
	now := w.Assignment()
	as.Role, as.Generation, as.Desire, as.Sleep = now.Role, now.Generation, now.Desire, now.Sleep
	return as
}

// what is the order that an assignment implies for a running worker.
type what int

const (
	goOn  what = iota // and withdraw earlier orders
	leave             // drain; another run may follow
	turn              // change the role
	doze              // put the server to sleep
)

// instruction compares a worker's current assignment with the next one. An assignment
// with the old role, model and engine withdraws a change that is not complete.
func instruction(now, next cluster.Assignment) what {
	same := now.Generation == next.Generation || now.Role == next.Role && now.Like(next)
	switch {
	case next.SleepLevel() > 0 && same:
		return doze
	case next.Desire != cluster.DesireRun:
		return leave
	case now.Generation == next.Generation:
		return goOn
	case now.Flips(next):
		return turn
	case same: // the change was withdrawn
		return goOn
	}
	return leave
}

// lastOrder returns the assignment that stops a worker when the node stops.
func (r *runner) lastOrder(as cluster.Assignment) cluster.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	as.Desire, as.Sleep, as.DrainDeadline, as.DrainForce = cluster.DesireDrain, 0, r.stopBy, false
	return as
}

// listening reports whether a worker is up and accepts orders.
func listening(w *worker.Worker) bool {
	switch w.Status().State {
	case cluster.StateReady, cluster.StateDegraded, cluster.StateDraining, cluster.StateSleeping:
		return true
	}
	return false
}

// order sends a running worker the order that follows from a changed assignment.
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
		case do == doze:
			told <- w.Sleep(ctx, as)
		case as.Desire == cluster.DesireRun:
			// Another model, engine or device: this run ends, a new one begins.
			told <- w.Drain(ctx, time.Now().Add(r.a.cfg.Drain.Deadline), false)
		default:
			told <- w.Drain(ctx, as.DrainDeadline, as.DrainForce)
		}
	}()
	return told
}
