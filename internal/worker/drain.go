package worker

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
)

// drainPoll is how often a drain looks whether its present step is complete.
const drainPoll = 20 * time.Millisecond

// drainGrace is how long a worker that left discovery still accepts requests that
// were routed to it just before.
const drainGrace = 100 * time.Millisecond

// order is what the agent asks of a running worker.
type order struct {
	resume   bool
	deadline time.Time
	force    bool
	// assignment is what the worker is from then on: after a drain, or, with resume, at
	// once. Nil changes nothing.
	assignment *cluster.Assignment
}

// cuts reports whether what still runs is to be cut off.
func (o order) cuts() bool {
	return o.force && (o.deadline.IsZero() || !time.Now().Before(o.deadline))
}

// Drain makes the worker finish what it has and end; Run then returns ErrDrained.
// A later call changes the deadline. After the deadline the worker goes on
// draining and says that it is overdue; with force it cuts off what still runs, at
// once if there is no deadline.
func (w *Worker) Drain(ctx context.Context, deadline time.Time, force bool) error {
	return w.give(ctx, order{deadline: deadline, force: force})
}

// Resume takes a drain, or a change of role, back as long as it is not complete. The
// worker then follows as, whose generation alone may be another one than before. A
// change of role that is complete by then is followed by one back.
func (w *Worker) Resume(ctx context.Context, as cluster.Assignment) error {
	return w.give(ctx, order{resume: true, assignment: &as})
}

func (w *Worker) give(ctx context.Context, o order) error {
	select {
	case w.orders <- o:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// obey carries out orders until ctx ends or a drain is complete.
func (w *Worker) obey(ctx context.Context) error {
	var d *drain
	defer func() { d.stop() }()
	poll := time.NewTicker(w.drainPoll)
	defer poll.Stop()
	poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case o := <-w.orders:
			if o.resume && o.assignment.Role != w.Role() {
				o.resume = false // it has turned meanwhile: it turns back
			}
			if o.resume {
				w.adopt(*o.assignment)
			}
			switch {
			case o.resume && d != nil:
				d.stop()
				if err := w.rejoin(ctx); err != nil {
					return err
				}
				d = nil
				poll.Stop()
			case o.resume:
			case d == nil:
				d = w.beginDrain(ctx, o)
				poll.Reset(w.drainPoll)
			default:
				d.order = o
			}
		case <-poll.C:
			done, err := d.advance(ctx)
			if err != nil {
				return err
			}
			if done {
				w.meter().DrainTime.Set(time.Since(d.began).Seconds())
				if w.next = d.order.assignment; w.next != nil {
					return errTurned
				}
				return ErrDrained
			}
		}
	}
}

// drain is a drain under way.
type drain struct {
	w         *Worker
	order     order
	began     time.Time
	step      int // index into cluster.DrainSteps
	stepSince time.Time
	farewell  *farewell       // to the routers
	pulled    <-chan struct{} // closed when the queue consumer has ended
	mover     *mover          // decode: from the end of admission on
	before    cluster.WorkerStats
}

// stop ends what a drain has begun, if there is one.
func (d *drain) stop() {
	if d != nil {
		d.farewell.stop()
		d.mover.stop()
	}
}

func (w *Worker) beginDrain(ctx context.Context, o order) *drain {
	w.log.Info("draining", "deadline", o.deadline, "force", o.force)
	e := w.engine.Load()
	d := &drain{w: w, order: o, began: time.Now(), stepSince: time.Now(), before: e.Stats()}
	_, open, err := e.OpenSequences(ctx, 0)
	if err != nil {
		w.log.Warn("count open sequences", "error", err)
	}
	now := time.Now()
	w.board.update(func(st *cluster.WorkerStatus) {
		st.State, st.Reason = cluster.StateDraining, ""
		if o.assignment != nil {
			st.Reason = "takes the role " + string(o.assignment.Role)
		}
		st.Drain = &cluster.DrainStatus{Step: cluster.DrainSteps[0], StartedAt: now, Deadline: o.deadline, Sequences: open, Left: open}
	})
	w.leave(ctx)
	d.farewell = w.sayFarewell(ctx)
	d.pulled = w.pulling.stop()
	return d
}

// advance goes on to the next step when the present one is complete.
func (d *drain) advance(ctx context.Context) (done bool, err error) {
	complete, err := d.complete(ctx)
	if err != nil {
		return false, err
	}
	if complete {
		d.step++
		d.stepSince = time.Now()
		if cluster.DrainSteps[d.step] == cluster.DrainIncoming && d.w.Role() == cluster.RoleDecode {
			d.mover = d.w.startMover(ctx)
		}
	}
	if err := d.report(ctx); err != nil {
		return false, err
	}
	return d.order.cuts() || cluster.DrainSteps[d.step] == cluster.DrainLease, nil
}

func (d *drain) complete(ctx context.Context) (bool, error) {
	e := d.w.engine.Load()
	st := e.Stats()
	switch cluster.DrainSteps[d.step] {
	case cluster.DrainDiscovery:
		return d.farewell.ended() && time.Since(d.stepSince) >= d.w.grace, nil
	case cluster.DrainAdmission:
		select {
		case <-d.pulled: // messages in work need admission
		default:
			return false, nil
		}
		return true, e.StopAdmission(ctx)
	case cluster.DrainIncoming:
		return st.RemoteWait == 0 && st.KVIncoming == 0, nil
	case cluster.DrainSequences:
		_, open, err := e.OpenSequences(ctx, 0)
		return open == 0 && d.w.requestsInFlight() == 0, err
	case cluster.DrainOutgoing:
		in, out := d.w.kv.Agent().InFlight()
		return st.KVOutgoing == 0 && in == 0 && out == 0, nil
	}
	return true, nil
}

// report brings the status up to date when something changed.
func (d *drain) report(ctx context.Context) error {
	e := d.w.engine.Load()
	open, left, err := e.OpenSequences(ctx, 10)
	if err != nil && !errors.Is(err, engine.ErrClosed) {
		return err
	}
	st := e.Stats()
	_, out := d.w.kv.Agent().InFlight()
	overdue := !d.order.deadline.IsZero() && time.Now().After(d.order.deadline)
	now := d.w.board.get().Drain
	next := *now
	next.Step, next.Deadline, next.Left, next.Overdue = cluster.DrainSteps[d.step], d.order.deadline, left, overdue
	next.Routers, next.Acknowledged, next.Unacknowledged = d.farewell.progress()
	next.Incoming, next.Outgoing = st.RemoteWait, st.KVOutgoing+out
	next.Finished = int(st.FinishedTotal - d.before.FinishedTotal)
	next.Cancelled = int(st.CancelledTotal - d.before.CancelledTotal)
	next.Moved = int(st.MovedTotal - d.before.MovedTotal)
	if d.order.cuts() {
		next.Moved += left // their frontends compute them again elsewhere
	}
	for i := range open {
		open[i].Why = d.mover.reason(open[i].RequestID)
	}
	same := next.Step == now.Step && next.Routers == now.Routers && next.Acknowledged == now.Acknowledged && next.Left == now.Left && next.Overdue == now.Overdue &&
		next.Incoming == now.Incoming && next.Outgoing == now.Outgoing && next.Deadline.Equal(now.Deadline)
	if same && time.Since(d.w.lastDrainReport) < time.Second {
		return nil
	}
	d.w.lastDrainReport = time.Now()
	next.Open = open
	d.w.board.update(func(st *cluster.WorkerStatus) { st.Drain = &next })
	return nil
}

// adopt takes over the generation of an assignment that changes nothing else.
func (w *Worker) adopt(as cluster.Assignment) {
	now := w.Assignment()
	if now.Generation == as.Generation {
		return
	}
	now.Generation = as.Generation
	w.assigned.Store(&now)
	w.board.update(func(st *cluster.WorkerStatus) { st.Generation = as.Generation })
}

// Decline has the status say why the worker does not follow a change of its assignment.
// It stays until another one is declined, or the worker ends.
func (w *Worker) Decline(d cluster.Declined) {
	w.log.Warn("goes on as it was: a change is impossible", "generation", d.Generation, "why", d.Why)
	w.board.update(func(st *cluster.WorkerStatus) { st.Declined = d })
}

// rejoin undoes a drain that is not complete.
func (w *Worker) rejoin(ctx context.Context) error {
	w.log.Info("drain taken back")
	if err := w.engine.Load().ResumeAdmission(ctx); err != nil {
		return err
	}
	if err := w.announce(ctx); err != nil {
		return err
	}
	w.board.update(func(st *cluster.WorkerStatus) { st.State, st.Reason, st.Drain = cluster.StateReady, "", nil })
	return nil
}
