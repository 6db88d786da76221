package prefill

import (
	"context"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// Kind is the role in the table of the worker.
var Kind = role.Kind{Endpoint: cluster.EndpointPrefill, New: newRole}

// Role is a worker that prefills, for one term.
type Role struct {
	role.Base
	*role.Term

	consumer consumer
	holds    *holds // computed KV that decode workers read
	rooms    *rooms // where decode workers meet prefills in the background
}

func newRole(_ context.Context, t *role.Term) (role.Role, error) {
	// Prefill workers have nothing to say to each other.
	t.Peers.MeetSome(func(r cluster.Role) bool { return r != cluster.RolePrefill })
	return &Role{Term: t, holds: newHolds(), rooms: newRooms()}, nil
}

// Register implements role.Role.
func (w *Role) Register(ctx context.Context) error {
	inst, err := w.Serve(ctx, cluster.EndpointBootstrap, w.Metered(w.serveRoom))
	if err != nil {
		return err
	}
	bootstrap, err := cluster.BootstrapAt(inst.Transport.Address())
	if err != nil {
		return err
	}
	if err := w.PublishCard(ctx, bootstrap); err != nil {
		return err
	}
	// Before the endpoint that decode workers look at: who finds that finds this.
	firstHop := func(call context.Context, r *requestplane.Request, send func(any) error) error {
		return w.serveFirstHop(call, ctx, r, send)
	}
	if _, err := w.Serve(ctx, cluster.EndpointGenerate, w.Metered(firstHop)); err != nil {
		return err
	}
	_, err = w.Serve(ctx, cluster.EndpointPrefill, w.Metered(w.serveCall))
	return err
}

// Noticed implements kv.Listener: decode workers tell that they have read held KV.
func (w *Role) Noticed(_ string, n protocol.PrefillNotice) {
	if n.Phase == protocol.PrefillRead {
		w.holds.read(n)
	}
}

// DrainSteps implements role.Role: messages in work need admission.
func (w *Role) DrainSteps() []role.Step {
	return []role.Step{{Name: cluster.DrainAdmission, Done: func(context.Context) (bool, error) {
		select {
		case <-w.consumer.stopped():
			return true, nil
		default:
			return false, nil
		}
	}}}
}

// Idle implements role.Role.
func (w *Role) Idle() error {
	w.holds.mu.Lock()
	defer w.holds.mu.Unlock()
	if n := len(w.holds.byTicket); n > 0 {
		return fmt.Errorf("%d prompts are held", n)
	}
	return nil
}

// End implements role.Role: handlers of messages end with the engine.
func (w *Role) End() { <-w.consumer.stopped() }
