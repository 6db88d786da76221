package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// Back-off between the starts of a worker that fails.
const (
	backoffFirst = time.Second
	backoffMax   = 30 * time.Second
	// healthyAfter is how long a worker must have run for the back-off to start over.
	healthyAfter = time.Minute
)

// runner takes one worker through starts, drains and restarts. Its goroutine is
// the only one that changes it; others send assignments.
type runner struct {
	a    *Agent
	name string
	log  *slog.Logger
	file *logFile

	updates chan cluster.Assignment // capacity 1: the newest
	gone    chan struct{}           // closed when the assignment is gone
	goneOne sync.Once
	done    chan struct{} // closed when run has returned
	// finishing is set when the node stops: a worker that ends stays down.
	finishing atomic.Bool

	mu    sync.Mutex
	w     *worker.Worker       // nil while none runs
	last  cluster.WorkerStatus // status while none runs
	asked cluster.Assignment   // newest assignment, for run
}

func newRunner(a *Agent, as cluster.Assignment) *runner {
	r := &runner{
		a: a, name: as.Name, updates: make(chan cluster.Assignment, 1),
		gone: make(chan struct{}), done: make(chan struct{}), asked: as,
	}
	r.file, r.log = a.workerLog(as.Name)
	r.last = cluster.WorkerStatus{Name: as.Name, Role: as.Role, Model: as.Model.Name, Node: a.nodeID, Device: as.Device, State: cluster.StatePending, Generation: as.Generation}
	return r
}

// assign hands over the newest assignment.
func (r *runner) assign(as cluster.Assignment) {
	select {
	case <-r.updates:
	default:
	}
	select {
	case r.updates <- as:
	default:
	}
}

func (r *runner) remove() { r.goneOne.Do(func() { close(r.gone) }) }

func (r *runner) status() cluster.WorkerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w != nil {
		return r.w.Status()
	}
	return r.last
}

// run follows the assignment until it is gone or ctx ends.
func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	defer r.file.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.gone:
			cancel(errUnassigned)
		case <-ctx.Done():
		}
	}()
	restarts, wait := 0, backoffFirst
	for ctx.Err() == nil {
		switch as := r.newest(); {
		case r.finishing.Load(), as.Desire == cluster.DesireDrain:
			r.rest(ctx, cluster.StateDrained)
		case as.Desire == cluster.DesireRemove:
			r.rest(ctx, cluster.StateStopped)
		default:
			begin := time.Now()
			err := r.serve(ctx, as, restarts)
			if err == nil || ctx.Err() != nil {
				restarts, wait = 0, backoffFirst
				continue
			}
			if time.Since(begin) > healthyAfter {
				wait = backoffFirst
			}
			restarts++
			r.fail(ctx, as, err, restarts, wait)
			wait = min(2*wait, backoffMax)
		}
	}
	if errors.Is(context.Cause(ctx), errUnassigned) {
		r.deleteStatus()
	}
}

var errUnassigned = errors.New("assignment is gone")

// newest takes in a waiting update and returns the assignment to follow.
func (r *runner) newest() cluster.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.asked = <-r.updates:
	default:
	}
	return r.asked
}

// serve runs the worker as long as the assignment says so. It returns nil when the
// worker ended as asked, and an error when it failed.
func (r *runner) serve(ctx context.Context, as cluster.Assignment, restarts int) error {
	w := worker.New(r.a.workerConfig(as, restarts, r.log))
	r.mu.Lock()
	r.w = w
	r.mu.Unlock()
	wctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(wctx) }()
	finish := func(err error) error {
		last := w.Status()
		if errors.Is(err, worker.ErrDrained) {
			last.State, last.Reason = cluster.StateDrained, ""
			if last.Drain != nil {
				last.Drain.Step, last.Drain.EndedAt, last.Drain.Safe, last.Drain.Left = cluster.DrainLease, time.Now(), true, 0
				last.Drain.Open, last.Drain.Incoming, last.Drain.Outgoing = nil, 0, 0
			}
			err = nil
		}
		last.InstanceID = 0
		r.mu.Lock()
		r.w, r.last = nil, last
		r.mu.Unlock()
		return err
	}
	for {
		select {
		case err := <-ended:
			return finish(err)
		case next := <-r.updates:
			r.mu.Lock()
			r.asked = next
			r.mu.Unlock()
			leave := next.Desire != cluster.DesireRun || next.Generation != as.Generation
			if leave && !listening(w) {
				stop(errNotNeeded) // it serves nobody yet
				<-ended
				return finish(worker.ErrDrained)
			}
			select {
			case err := <-ended:
				return finish(err)
			case err := <-r.order(wctx, w, leave, next):
				if err != nil && ctx.Err() == nil {
					r.log.Error("worker does not take orders, ending it", "error", err)
					stop(err)
				}
			}
		}
	}
}

var errNotNeeded = errors.New("no longer needed")

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

// rest publishes a state in which no worker runs, and waits for a new assignment.
func (r *runner) rest(ctx context.Context, state cluster.State) {
	as := r.newest()
	r.mu.Lock()
	r.last.State, r.last.Generation, r.last.Reason = state, as.Generation, ""
	r.last.Role, r.last.Model, r.last.Device = as.Role, as.Model.Name, as.Device
	if r.last.Drain == nil && state == cluster.StateDrained {
		now := time.Now()
		r.last.Drain = &cluster.DrainStatus{Step: cluster.DrainLease, StartedAt: now, EndedAt: now, Safe: true}
	}
	r.last.Stats.Running, r.last.Stats.Waiting, r.last.Stats.RemoteWait = 0, 0, 0
	r.mu.Unlock()
	r.publishUntil(ctx, nil)
	r.mu.Lock()
	r.last.Drain = nil
	r.mu.Unlock()
}

// fail publishes why the worker failed and waits for the back-off to pass or for a
// new assignment.
func (r *runner) fail(ctx context.Context, as cluster.Assignment, err error, restarts int, wait time.Duration) {
	r.log.Error("worker failed", "error", err, "restarts", restarts, "retry_in", wait)
	retry := time.Now().Add(wait)
	r.mu.Lock()
	r.last.State, r.last.Reason, r.last.Restarts, r.last.RetryAt = cluster.StateFailed, err.Error(), restarts, retry
	r.last.Generation = as.Generation
	r.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	r.publishUntil(ctx, t.C)
}

// publishUntil keeps the status key alive under the node's lease until a new
// assignment comes, until fires, or ctx ends.
func (r *runner) publishUntil(ctx context.Context, until <-chan time.Time) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		st := r.status()
		st.UpdatedAt = time.Now()
		key := cluster.StatusKey(r.a.cfg.Namespace, st.Name)
		if _, err := store.PutJSON(ctx, r.a.stores.store, key, st, store.WithLease(r.a.drt.ID())); err != nil && ctx.Err() == nil {
			r.log.Debug("status not written", "error", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-until:
			return
		case as := <-r.updates:
			r.mu.Lock()
			changed := as != r.asked
			r.asked = as
			r.mu.Unlock()
			if changed {
				return
			}
		case <-tick.C:
		}
	}
}

func (r *runner) deleteStatus() {
	ctx, cancel := context.WithTimeout(context.Background(), stopStep)
	defer cancel()
	if err := r.a.stores.store.Delete(ctx, cluster.StatusKey(r.a.cfg.Namespace, r.name)); err != nil {
		r.log.Warn("status not deleted", "error", err)
	}
}

// finish drains the worker, if one runs, because the node stops.
func (r *runner) finish(ctx context.Context) error {
	r.finishing.Store(true)
	r.mu.Lock()
	w := r.w
	r.mu.Unlock()
	if w == nil {
		return nil
	}
	deadline, _ := ctx.Deadline()
	if err := w.Drain(ctx, deadline, false); err != nil {
		return fmt.Errorf("drain %s: %w", r.name, err)
	}
	for {
		r.mu.Lock()
		over := r.w != w
		r.mu.Unlock()
		if over {
			return nil
		}
		select {
		case <-r.done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("drain %s: %w", r.name, context.Cause(ctx))
		case <-time.After(10 * time.Millisecond):
		}
	}
}
