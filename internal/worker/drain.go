package worker

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// drainPoll is the interval at which a drain checks whether its present step is complete.
const drainPoll = 20 * time.Millisecond

// drain is a drain under way: it takes one step after the other, whatever they are.
type drain struct {
	board *board
	order order
	began time.Time
	steps []role.Step
	at    int // the present step; those before it are complete, those behind it have not begun
	// figures brings what is told of a drain up to date.
	figures  func(ctx context.Context, st *cluster.DrainStatus, cut bool) error
	reported time.Time
}

func (w *Worker) beginDrain(ctx context.Context, t *term, o order) *drain {
	w.log.Info("draining", o.attrs()...)
	d := &drain{board: w.board, order: o, began: time.Now(), steps: t.drainSteps(), figures: t.drainFigures()}
	st := cluster.DrainStatus{Step: d.steps[0].Name, StartedAt: d.began, Deadline: o.deadline}
	if err := d.figures(ctx, &st, false); err != nil {
		w.log.Warn("count open sequences", "error", err)
	}
	st.Sequences = st.Left
	w.board.update(func(all *cluster.WorkerStatus) {
		all.State, all.Reason = cluster.StateDraining, o.why()
		all.Drain = &st
	})
	d.begin(ctx)
	return d
}

// why says what follows on a drain; empty if the worker ends.
func (o order) why() string {
	switch {
	case o.found:
		return foundAsleep
	case o.level() > 0:
		return "its server is to sleep"
	case o.assignment != nil:
		return "takes the role " + string(o.assignment.Role)
	}
	return ""
}

// attrs are what the log tells of an order; one without a deadline has none.
func (o order) attrs() []any {
	attrs := []any{"force", o.force}
	if !o.deadline.IsZero() {
		attrs = append(attrs, "deadline", o.deadline)
	}
	return attrs
}

// begin begins the present step.
func (d *drain) begin(ctx context.Context) {
	if s := d.steps[d.at]; s.Begin != nil {
		s.Begin(ctx)
	}
}

// advance goes on when the present step is complete, to the next one of another name. The
// drain is done at the last step, which nobody completes: it is the end of the term.
func (d *drain) advance(ctx context.Context) (done bool, err error) {
	for name := d.steps[d.at].Name; !d.last(); {
		if s := d.steps[d.at]; s.Done != nil {
			if ok, err := s.Done(ctx); err != nil {
				return false, err
			} else if !ok {
				break
			}
		}
		d.at++
		d.begin(ctx)
		if d.steps[d.at].Name != name {
			break
		}
	}
	if err := d.report(ctx); err != nil {
		return false, err
	}
	return d.order.cuts() || d.last(), nil
}

func (d *drain) last() bool { return d.at == len(d.steps)-1 }

// stop ends what the steps have begun, the latest first. It does nothing to a drain that
// has not begun.
func (d *drain) stop() {
	if d == nil {
		return
	}
	for i := d.at; i >= 0; i-- {
		if end := d.steps[i].End; end != nil {
			end()
		}
	}
}

// undo takes a drain back that is not complete.
func (d *drain) undo(ctx context.Context) error {
	var errs []error
	for i := d.at; i >= 0; i-- {
		s := d.steps[i]
		if s.End != nil {
			s.End()
		}
		if s.Undo != nil {
			errs = append(errs, s.Undo(ctx))
		}
	}
	return errors.Join(errs...)
}

// report brings the status up to date when something changed.
func (d *drain) report(ctx context.Context) error {
	now := d.board.get().Drain
	next := *now
	next.Step, next.Deadline = d.steps[d.at].Name, d.order.deadline
	next.Overdue = !d.order.deadline.IsZero() && time.Now().After(d.order.deadline)
	if err := d.figures(ctx, &next, d.order.cuts()); err != nil {
		return err
	}
	same := next.Step == now.Step && next.Routers == now.Routers && next.Acknowledged == now.Acknowledged && next.Left == now.Left && next.Overdue == now.Overdue &&
		next.Incoming == now.Incoming && next.Outgoing == now.Outgoing && next.Deadline.Equal(now.Deadline)
	if same && time.Since(d.reported) < time.Second {
		return nil
	}
	d.reported = time.Now()
	d.board.update(func(st *cluster.WorkerStatus) { st.Drain = &next })
	return nil
}
