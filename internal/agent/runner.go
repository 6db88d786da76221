package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

// How often the status of a worker that does not run is written: now and then, and
// soon again when it could not be.
const (
	publishEvery = 5 * time.Second
	publishRetry = 500 * time.Millisecond
)

// runner takes one worker through starts, drains and restarts. Its goroutine is
// the only one that changes it and gives orders to the worker; others send
// assignments.
type runner struct {
	a     *Agent
	name  string
	log   *slog.Logger
	file  *logFile
	after []<-chan struct{} // closed when earlier runs of this worker have left
	// followed is the assignment that was handed over last; the supervisor's lock guards it.
	followed cluster.Assignment

	updates chan cluster.Assignment // capacity 1: the newest
	rewrite chan struct{}           // capacity 1: the status key went with the node's lease
	gone    chan struct{}           // closed when the assignment is gone
	goneOne sync.Once
	done    chan struct{}           // closed when run has returned
	cancel  context.CancelCauseFunc // ends run; set by begin
	// finishing is closed when the node stops: a worker that ends stays down.
	finishing chan struct{}
	finishOne sync.Once

	mu     sync.Mutex
	w      *worker.Worker       // nil while none runs
	over   chan struct{}        // closed when w has ended
	last   cluster.WorkerStatus // status while none runs; what it points to never changes
	asked  cluster.Assignment   // newest assignment, for run
	stopBy time.Time            // when the stopping node no longer waits; zero: no limit
}

func newRunner(a *Agent, as cluster.Assignment, after []<-chan struct{}) *runner {
	r := &runner{
		a: a, name: as.Name, after: after, updates: make(chan cluster.Assignment, 1), rewrite: make(chan struct{}, 1),
		gone: make(chan struct{}), done: make(chan struct{}), finishing: make(chan struct{}), asked: as,
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

// writeAgain has the status of a worker at rest written at once.
func (r *runner) writeAgain() {
	select {
	case r.rewrite <- struct{}{}:
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

// begin returns the runner's work, which goes on when ctx ends, until cancel is called.
func (r *runner) begin(ctx context.Context) func() {
	ctx, r.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	return func() {
		defer r.cancel(nil)
		r.run(ctx)
	}
}

// run follows the assignment until it is gone or ctx ends.
func (r *runner) run(ctx context.Context) {
	defer close(r.done)
	defer func() { _ = r.file.Close() }() // every record was written when it was logged
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-r.gone:
			cancel(errUnassigned)
		case <-ctx.Done():
		}
	}()
	if !r.awaitEarlier(ctx) {
		return // the status is not ours
	}
	restarts, wait := 0, backoffFirst
	for ctx.Err() == nil {
		switch as := r.newest(); {
		case r.isFinishing(), as.Desire == cluster.DesireDrain:
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
			restarts, wait = 0, backoffFirst // failures say nothing of what is asked for now
		}
	}
	if errors.Is(context.Cause(ctx), errUnassigned) {
		r.deleteStatus()
	}
}

// earlierPatience is how long an earlier run of a worker may take to leave before the
// log says so, again and again.
const earlierPatience = 2 * time.Minute

// awaitEarlier waits until earlier runs of this worker, which were told to leave, are
// gone: they have the same name, and their memory may be needed. It returns false when
// ctx ends first: the assignment is gone, too, or the node stops. What does not leave in
// time is logged and waited for: two runs at a time would be worse.
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
				// The status is the earlier run's until that has left.
				r.log.Error("an earlier run of this worker does not leave", "waited", time.Since(begin).Round(time.Second))
			}
		}
	}
	return ctx.Err() == nil
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

// take takes in an update and reports whether it asks for something else.
func (r *runner) take(as cluster.Assignment) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	changed := as != r.asked
	r.asked = as
	return changed
}

// superseded reports whether another thing is asked for by now than as.
func (r *runner) superseded(as cluster.Assignment) bool {
	now := r.newest()
	return r.isFinishing() || now.Desire != cluster.DesireRun || now.Generation != as.Generation
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

// fail publishes why the worker failed and waits for the back-off to pass or for a
// new assignment.
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

// idleLocked makes the status that of an assignment for which no worker runs: the
// gauges are zero, the totals of the last run stay.
func (r *runner) idleLocked(as cluster.Assignment) {
	st := &r.last
	st.Role, st.Model, st.Weights, st.Device, st.Generation = as.Role, as.Model.Name, "", as.Device, as.Generation
	st.TensorParallel = 0
	st.InstanceID, st.LeaseTTLMS, st.Progress, st.MemoryBytes, st.NoMemory, st.FitsAlone = 0, 0, 0, 0, false, false
	st.Declined = cluster.Declined{}
	s := &st.Stats
	s.Running, s.Waiting, s.RemoteWait = 0, 0, 0
	s.KVActive, s.KVCached, s.KVIncoming, s.KVOutgoing, s.Quarantined = 0, 0, 0, 0, 0
}

// publishUntil keeps the status key alive under the node's lease until a new
// assignment comes, until fires, or ctx ends.
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

// deleteStatus removes the status, unless another node's worker has written it.
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

// finish drains the worker, if one runs, because the node stops. It returns when it
// has ended, or with an error when ctx ends.
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
