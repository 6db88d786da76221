// Package runtimetest makes runtimes that share a store, a request plane and a bus within
// one test, without sockets or servers.
//
// Start with [New] and [Cluster.Runtime]. A Cluster owns everything it makes and closes
// it when the test ends. The package is for tests only.
package runtimetest

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/store"
)

// closeTimeout limits closing a runtime whose handlers do not return.
const closeTimeout = 30 * time.Second

// Cluster is the store, request plane and bus that runtimes share.
type Cluster struct {
	Store *store.Memory // SetOutage makes it unreachable
	Plane *requestplane.Memory
	Bus   *events.Memory
	Log   *slog.Logger // discards; set it before making runtimes to see more
}

// New returns an empty cluster.
func New(t testing.TB) *Cluster {
	c := &Cluster{
		Store: store.NewMemory(nil),
		Plane: requestplane.NewMemory(),
		Bus:   events.NewMemory(),
		Log:   slog.New(slog.DiscardHandler),
	}
	t.Cleanup(func() {
		if err := c.Bus.Close(); err != nil {
			t.Error(err)
		}
		if err := c.Store.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Config returns the configuration of a runtime with a server, a client and a
// bus of its own, all closed when the test ends.
func (c *Cluster) Config(t testing.TB, worker string) runtime.Config {
	t.Helper()
	server, client, bus := c.Plane.NewServer(requestplane.Limits{}, c.Log), c.Plane.NewClient(), c.Bus.Join()
	t.Cleanup(func() {
		for _, close := range []func() error{client.Close, server.Close, bus.Close} {
			if err := close(); err != nil {
				t.Error(err)
			}
		}
	})
	return runtime.Config{
		Store:       c.Store,
		Server:      server,
		Client:      client,
		Bus:         bus,
		Worker:      worker,
		Node:        "node-1",
		Incarnation: "run-1",
		Log:         c.Log,
	}
}

// Runtime starts a runtime in the default namespace. The changes are applied to
// its configuration first.
func (c *Cluster) Runtime(t testing.TB, worker string, changes ...func(*runtime.Config)) *runtime.DistributedRuntime {
	t.Helper()
	cfg := c.Config(t, worker)
	for _, change := range changes {
		change(&cfg)
	}
	d, err := runtime.New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Errorf("close %s: %v", worker, err)
		}
	})
	return d
}

// Client follows an endpoint on behalf of a runtime until the test ends.
func Client(t testing.TB, src runtime.Source, component, endpoint string) *runtime.Client {
	t.Helper()
	client, err := runtime.NewClient(t.Context(), src, component, endpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}
