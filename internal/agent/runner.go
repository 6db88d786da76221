package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/worker"
)

// Back-off between the starts of a worker that fails.
const (
	backoffFirst = time.Second
	backoffMax   = 30 * time.Second
	// healthyAfter is the least time that a worker must have run for the back-off to
	// start over.
	healthyAfter = time.Minute
)

// Intervals at which the status of a stopped worker is written: publishEvery normally,
// and publishRetry after a failure.
const (
	publishEvery = 5 * time.Second
	publishRetry = 500 * time.Millisecond
)

// runner takes one worker through starts, drains and restarts. Only its goroutine changes
// the worker and gives it orders. Other goroutines send assignments.
type runner struct {
	a     *Agent
	name  string
	log   *slog.Logger
	file  *logFile
	after []<-chan struct{} // closed when earlier runs of this worker have ended
	// followed is the last assignment handed over; the supervisor's lock guards it.
	followed cluster.Assignment

	updates chan cluster.Assignment // capacity 1: the newest
	rewrite chan struct{}           // capacity 1: the status key was lost with the node's lease
	done    chan struct{}           // closed when run has returned
	cancel  context.CancelCauseFunc // ends run; set by begin
	// finishing is closed when the node stops. A worker that ends then is not restarted.
	finishing chan struct{}
	finishOne sync.Once

	mu     sync.Mutex
	w      *worker.Worker       // nil if none runs
	over   chan struct{}        // closed when w has ended
	last   cluster.WorkerStatus // status while no worker runs; what it points to is immutable
	asked  cluster.Assignment   // newest assignment, for run
	stopBy time.Time            // when the stopping node stops waiting; zero for no limit
}

func newRunner(a *Agent, as cluster.Assignment, after []<-chan struct{}) *runner {
	r := &runner{
		a: a, name: as.Name, after: after, updates: make(chan cluster.Assignment, 1), rewrite: make(chan struct{}, 1),
		done: make(chan struct{}), finishing: make(chan struct{}), asked: as,
	}
	r.file, r.log = a.workerLog(as.Name)
	r.last = cluster.WorkerStatus{Name: as.Name, Role: as.Role, Model: as.Model.Name, Node: a.nodeID, Device: as.Device, State: cluster.StatePending, Generation: as.Generation}
	return r
}

// assign passes the newest assignment to run.
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

// writeAgain makes run write the status of a stopped worker at once.
func (r *runner) writeAgain() {
	select {
	case r.rewrite <- struct{}{}:
	default:
	}
}

// remove ends run because the assignment was deleted.
func (r *runner) remove() { r.cancel(errUnassigned) }

func (r *runner) status() cluster.WorkerStatus {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w != nil {
		return r.w.Status()
	}
	return r.last
}

// endpoints returns the health of the worker's endpoints, by name.
func (r *runner) endpoints() map[string]runtime.Health {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w == nil {
		return nil
	}
	return r.w.Endpoints()
}

// begin returns the runner's work as a function. The work survives the end of ctx and
// ends when cancel is called.
func (r *runner) begin(ctx context.Context) func() {
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return func() {
		defer r.cancel(nil)
		r.run(ctx)
	}
}

// run follows the assignment until it is deleted or ctx ends.
func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	defer func() { _ = r.file.Close() }() // every record was written when it was logged
	if !r.awaitEarlier(ctx) {
		return // the status belongs to an earlier run
	}
	restarts, wait := 0, backoffFirst
	for ctx.Err() == nil {
		switch as := r.newest(); {
		case r.isFinishing(), as.Desire == cluster.DesireDrain && as.SleepLevel() == 0:
			r.rest(ctx, cluster.StateDrained)
		case as.Desire == cluster.DesireRemove:
			r.rest(ctx, cluster.StateStopped)
		default:
			begin := time.Now()
			as, err := r.serve(ctx, as, restarts, wait)
			if err != nil && ctx.Err() == nil && !r.superseded(as) {
				if time.Since(begin) > healthyAfter {
					wait = backoffFirst
				}
				restarts++
				r.fail(ctx, as, err, restarts, wait)
				wait = min(2*wait, backoffMax)
				if !r.superseded(as) {
					continue
				}
			}
			restarts, wait = 0, backoffFirst // earlier failures say nothing about the new assignment
		}
	}
	if errors.Is(context.Cause(ctx), errUnassigned) {
		r.deleteStatus()
	}
}

// earlierPatience bounds the time that an earlier run of a worker may take to end. Beyond
// it the log says so, repeatedly.
const earlierPatience = 2 * time.Minute

// awaitEarlier waits until earlier runs of this worker, which were told to end, have
// ended. They have the same name, and the new run may need their memory. It returns false
// when ctx ends first: the assignment was deleted, too, or the node stops. It logs runs
// that do not end in time but still waits, because two runs at a time would be worse.
func (r *runner) awaitEarlier(ctx context.Context) bool {
	begin := time.Now()
	late := time.NewTicker(earlierPatience)
	defer late.Stop()
	for _, left := range r.after {
		for waiting := true; waiting; {
			select {
			case <-left:
				waiting = false
			case <-ctx.Done():
				return false
			case <-late.C:
				// The status belongs to the earlier run until that has ended.
				r.log.Error("an earlier run of this worker has not ended", "waited", time.Since(begin).Round(time.Second))
			}
		}
	}
	return ctx.Err() == nil
}

var errUnassigned = errors.New("assignment is gone")

// newest takes a waiting update, if any, and returns the assignment to follow.
func (r *runner) newest() cluster.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	select {
	case r.asked = <-r.updates:
	default:
	}
	return r.asked
}

// take stores an update and reports whether it differs from the assignment before.
func (r *runner) take(as cluster.Assignment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := as != r.asked
	r.asked = as
	return changed
}

// superseded reports whether the newest assignment asks for something else than as.
func (r *runner) superseded(as cluster.Assignment) bool {
	now := r.newest()
	return r.isFinishing() || now.Desire != as.Desire || now.SleepLevel() != as.SleepLevel() || now.Generation != as.Generation
}

func (r *runner) isFinishing() bool {
	select {
	case <-r.finishing:
		return true
	default:
		return false
	}
}

// rest publishes a state in which no worker runs, and waits for a new assignment.
func (r *runner) rest(ctx context.Context, state cluster.State) {
	as := r.newest()
	now := time.Now()
	r.mu.Lock()
	st := &r.last
	r.idleLocked(as)
	st.State, st.Reason, st.Restarts, st.RetryAt = state, "", 0, time.Time{}
	var d cluster.DrainStatus
	if st.Drain != nil {
		d = *st.Drain
	}
	if d.StartedAt.IsZero() {
		d.StartedAt = now
	}
	if d.EndedAt.IsZero() {
		d.EndedAt = now
	}
	d.Step, d.Safe, d.Left, d.Incoming, d.Outgoing, d.Open = cluster.DrainLease, true, 0, 0, 0, nil
	st.Drain = &d
	r.mu.Unlock()
	r.publishUntil(ctx, nil)
}

// fail publishes the reason of a failure. It waits until the back-off has passed or a new
// assignment comes.
func (r *runner) fail(ctx context.Context, as cluster.Assignment, err error, restarts int, wait time.Duration) {
	r.log.Error("worker failed", "error", err, "restarts", restarts, "retry_in", wait)
	retry := time.Now().Add(wait)
	r.mu.Lock()
	r.idleLocked(as)
	r.last.State, r.last.Reason, r.last.Restarts, r.last.RetryAt, r.last.Drain = cluster.StateFailed, err.Error(), restarts, retry, nil
	r.last.NoMemory, r.last.FitsAlone = errors.Is(err, ErrMemory), errors.Is(err, errFitsAlone)
	r.mu.Unlock()
	t := time.NewTimer(wait)
	defer t.Stop()
	r.publishUntil(ctx, t.C)
}

// idleLocked sets the status of an assignment for which no worker runs. Its gauges are
// zero, and the totals of the last run stay.
func (r *runner) idleLocked(as cluster.Assignment) {
	st := &r.last
	st.Role, st.Model, st.Weights, st.Device, st.Generation = as.Role, as.Model.Name, "", as.Device, as.Generation
	st.TensorParallel = 0
	st.Sleep, st.InstanceID, st.LeaseTTLMS, st.Progress, st.MemoryBytes, st.NoMemory, st.FitsAlone = 0, 0, 0, 0, 0, false, false
	st.Declined, st.ServerStatus = cluster.Declined{}, nil
	s := &st.Stats
	s.Running, s.Waiting, s.RemoteWait = 0, 0, 0
	s.KVActive, s.KVCached, s.KVIncoming, s.KVOutgoing, s.Quarantined = 0, 0, 0, 0, 0
}

// publishUntil keeps the status key under the node's lease until a new assignment comes,
// until fires, or ctx ends.
func (r *runner) publishUntil(ctx context.Context, until <-chan time.Time) {
	key := cluster.StatusKey(r.a.cfg.Namespace, r.name)
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-until:
			return
		case as := <-r.updates:
			if r.take(as) {
				return
			}
		case <-r.rewrite:
			again.Reset(0)
		case <-again.C:
			st := r.status()
			st.UpdatedAt = time.Now()
			next := publishEvery
			if _, err := store.PutJSON(ctx, r.a.stores.store, key, st, store.WithLease(r.a.drt.ID())); err != nil && ctx.Err() == nil {
				r.log.Debug("status not written", "error", err)
				next = publishRetry
			}
			again.Reset(next)
		}
	}
}

// deleteStatus removes the status, unless a worker of another node has written it.
func (r *runner) deleteStatus() {
	ctx, cancel := context.WithTimeout(context.Background(), stopStep)
	defer cancel()
	ctx, done := r.a.stores.store.WhileAnswering(ctx)
	defer done()
	key := cluster.StatusKey(r.a.cfg.Namespace, r.name)
	st, _, err := store.GetJSON[cluster.WorkerStatus](ctx, r.a.stores.store, key)
	if errors.Is(err, store.ErrNotFound) || err == nil && st.Node != r.a.nodeID {
		return
	}
	if err := r.a.stores.store.Delete(ctx, key); err != nil {
		r.log.Warn("status not deleted", "error", err)
	}
}

// finish drains the worker, if one runs, because the node stops. It returns when the
// worker has ended, or with an error when ctx ends.
func (r *runner) finish(ctx context.Context) error {
	r.mu.Lock()
	r.stopBy, _ = ctx.Deadline()
	running, over := r.w != nil, r.over
	r.mu.Unlock()
	r.finishOne.Do(func() { close(r.finishing) })
	if !running {
		return nil
	}
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("drain %s: %w", r.name, context.Cause(ctx))
	}
}
