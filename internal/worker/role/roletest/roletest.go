// Package roletest gives roles a term without a worker. Start with [New]. It is for tests
// only.
package roletest

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/engine"
	"github.com/dynctl/dynctl/internal/engine/mock"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/metrics"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/router"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/worker/kv/kvtest"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// World is a cluster in which roles have terms.
type World struct {
	*runtimetest.Cluster
	Net      *kvtest.Net
	registry *metrics.Registry
}

// New returns a world without workers.
func New(t testing.TB) *World {
	return &World{runtimetest.New(t), kvtest.New(t), metrics.NewRegistry()}
}

// Scrape returns a scrape of the metrics of all terms.
func (w *World) Scrape() string {
	rec := httptest.NewRecorder()
	w.registry.Handler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return rec.Body.String()
}

// Term gives a term to a worker, whose engine runs until the test ends.
func (w *World) Term(t testing.TB, worker string, as cluster.Role) *role.Term {
	t.Helper()
	plane := w.Net.Open(t, worker)
	backend := mock.New(kvtest.Options)
	if _, err := backend.AllocKV(kvtest.Blocks); err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Config{NumBlocks: kvtest.Blocks, HashSeed: cluster.DefaultHashSeed, Log: w.Log}, backend)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Run(ctx) // it ends when it is told to
	}()
	t.Cleanup(func() {
		stop()
		<-ended
		if err := backend.Close(); err != nil {
			t.Error(err)
		}
	})
	peers, err := plane.Follow(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(peers.Close)
	limits := role.DefaultLimits()
	return &role.Term{
		Host: host{t, w.Runtime(t, worker), as}, Worker: worker, Log: w.Log,
		Meter:  metrics.NewWorker(w.registry, metrics.WorkerLabels{Component: as.Component(), Worker: worker}, time.Now()),
		Engine: e, KV: plane, Model: role.Model{Digest: kvtest.Digest}, Peers: peers,
		Queue: events.NewMemoryQueue(events.QueueConfig{}), Bus: w.Bus,
		Settings: func() role.Settings {
			return role.Settings{Prefill: router.PrefillLimits{MaxQueueDepth: 1000}, RemoteTimeout: 20 * time.Second}
		},
		QueueDepth: func() int { return 0 }, Limits: &limits, Ending: ctx.Done(),
	}
}

// host is a term's way into the cluster, without discovery of its own.
type host struct {
	t   testing.TB
	drt *runtime.DistributedRuntime
	as  cluster.Role
}

func (h host) ID() cluster.InstanceID { return h.drt.ID() }

func (h host) Serve(ctx context.Context, endpoint string, f requestplane.Handler) (cluster.Instance, error) {
	s, err := h.drt.Serve(ctx, h.as.Component(), endpoint, f)
	if err != nil {
		return cluster.Instance{}, err
	}
	return s.Instance(), nil
}

func (host) PublishCard(context.Context, *cluster.BootstrapEndpoint) error { return nil }

func (h host) Client(_ context.Context, of cluster.Endpoint) (*runtime.Client, error) {
	return runtimetest.Client(h.t, h.drt, of.Component, of.Name), nil
}
