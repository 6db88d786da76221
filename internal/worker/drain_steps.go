package worker

import (
	"context"
	"errors"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// drainSteps are the steps of a drain in their order: those that every worker takes, each
// behind what the role has to do at that step.
func (t *term) drainSteps() []role.Step {
	own := t.duty.DrainSteps()
	var all []role.Step
	for _, s := range []role.Step{
		t.leaveDiscovery(),
		t.stopAdmission(),
		{Name: cluster.DrainIncoming, Done: t.nothingComes},
		{Name: cluster.DrainSequences, Done: t.sequencesEnded},
		{Name: cluster.DrainOutgoing, Done: t.nothingLeaves},
		{Name: cluster.DrainLease},
	} {
		for _, o := range own {
			if o.Name == s.Name {
				all = append(all, o)
			}
		}
		all = append(all, s)
	}
	return all
}

func (t *term) stopAdmission() role.Step {
	return role.Step{
		Name: cluster.DrainAdmission,
		Done: func(ctx context.Context) (bool, error) { return true, t.core.stopAdmission(ctx) },
		Undo: t.core.resumeAdmission,
	}
}

func (t *term) nothingComes(context.Context) (bool, error) { return t.core.awaited() == 0, nil }

func (t *term) sequencesEnded(ctx context.Context) (bool, error) {
	_, open, err := t.core.open(ctx, 0)
	return open == 0 && t.requestsInFlight() == 0, err
}

func (t *term) nothingLeaves(ctx context.Context) (bool, error) {
	in, out := t.core.moving(ctx)
	return in == 0 && out == 0, nil
}

// drainFigures returns what fills in the figures of a drain that begins now. cut says that
// what is left is cut off.
func (t *term) drainFigures() func(ctx context.Context, d *cluster.DrainStatus, cut bool) error {
	before := t.core.figures(t.role)
	return func(ctx context.Context, d *cluster.DrainStatus, cut bool) error {
		open, left, err := t.open(ctx, 10)
		if err != nil && !errors.Is(err, engine.ErrClosed) {
			return err
		}
		st := t.core.figures(t.role)
		d.Open, d.Left = open, left
		d.Routers, d.Acknowledged, d.Unacknowledged = t.departure.progress()
		d.Incoming = st.RemoteWait
		_, d.Outgoing = t.core.moving(ctx)
		d.Finished = int(st.FinishedTotal - before.FinishedTotal)
		d.Cancelled = int(st.CancelledTotal - before.CancelledTotal)
		d.Moved = int(st.MovedTotal - before.MovedTotal)
		if cut {
			d.CutOff = left // their frontends compute them again elsewhere, if they can
		}
		return nil
	}
}

// open lists at most limit sequences, or images, that the worker has in hand, and counts all.
func (t *term) open(ctx context.Context, limit int) ([]cluster.OpenSequence, int, error) {
	if !t.role.HoldsKV() {
		images, n := t.duty.InHand(limit)
		open := make([]cluster.OpenSequence, len(images))
		for i, m := range images {
			open[i] = cluster.OpenSequence{RequestID: m.RequestID, AgeMS: m.AgeMS}
		}
		return open, n, nil
	}
	open, left, err := t.core.open(ctx, limit)
	for i := range open {
		open[i].Why = t.duty.Why(open[i].RequestID)
	}
	return open, left, err
}
