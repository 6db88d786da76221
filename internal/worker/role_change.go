package worker

import (
	"context"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// nextTerm ends a term after its drain, if it has begun, and gives the worker the next one, under
// a lease of its own: in another role, or after its server has slept. The caller begins it.
func (w *Worker) nextTerm(ctx context.Context, c core, old *term, next cluster.Assignment) error {
	if next.Role != old.role {
		w.log.Info("taking another role", "from", string(old.role), "to", string(next.Role))
	}
	old.close(ctx)
	if old.duty != nil {
		if err := old.duty.Idle(); err != nil {
			w.log.Error("a role ends with unfinished work", "role", string(old.role), "error", err)
		}
		c.forget(old)
	}
	old.end()

	t, err := w.newTerm(ctx, next.Role)
	if err != nil {
		return err
	}
	w.board.writing.Lock()
	w.assigned.Store(&next)
	w.term.Store(t)
	w.board.update(func(st *cluster.WorkerStatus) {
		st.Role, st.Generation, st.Drain = next.Role, next.Generation, drained(st.Drain, next)
	})
	err = w.writeStatusLocked(ctx) // before the key goes with the old lease
	w.board.writing.Unlock()
	if err == nil {
		err = t.publishMetadata(ctx, c) // the same
	}
	if cerr := old.drt.Close(ctx); cerr != nil {
		w.log.Warn("the lease of the former role is left to expire", "error", cerr)
	}
	if err != nil {
		return err
	}
	return c.resumeAdmission(ctx)
}

// drained returns what is told of a drain that is complete: nothing of one after which the worker
// serves, and that it is safe of one after which its server sleeps.
func drained(d *cluster.DrainStatus, next cluster.Assignment) *cluster.DrainStatus {
	if next.SleepLevel() == 0 {
		return nil
	}
	done := cluster.DrainStatus{StartedAt: time.Now()}
	if d != nil {
		done = *d
	}
	done.Step, done.Safe, done.EndedAt = cluster.DrainLease, true, time.Now()
	done.Left, done.Incoming, done.Outgoing, done.Open = 0, 0, 0, nil
	return &done
}
