package decode

import (
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Kind is the role in the table of the worker.
var Kind = role.Kind{Endpoint: cluster.EndpointGenerate, New: newRole}

// Role is a worker that decodes, for one term.
type Role struct {
	role.Base
	*role.Term

	prefills *runtime.Client // the prefill workers
	others   *runtime.Client // the decode workers that take over sequences

	waiters  *waiters     // remote prefills on their way
	asked    outstanding  // on the prefill queue
	calls    *router.Load // of this worker at prefill workers, without the queue
	requests requests     // of the sequences in the engine
	arrivals arrivals     // sequences on their way here
	mover    *mover       // while a drain moves sequences; nil otherwise

	stopWatching context.CancelFunc
	watching     sync.WaitGroup
}

func newRole(ctx context.Context, t *role.Term) (role.Role, error) {
	w := &Role{Term: t, waiters: newWaiters(), calls: router.NewLoad()}
	var err error
	if w.prefills, err = t.Client(ctx, cluster.Endpoint{Component: cluster.RolePrefill.Component(), Name: cluster.EndpointPrefill}); err != nil {
		return nil, err
	}
	if w.others, err = t.Client(ctx, cluster.Endpoint{Component: cluster.RoleDecode.Component(), Name: cluster.EndpointHandover}); err != nil {
		return nil, err
	}
	ctx, w.stopWatching = context.WithCancel(ctx)
	w.watching.Go(func() { w.watchPrefills(ctx) })
	return w, nil
}

// watchPrefills tells the waiters when no prefill worker is left, until ctx ends.
func (w *Role) watchPrefills(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.prefills.Changed():
			if len(w.prefills.Instances()) == 0 {
				w.waiters.fail("", errNoPrefill)
			}
		}
	}
}

// Register implements role.Role.
func (w *Role) Register(ctx context.Context) error {
	if err := w.PublishCard(ctx, nil); err != nil {
		return err
	}
	if _, err := w.Serve(ctx, cluster.EndpointGenerate, w.Metered(w.generate)); err != nil {
		return err
	}
	_, err := w.Serve(ctx, cluster.EndpointHandover, w.serveHandover)
	return err
}

// Noticed implements kv.Listener: prefill workers tell how far they are.
func (w *Role) Noticed(agent string, n protocol.PrefillNotice) {
	if n.Phase != protocol.PrefillRead {
		w.waiters.deliver(agent, n)
	}
}

// PeerLost implements kv.Listener.
func (w *Role) PeerLost(agent string) {
	w.waiters.fail(agent, fmt.Errorf("%w: %s", errPrefillLost, agent))
}

// DrainSteps implements role.Role: from the end of admission on, sequences move to other
// decode workers.
func (w *Role) DrainSteps() []role.Step {
	return []role.Step{{
		Name:  cluster.DrainIncoming,
		Begin: func(ctx context.Context) { w.mover = w.startMover(ctx) },
		End: func() {
			w.mover.stop()
			w.mover = nil
		},
	}}
}

// Why implements role.Role.
func (w *Role) Why(sequence string) string { return w.mover.reason(sequence) }

// Idle implements role.Role.
func (w *Role) Idle() error {
	w.waiters.mu.Lock()
	defer w.waiters.mu.Unlock()
	w.arrivals.mu.Lock()
	defer w.arrivals.mu.Unlock()
	w.requests.mu.Lock()
	defer w.requests.mu.Unlock()
	w.asked.mu.Lock()
	defer w.asked.mu.Unlock()
	calls := 0
	for _, i := range w.prefills.Instances() {
		calls += w.calls.InFlight(i.InstanceID)
	}
	if n := [...]int{len(w.waiters.byTicket), len(w.arrivals.byID), len(w.requests.byID), w.asked.all, calls}; n != [5]int{} {
		return fmt.Errorf("%d remote prefills, %d arrivals, %d requests, %d prompts in the queue, %d direct calls are open", n[0], n[1], n[2], n[3], n[4])
	}
	return nil
}

// End implements role.Role.
func (w *Role) End() {
	w.stopWatching()
	w.watching.Wait()
}
