package worker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/worker/kv"
	"github.com/dynctl/dynctl/internal/worker/media"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// term is one term of service of a worker: all that it has in one role and gives back with
// it. A worker that takes another role gets another term.
type term struct {
	cfg    *Config
	log    *slog.Logger
	kind   role.Kind
	role   cluster.Role
	waits  *waits
	status func() cluster.WorkerStatus // of the worker
	events *kvEvents                   // of the worker
	drt    *runtime.DistributedRuntime // with the lease
	meter  *metrics.Worker

	// Set by begin.
	core      core
	duty      role.Role
	images    *media.Finder              // nil for a model that takes none
	peers     *kv.Peers                  // metadata of others
	clients   map[string]*runtime.Client // by component and endpoint
	card      *runtime.Owned             // nil before PublishCard
	served    []*runtime.Served
	probed    atomic.Pointer[runtime.Served] // the first of announced, which is probed for all
	announced []*runtime.Served              // those that routers use
	listening sync.WaitGroup
	hush      context.CancelFunc // ends the listening

	departure *departure // of the drain under way; nil otherwise
}

// newTerm takes a lease for a term in a role.
func (w *Worker) newTerm(ctx context.Context, as cluster.Role) (*term, error) {
	kind, ok := w.roles[as]
	if !ok {
		return nil, fmt.Errorf("no worker can take the role %q", as)
	}
	drt, err := w.newRuntime(ctx)
	if err != nil {
		return nil, err
	}
	return &term{
		cfg: &w.cfg, log: w.log, kind: kind, role: as, waits: &w.waits, status: w.Status, events: w.events,
		clients: map[string]*runtime.Client{},
		drt:     drt, meter: w.meters.relabel(as, kind.Endpoint),
	}, nil
}

func (w *Worker) newRuntime(ctx context.Context) (*runtime.DistributedRuntime, error) {
	cfg := w.cfg.Runtime
	cfg.Worker, cfg.Log = w.Name(), w.cfg.Log
	drt, err := runtime.New(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("join the cluster: %w", err)
	}
	drt.OnRelease(func(_, _ cluster.InstanceID) {
		// The status key went with the lost lease; write it under the new one.
		w.board.update(func(*cluster.WorkerStatus) {})
		if m := w.meters.now(); m != nil {
			m.LeaseLosses.Inc()
		}
	})
	return drt, nil
}

// publishMetadata tells others how to reach the NIXL agent of a core, if it has one.
func (t *term) publishMetadata(ctx context.Context, c core) error {
	a := c.agent()
	if a == nil {
		return nil
	}
	key := func(cluster.InstanceID) string { return cluster.NIXLMetadataKey(t.cfg.Namespace, a.Name()) }
	if _, err := t.drt.PutOwned(ctx, key, func(cluster.InstanceID) []byte { return a.Metadata() }); err != nil {
		return fmt.Errorf("publish NIXL metadata: %w", err)
	}
	return nil
}

// begin joins the cluster in the role of the term. ctx ends when work in hand must stop.
func (t *term) begin(ctx context.Context, c core) error {
	t.core = c
	if err := c.begin(ctx, t); err != nil {
		return err
	}
	if err := t.serveOperators(ctx); err != nil {
		return err
	}
	if err := t.duty.Register(ctx); err != nil {
		return err
	}
	t.duty.Start(ctx)
	return nil
}

// ID implements role.Host.
func (t *term) ID() cluster.InstanceID { return t.drt.ID() }

// Client implements role.Host.
func (t *term) Client(ctx context.Context, of cluster.Endpoint) (*runtime.Client, error) {
	c, err := t.drt.In(of.Namespace).Component(of.Component).Endpoint(of.Name).Client(ctx)
	if err == nil {
		t.clients[of.Component+"/"+of.Name] = c
	}
	return c, err
}

// Serve implements role.Host.
func (t *term) Serve(ctx context.Context, endpoint string, h requestplane.Handler) (cluster.Instance, error) {
	s, err := t.bind(ctx, endpoint, h, t.watched()...)
	if err != nil {
		return cluster.Instance{}, err
	}
	t.probed.CompareAndSwap(nil, s)
	t.announced = append(t.announced, s)
	return s.Instance(), nil
}

// bind serves an endpoint until the term ends.
func (t *term) bind(ctx context.Context, endpoint string, h requestplane.Handler, opts ...runtime.ServeOption) (*runtime.Served, error) {
	s, err := t.drt.Serve(ctx, t.role.Component(), endpoint, h, opts...)
	if err != nil {
		return nil, fmt.Errorf("serve %s/%s: %w", t.role.Component(), endpoint, err)
	}
	t.served = append(t.served, s)
	return s, nil
}

// leave takes the worker out of discovery; it goes on serving. Work that comes without a
// call is fetched no more.
func (t *term) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for _, s := range t.announced {
		if err := s.Leave(ctx); err != nil {
			t.log.Warn("leave discovery", "error", err) // the lease ends it otherwise
		}
	}
	if t.duty != nil {
		t.duty.Stop()
	}
}

// rejoin brings a worker that left back into discovery, at once or, when the store
// is out of reach, as soon as it is back: what runs here is no reason to end.
func (t *term) rejoin(ctx context.Context) error {
	for _, s := range t.announced {
		switch err := s.Join(ctx); {
		case errors.Is(err, runtime.ErrClosed) || ctx.Err() != nil:
			return fmt.Errorf("join discovery again: %w", err)
		case err != nil:
			t.log.Warn("not yet registered in discovery again, the runtime keeps trying", "error", err)
		}
	}
	t.duty.Start(ctx)
	return nil
}

// requestsInFlight counts calls whose answers are not completely written.
func (t *term) requestsInFlight() int {
	n := 0
	for _, s := range t.announced {
		n += s.InFlight()
	}
	return n
}

// close refuses new calls and waits for running ones, for a limited time.
func (t *term) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, stopTimeout)
	defer cancel()
	for _, s := range t.served {
		if err := s.Close(ctx); err != nil {
			t.log.Warn("close endpoint", "error", err)
		}
	}
	t.served, t.announced = nil, nil
}

// end ends all that the term has begun, except its lease. It may be called twice, and for a
// term that has not begun.
func (t *term) end() {
	if t.hush != nil {
		t.hush()
		t.listening.Wait()
	}
	if t.duty != nil {
		t.duty.End()
	}
	for _, c := range t.clients {
		c.Close()
	}
	clear(t.clients)
	if t.peers != nil {
		t.peers.Close()
		t.peers = nil
	}
}
