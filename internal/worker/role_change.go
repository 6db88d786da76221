package worker

import (
	"context"

	"github.com/dynctl/dynctl/internal/cluster"
)

// changeRole ends a term after its drain, and gives the worker the next one, under a lease
// of its own. The caller begins it.
func (w *Worker) changeRole(ctx context.Context, old *term, next cluster.Assignment) error {
	w.log.Info("taking another role", "from", string(old.role), "to", string(next.Role))
	old.close(ctx)
	if err := old.duty.Idle(); err != nil {
		w.log.Error("a role ends with unfinished work", "role", string(old.role), "error", err)
	}
	old.core.forget(old)
	old.end()

	t, err := w.newTerm(ctx, next.Role)
	if err != nil {
		return err
	}
	w.board.writing.Lock()
	w.assigned.Store(&next)
	w.term.Store(t)
	w.board.update(func(st *cluster.WorkerStatus) { st.Role, st.Generation, st.Drain = next.Role, next.Generation, nil })
	err = w.writeStatusLocked(ctx) // before the key goes with the old lease
	w.board.writing.Unlock()
	if err == nil {
		err = t.publishMetadata(ctx, old.core) // the same
	}
	if cerr := old.drt.Close(ctx); cerr != nil {
		w.log.Warn("the lease of the former role is left to expire", "error", cerr)
	}
	if err != nil {
		return err
	}
	return old.core.resumeAdmission(ctx)
}
