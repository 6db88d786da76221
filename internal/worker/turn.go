package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
)

// errTurned ends the obedience of a worker that is drained and takes another role.
var errTurned = errors.New("takes another role")

// Turn makes the worker take another role: it finishes or hands over what it has, as in
// a drain, and joins again as next says. Weights, KV pool and what is cached in it stay,
// and so does the NIXL agent with its registered memory; lease and instance id are new,
// so that nobody who knew it in the old role reaches it in the new one. Until it has
// left the old role, Resume takes that back.
func (w *Worker) Turn(ctx context.Context, next cluster.Assignment) error {
	return w.give(ctx, order{assignment: &next})
}

// term is the time of a worker in one role.
type term struct {
	stop func()
	done chan struct{} // closed when notifications are read no more
}

// end ends the goroutine of a term. It does nothing to a term that never began.
func (t *term) end() {
	if t != nil {
		t.stop()
		<-t.done
	}
}

// beginTerm joins the cluster in the present role.
func (w *Worker) beginTerm(ctx context.Context) (*term, error) {
	drt := w.drt.Load()
	err := w.follow(ctx, drt)
	listening, stop := context.WithCancel(ctx)
	t := &term{stop: stop, done: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() { w.kv.Listen(listening, w) })
	if err == nil && w.prefills != nil {
		wg.Go(func() { w.watchPrefills(listening) })
	}
	go func() { defer close(t.done); wg.Wait() }()
	if err == nil {
		err = w.join(ctx, drt)
	}
	return t, err
}

// turn ends a term after its drain and prepares the next one, under a lease of its own.
func (w *Worker) turn(ctx context.Context, t *term) error {
	next := *w.next
	w.log.Info("taking another role", "from", string(w.Role()), "to", string(next.Role))
	w.closeServed(ctx)
	w.served, w.announced = nil, nil
	t.end()
	if w.peers != nil {
		w.peers.ForgetAll()
	}
	w.unfollow()

	old := w.drt.Load()
	drt, err := w.newRuntime(ctx)
	if err != nil {
		return err
	}
	w.writing.Lock()
	w.assigned.Store(&next)
	w.drt.Store(drt)
	w.board.update(func(st *cluster.WorkerStatus) { st.Role, st.Generation, st.Drain = next.Role, next.Generation, nil })
	err = w.writeStatusLocked(ctx) // before the key goes with the old lease
	w.writing.Unlock()
	w.remeter()
	if err == nil {
		err = w.publishMetadata(ctx, drt) // the same
	}
	if cerr := old.Close(ctx); cerr != nil {
		w.log.Warn("the lease of the former role is left to expire", "error", cerr)
	}
	if err != nil {
		return err
	}
	return w.engine.Load().ResumeAdmission(ctx)
}
