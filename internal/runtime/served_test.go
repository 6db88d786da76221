package runtime_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

func TestServeRegistersWhatAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		worker := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, c.Runtime(t, "frontend-1"), "backend", "generate")
		if got := client.Instances(); len(got) != 0 {
			t.Fatalf("before: got %v", got)
		}
		served := serve(t, worker, "generate", echo("worker-1"))
		inst := only(t, client)
		want := cluster.Instance{
			Type: "Endpoint", Namespace: "dynamo", Component: "backend", Endpoint: "generate",
			InstanceID: worker.ID(), Codec: "msgpack",
			Worker: "worker-1", Node: "node-1", Incarnation: "run-1",
			Transport: cluster.Transport{TCP: "memory:1/" + worker.ID().String() + "/generate"},
		}
		if inst != want || served.Instance() != want {
			t.Errorf("instance:\n got %+v\nwant %+v", inst, want)
		}
		if got, err := ask(t.Context(), client, inst); err != nil || got != "worker-1" {
			t.Errorf("answer: got %q, %v", got, err)
		}
		kv, err := c.Store.Get(t.Context(), want.Key())
		if err != nil || kv.Lease != worker.ID() {
			t.Errorf("key: got lease %s, %v", kv.Lease, err)
		}
	})
}

func TestServeRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		serve(t, d, "generate", echo("first"))
		tests := []struct {
			name                string
			component, endpoint string
			want                error
		}{
			{"a name served already", "backend", "generate", requestplane.ErrEndpointExists},
			{"a component with a slash", "a/b", "generate", cluster.ErrName},
			{"an empty component", "", "generate", cluster.ErrName},
			{"upper case", "Backend", "generate", cluster.ErrName},
			{"an empty endpoint", "backend", "", cluster.ErrName},
			{"an endpoint with a blank", "backend", "a b", cluster.ErrName},
		}
		for _, tc := range tests {
			if _, err := d.Serve(t.Context(), tc.component, tc.endpoint, echo("second")); !errors.Is(err, tc.want) {
				t.Errorf("%s: got %v, want %v", tc.name, err, tc.want)
			}
		}
		client := runtimetest.Client(t, d, "backend", "generate")
		if got, err := ask(t.Context(), client, only(t, client)); err != nil || got != "first" {
			t.Errorf("the first one: got %q, %v", got, err)
		}
		for _, namespace := range []string{"a/b", "A", ".a", "a..b", "a b"} {
			cfg := c.Config(t, "worker-2")
			cfg.Namespace = namespace
			if _, err := runtime.New(t.Context(), cfg); !errors.Is(err, cluster.ErrName) {
				t.Errorf("namespace %q: got %v, want %v", namespace, err, cluster.ErrName)
			}
		}
	})
}

func TestLeaveKeepsAnswering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, d, "backend", "generate")
		release := make(chan struct{})
		served := serve(t, d, "generate", hold(release))
		inst := only(t, client)
		stream, err := client.Call(t.Context(), inst, "req-1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next(t, stream, "started")
		if n := served.InFlight(); n != 1 {
			t.Errorf("in flight: got %d, want 1", n)
		}

		for range 2 {
			if err := served.Leave(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, client)
		late, err := client.Call(t.Context(), inst, "req-2", nil, nil)
		if err != nil {
			t.Fatalf("call after leave: %v", err)
		}
		next(t, late, "started")
		if err := served.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		waitFor(t, client, d.ID())

		// Close refuses new requests and waits for the two running ones.
		closed := make(chan error, 1)
		go func() { closed <- served.Close(t.Context()) }()
		synctest.Wait()
		waitFor(t, client)
		if _, err := ask(t.Context(), client, inst); !errors.Is(err, requestplane.ErrDraining) {
			t.Errorf("call while closing: got %v, want %v", err, requestplane.ErrDraining)
		}
		select {
		case err := <-closed:
			t.Fatalf("closed with requests running: %v", err)
		default:
		}
		close(release)
		for _, s := range []requestplane.Stream{stream, late} {
			if got, err := recv(t.Context(), s); err != nil || got != "done" {
				t.Errorf("running request: got %q, %v", got, err)
			}
		}
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if _, err := ask(t.Context(), client, inst); !errors.Is(err, requestplane.ErrUnknownEndpoint) {
			t.Errorf("call after close: got %v, want %v", err, requestplane.ErrUnknownEndpoint)
		}
		if err := served.Join(t.Context()); !errors.Is(err, runtime.ErrClosed) {
			t.Errorf("join after close: got %v, want %v", err, runtime.ErrClosed)
		}
		serve(t, d, "generate", echo("again")) // the name is free
		if got, err := ask(t.Context(), client, only(t, client)); err != nil || got != "again" {
			t.Errorf("the successor: got %q, %v", got, err)
		}
	})
}

func TestServedCloseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, d, "backend", "generate")
		release := make(chan struct{})
		served := serve(t, d, "generate", hold(release))
		stream, err := client.Call(t.Context(), only(t, client), "req-1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next(t, stream, "started")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := served.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("close: got %v, want %v", err, context.DeadlineExceeded)
		}
		close(release)
		if err := served.Close(t.Context()); err != nil {
			t.Errorf("close again: %v", err)
		}
	})
}

func TestAnnounce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "frontend-1")
		client := runtimetest.Client(t, d, cluster.ComponentFrontend, cluster.EndpointHTTP)
		served, err := d.Announce(t.Context(), cluster.ComponentFrontend, cluster.EndpointHTTP, cluster.Transport{HTTP: "http://127.0.0.1:8000"})
		if err != nil {
			t.Fatal(err)
		}
		inst := only(t, client)
		if inst.Transport.HTTP != "http://127.0.0.1:8000" || inst.Transport.TCP != "" || inst.Codec != "" {
			t.Errorf("instance: got %+v", inst)
		}
		if _, err := ask(t.Context(), client, inst); !errors.Is(err, runtime.ErrNoTransport) {
			t.Errorf("call: got %v, want %v", err, runtime.ErrNoTransport)
		}
		if err := served.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		waitFor(t, client)
	})
}

func TestCloseTakesEverythingAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		other := c.Runtime(t, "worker-2")
		serve(t, other, "generate", echo("worker-2"))
		d := c.Runtime(t, "worker-1")
		served := serve(t, d, "generate", echo("worker-1"))
		owned, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v"))
		if err != nil {
			t.Fatal(err)
		}
		client := runtimetest.Client(t, other, "backend", "generate")
		inst := served.Instance()
		for range 2 {
			if err := d.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, client, other.ID())
		if got := value(t, c.Store, "p/k"); got != "" {
			t.Errorf("a key outlived the runtime: %q", got)
		}
		if _, err := ask(t.Context(), client, inst); !errors.Is(err, requestplane.ErrUnknownEndpoint) {
			t.Errorf("call: got %v, want %v", err, requestplane.ErrUnknownEndpoint)
		}
		for name, err := range map[string]error{
			"update": owned.Update(t.Context(), byID("v2")),
			"join":   served.Join(t.Context()),
			"serve":  func() error { _, err := d.Serve(t.Context(), "backend", "stats", echo("")); return err }(),
			"put":    func() error { _, err := d.PutOwned(t.Context(), fixed("p/k"), byID("")); return err }(),
			"elect":  d.Elect(t.Context(), "/leader", "", func(context.Context) error { return nil }),
		} {
			if !errors.Is(err, runtime.ErrClosed) {
				t.Errorf("%s after close: got %v, want %v", name, err, runtime.ErrClosed)
			}
		}
		if err := served.Close(t.Context()); err != nil {
			t.Errorf("close of an endpoint after close: %v", err)
		}
		if _, _, err := c.Store.LeaseTTL(t.Context(), d.ID()); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("lease: got %v, want %v", err, store.ErrLeaseNotFound)
		}
	})
}
