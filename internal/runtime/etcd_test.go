package runtime_test

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/embedded"
	"github.com/dynctl/dynctl/internal/handshake"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

const (
	shortTTL = patience.Soon / 10 // two seconds, where the race detector slows nobody down
	outage   = shortTTL * 3 / 2
)

var discard = slog.New(slog.DiscardHandler)

// etcdCluster is runtimes that meet over real etcd and TCP.
type etcdCluster struct {
	server *embedded.Etcd
	dir    string
}

func startCluster(t *testing.T) *etcdCluster {
	c := &etcdCluster{dir: t.TempDir()}
	c.start(t, "127.0.0.1:0")
	t.Cleanup(func() { c.server.Close() }) // after the runtimes, whichever server it is by then
	return c
}

func (c *etcdCluster) start(t *testing.T, addr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	server, err := embedded.StartEtcd(ctx, embedded.EtcdOptions{Dir: c.dir, ClientAddr: addr, Log: discard, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	c.server = server
}

// restart stops etcd for a while, and until during is done if there is one. It starts it on the
// same port, on the same data unless dir says otherwise.
func (c *etcdCluster) restart(t *testing.T, down time.Duration, during <-chan struct{}, dir string) {
	t.Helper()
	addr := c.server.Endpoint()
	if err := c.server.Close(); err != nil {
		t.Fatal(err)
	}
	<-time.After(down) // the outage under test
	if during != nil {
		<-during
	}
	c.dir = dir
	c.start(t, addr)
}

// testKey is that of all request planes of these tests.
var testKey = handshake.RandomKey()

func (c *etcdCluster) runtime(t *testing.T, worker string) *runtime.DistributedRuntime {
	t.Helper()
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{c.server.Endpoint()}}, discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	server, err := requestplane.ListenTCP(requestplane.ServerConfig{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	client := requestplane.NewClient(requestplane.ClientConfig{Key: testKey})
	t.Cleanup(func() { client.Close() })
	d, err := runtime.New(t.Context(), runtime.Config{
		Store: s, Server: server, Client: client, LeaseTTL: shortTTL,
		Worker: worker, Node: "node-1", Incarnation: "run-1", Log: discard,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		// After an outage the client tries again in its own time.
		patience.Until(t, "the store answers "+worker, func() bool {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := s.Get(ctx, "none")
			return errors.Is(err, store.ErrNotFound)
		})
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := d.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return d
}

// etcd is away for longer than the TTL and comes back with its data: nothing
// changes for anybody.
func TestEtcdOutage(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	worker, front := c.runtime(t, "worker-1"), c.runtime(t, "frontend-1")
	release := make(chan struct{})
	serve(t, worker, "generate", hold(release))
	owned, err := worker.PutOwned(t.Context(), fixed("p/k"), byID("v1"))
	if err != nil {
		t.Fatal(err)
	}
	client := runtimetest.Client(t, front, "backend", "generate")
	inst, id := only(t, client), worker.ID()
	running, err := client.Call(t.Context(), inst, "req-1", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	next(t, running, "started")

	during := make(chan struct{})
	go func() {
		defer close(during)
		storetest.Eventually(t, "the lease is uncertain", func() bool { return worker.Lease().Uncertain })
		if since, _, _ := client.Stale(); since.IsZero() {
			t.Error("the client does not know that it is stale")
		}
		if got := client.Instances(); len(got) != 1 || got[0] != inst {
			t.Errorf("instances during the outage: got %v", got)
		}
		late, err := client.Call(t.Context(), inst, "req-2", nil, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer late.Close()
		var item string
		if err := late.Recv(t.Context(), &item); err != nil || item != "started" {
			t.Errorf("request during the outage: got %q, %v", item, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if owned.Update(ctx, byID("v2")) == nil {
			t.Error("a write during the outage succeeded")
		}
	}()
	c.restart(t, outage, during, c.dir)

	storetest.Eventually(t, "the lease is certain", func() bool { l := worker.Lease(); return !l.Uncertain && l.Err == nil })
	storetest.Eventually(t, "the client is current", func() bool { since, _, _ := client.Stale(); return since.IsZero() })
	storetest.Eventually(t, "the update arrives", func() bool { return value(t, front.Store(), "p/k") == "v2 of "+id.String() })
	if worker.ID() != id {
		t.Errorf("id: got %s, want %s as before", worker.ID(), id)
	}
	waitFor(t, client, id)
	close(release)
	if got, err := recv(t.Context(), running); err != nil || got != "done" {
		t.Errorf("running request: got %q, %v", got, err)
	}

	// And it stays so for longer than the TTL.
	storetest.Eventually(t, "the lease is renewed", func() bool { return time.Until(worker.Lease().LastRenewed.Add(shortTTL)) > shortTTL/2 })
	if got, err := ask(t.Context(), client, only(t, client)); err != nil || got != "started done" {
		t.Errorf("request afterwards: got %q, %v", got, err)
	}
}

// etcd ends the lease although its owner lives, or comes back without its data:
// everything is registered again under another id.
func TestEtcdLeaseLoss(t *testing.T) {
	tests := []struct {
		name string
		lose func(t *testing.T, c *etcdCluster, s store.Store, id cluster.InstanceID)
	}{
		{"revoked", func(t *testing.T, _ *etcdCluster, s store.Store, id cluster.InstanceID) {
			if err := s.RevokeLease(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}},
		{"data lost", func(t *testing.T, c *etcdCluster, _ store.Store, _ cluster.InstanceID) {
			c.restart(t, 0, nil, t.TempDir())
		}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			worker, front := c.runtime(t, "worker-1"), c.runtime(t, "frontend-1")
			release := make(chan struct{})
			serve(t, worker, "generate", hold(release))
			if _, err := worker.PutOwned(t.Context(), fixed("p/k"), byID("v")); err != nil {
				t.Fatal(err)
			}
			client := runtimetest.Client(t, front, "backend", "generate")
			inst, id := only(t, client), worker.ID()
			running, err := client.Call(t.Context(), inst, "req-1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			next(t, running, "started")
			renewed := make(chan cluster.InstanceID, 1)
			worker.OnRelease(func(_, id cluster.InstanceID) { renewed <- id })

			tc.lose(t, c, front.Store(), id)
			select {
			case <-renewed:
			case <-time.After(time.Minute):
				t.Fatal("no new lease")
			}
			if worker.ID() == id {
				t.Error("still the old id")
			}
			waitFor(t, client, worker.ID())
			if got, want := value(t, front.Store(), "p/k"), "v of "+worker.ID().String(); got != want {
				t.Errorf("key: got %q, want %q", got, want)
			}
			close(release)
			if got, err := recv(t.Context(), running); err != nil || got != "done" {
				t.Errorf("running request: got %q, %v", got, err)
			}
			if got, err := ask(t.Context(), client, only(t, client)); err != nil || got != "started done" {
				t.Errorf("request at the new place: got %q, %v", got, err)
			}
		})
	}
}
