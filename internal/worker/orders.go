package worker

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// order is an order of the agent to a running worker.
type order struct {
	resume   bool
	deadline time.Time
	force    bool
	// assignment takes effect after a drain, or, with resume, at
	// once. Nil changes nothing.
	assignment *cluster.Assignment
	// found says that nobody ordered the drain: the server was found asleep.
	found bool
}

// level is the level at which the server is to sleep after the drain, 0 if it is not to.
func (o order) level() int {
	if o.assignment == nil {
		return 0
	}
	return o.assignment.SleepLevel()
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

// Turn makes the worker take another role: it finishes or hands over what it has, as in
// a drain, and joins again as next says. Weights, KV pool and what is cached in it stay,
// and so does the NIXL agent with its registered memory; lease and instance id are new,
// so that nobody who knew it in the old role reaches it in the new one. Until it has
// left the old role, Resume takes that back.
func (w *Worker) Turn(ctx context.Context, next cluster.Assignment) error {
	if _, ok := w.roles[next.Role]; !ok {
		return fmt.Errorf("no worker can take the role %q", next.Role)
	}
	return w.give(ctx, order{assignment: &next})
}

// Sleep makes the worker finish or hand over what it has, as in a drain, and then put its server
// to sleep, as the assignment says. It declines what the server cannot do.
func (w *Worker) Sleep(ctx context.Context, as cluster.Assignment) error {
	return w.give(ctx, order{assignment: &as, deadline: as.DrainDeadline})
}

// Resume takes a drain, or a change of role, back as long as it is not complete. The
// worker then follows as, whose generation alone may be another one than before. A
// change of role that is complete by then is followed by one back. A worker that has put its server
// to sleep wakes it.
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

// obey carries out orders until ctx ends or a drain is complete: with ErrDrained, or with
// what the worker turns to.
func (w *Worker) obey(ctx context.Context, c core, t *term) (next cluster.Assignment, err error) {
	var d *drain
	defer func() { d.stop() }()
	poll := time.NewTicker(w.waits.poll)
	defer poll.Stop()
	poll.Stop()
	for {
		select {
		case <-ctx.Done():
			return next, context.Cause(ctx)
		case <-c.sleeper().Turned():
			asleep, err := c.sleeper().Asleep(ctx)
			if err == nil && asleep && d == nil {
				as := w.Assignment()
				d = w.beginDrain(ctx, t, order{assignment: &as, found: true})
				poll.Reset(w.waits.poll)
			}
		case o := <-w.orders:
			if level := o.level(); level > 0 {
				if err := c.sleeper().CanSleep(ctx, level); err != nil {
					w.Decline(cluster.Declined{Generation: o.assignment.Generation, Why: err.Error()})
					continue
				}
			}
			if o.resume && o.assignment.Role != w.Role() {
				o.resume = false // it has turned meanwhile: it turns back
			}
			if o.resume {
				w.adopt(*o.assignment)
			}
			switch {
			case o.resume && d != nil && d.order.found: // it cannot serve
				d.order.assignment = o.assignment
			case o.resume && d != nil:
				w.log.Info("drain cancelled")
				if err := d.undo(ctx); err != nil {
					return next, err
				}
				w.board.update(func(st *cluster.WorkerStatus) { st.State, st.Reason, st.Drain = cluster.StateReady, "", nil })
				d = nil
				poll.Stop()
			case o.resume:
			case d == nil:
				d = w.beginDrain(ctx, t, o)
				poll.Reset(w.waits.poll)
			default:
				d.order = o
			}
		case <-poll.C:
			done, err := d.advance(ctx)
			switch {
			case err != nil:
				return next, err
			case !done:
				continue
			}
			t.meter.DrainTime.Set(time.Since(d.began).Seconds())
			if d.order.assignment != nil {
				return *d.order.assignment, nil
			}
			return next, ErrDrained
		}
	}
}

// adopt takes over what an assignment says beside role, model and engine. If it declined to
// sleep, which is an order within a generation, that is not wanted any more.
func (w *Worker) adopt(as cluster.Assignment) {
	now := w.Assignment()
	was := now.Generation
	now.Generation, now.Desire, now.Sleep, now.Asleep = as.Generation, as.Desire, as.Sleep, as.Asleep
	w.assigned.Store(&now)
	declined := now.SleepLevel() == 0 && w.board.get().Declined.Generation == was
	if now.Generation == was && !declined {
		return
	}
	w.board.update(func(st *cluster.WorkerStatus) {
		st.Generation = now.Generation
		if declined {
			st.Declined = cluster.Declined{}
		}
	})
}

// Awaits has the status of a worker that loads say what it waits for.
func (w *Worker) Awaits(what string) {
	w.board.update(func(st *cluster.WorkerStatus) {
		if st.State == cluster.StateLoading {
			st.Reason = what
		}
	})
}

// Decline has the status say why the worker does not follow a change of its assignment.
// It stays until another one is declined, or the worker ends; that it declined to sleep stays until
// that is not asked for any more.
func (w *Worker) Decline(d cluster.Declined) {
	w.log.Warn("keeps its configuration: the change is impossible", "generation", d.Generation, "why", d.Why)
	w.board.update(func(st *cluster.WorkerStatus) { st.Declined = d })
}
