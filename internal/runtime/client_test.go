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

func TestClientFindsOnlyItsEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		a, b := c.Runtime(t, "worker-1"), c.Runtime(t, "worker-2")
		elsewhere := c.Runtime(t, "worker-3", func(cfg *runtime.Config) { cfg.Namespace = "dynamo.child" })
		for _, d := range []*runtime.DistributedRuntime{a, b, elsewhere} {
			serve(t, d, "generate", echo(""))
			serve(t, d, "generate2", echo(""))
		}
		client := runtimetest.Client(t, a, "backend", "generate")
		waitFor(t, client, a.ID(), b.ID())
		child := runtimetest.Client(t, elsewhere, "backend", "generate")
		waitFor(t, child, elsewhere.ID())

		cfg := c.Config(t, "")
		byConfig := runtimetest.Client(t, cfg, "backend", "generate")
		waitFor(t, byConfig, a.ID(), b.ID())
		if _, err := runtime.NewClient(t.Context(), cfg, "a/b", "generate"); !errors.Is(err, cluster.ErrName) {
			t.Errorf("bad name: got %v, want %v", err, cluster.ErrName)
		}
	})
}

// One value that cannot be read takes nothing else away.
func TestClientIgnoresBadRegistrations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		serve(t, d, "generate", echo("worker-1"))
		client := runtimetest.Client(t, d, "backend", "generate")
		prefix := cluster.InstancePrefix("dynamo", "backend", "generate")
		for key, body := range map[string]string{
			prefix + "77":            "{",
			prefix + "78":            `{"instance_id": 79}`,
			prefix + d.ID().String(): "{",
		} {
			if _, err := c.Store.Put(t.Context(), key, []byte(body)); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		waitFor(t, client, d.ID())
		if got, err := ask(t.Context(), client, client.Instances()[0]); err != nil || got != "worker-1" {
			t.Errorf("call: got %q, %v", got, err)
		}
	})
}

func TestClientQuarantine(t *testing.T) {
	tests := []struct {
		name string
		// fail makes a call fail, or the stream of one.
		fail func(t *testing.T, client *runtime.Client, inst cluster.Instance, server requestplane.Server) error
		want error
	}{
		{"cannot connect", func(t *testing.T, client *runtime.Client, inst cluster.Instance, server requestplane.Server) error {
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
			_, err := client.Call(t.Context(), inst, "req-1", nil, nil)
			return err
		}, requestplane.ErrCannotConnect},
		{"breaks off", func(t *testing.T, client *runtime.Client, inst cluster.Instance, server requestplane.Server) error {
			stream, err := client.Call(t.Context(), inst, "req-1", nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			next(t, stream, "started")
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
			_, err = recv(t.Context(), stream)
			return err
		}, requestplane.ErrIncomplete},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runtimetest.New(t)
				var server requestplane.Server
				bad := c.Runtime(t, "worker-1", func(cfg *runtime.Config) { server = cfg.Server })
				good := c.Runtime(t, "worker-2")
				served := serve(t, bad, "generate", hold(nil))
				serve(t, good, "generate", echo("worker-2"))
				client := runtimetest.Client(t, good, "backend", "generate")
				waitFor(t, client, bad.ID(), good.ID())

				if err := tc.fail(t, client, served.Instance(), server); !errors.Is(err, tc.want) {
					t.Fatalf("error: got %v, want %v", err, tc.want)
				}
				if got := client.Instances(); len(got) != 1 || got[0].InstanceID != good.ID() {
					t.Errorf("right after: got %v, want only %s", got, good.ID())
				}
				if got := client.All(); len(got) != 2 {
					t.Errorf("all: got %v", got)
				}
				time.Sleep(runtime.Quarantine - time.Millisecond)
				if len(client.Instances()) != 1 {
					t.Error("offered again too early")
				}
				time.Sleep(2 * time.Millisecond)
				synctest.Wait()
				waitFor(t, client, bad.ID(), good.ID())
			})
		})
	}
}

func TestClientQuarantineEndsWithANewRegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		served := serve(t, d, "generate", echo(""))
		client := runtimetest.Client(t, d, "backend", "generate")
		client.ReportDown(12345) // unknown: nothing happens
		waitFor(t, client, d.ID())
		client.ReportDown(d.ID())
		waitFor(t, client)

		// An outage of the store says nothing about the instance.
		c.Store.SetOutage(true)
		c.Store.SetOutage(false)
		synctest.Wait()
		if got := client.Instances(); len(got) != 0 {
			t.Errorf("after a resync: got %v", got)
		}
		if err := served.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := served.Join(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		waitFor(t, client, d.ID())
		if waited := time.Since(start); waited > 0 {
			t.Errorf("offered again only after %s", waited)
		}
	})
}

func TestClientDoesNotBlameTheInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		served := serve(t, d, "generate", func(ctx context.Context, req *requestplane.Request, _ func(any) error) error {
			switch req.ID {
			case "overloaded":
				return &requestplane.RemoteError{Kind: requestplane.KindOverloaded}
			case "slow":
				<-ctx.Done()
				return context.Cause(ctx)
			}
			return errors.New("failed")
		})
		client := runtimetest.Client(t, d, "backend", "generate")
		waitFor(t, client, d.ID())
		for _, id := range []string{"overloaded", "slow", "failed"} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			stream, err := client.Call(ctx, served.Instance(), id, nil, nil)
			if err == nil {
				_, err = recv(ctx, stream)
				stream.Close()
			}
			cancel()
			if err == nil {
				t.Errorf("%s: no error", id)
			}
			if len(client.Instances()) != 1 {
				t.Errorf("%s: the instance was reported down for %v", id, err)
			}
		}
	})
}

func TestClientWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, d, "backend", "generate")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.Wait(ctx, 1); !errors.Is(err, runtime.ErrNoInstances) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("wait: got %v, want %v", err, runtime.ErrNoInstances)
		}
		waited := make(chan error, 2)
		for range 2 {
			go func() { waited <- client.Wait(t.Context(), 1) }()
		}
		serve(t, d, "generate", echo(""))
		for range 2 {
			if err := <-waited; err != nil {
				t.Error(err)
			}
		}
		go func() { waited <- client.Wait(t.Context(), 2) }()
		synctest.Wait()
		client.Close()
		client.Close()
		if err := <-waited; !errors.Is(err, runtime.ErrClosed) {
			t.Errorf("wait on a closed client: got %v, want %v", err, runtime.ErrClosed)
		}
	})
}

func TestClientWithoutAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		cfg := c.Config(t, "")
		c.Store.SetOutage(true)
		if _, err := runtime.NewClient(t.Context(), cfg, "backend", "generate"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("client: got %v, want %v", err, store.ErrUnavailable)
		}
		if _, err := runtime.New(t.Context(), cfg); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("runtime: got %v, want %v", err, store.ErrUnavailable)
		}
		cfg.Store = nil
		if _, err := runtime.New(t.Context(), cfg); err == nil {
			t.Error("a runtime without a store was made")
		}
	})
}

// Whoever waits for an instance to be gone learns of it when no request can be sent to it
// any more, be it in quarantine or not.
func TestClientWaitsUntilAnInstanceIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		served := serve(t, d, "generate", echo(""))
		client := runtimetest.Client(t, d, "backend", "generate")
		waitFor(t, client, d.ID())
		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.WaitGone(short, d.ID()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it is there: got %v", err)
		}
		client.ReportDown(d.ID())
		short, cancel = context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := client.WaitGone(short, d.ID()); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("it comes back after its quarantine: got %v", err)
		}
		gone := make(chan error, 1)
		go func() { gone <- client.WaitGone(t.Context(), d.ID()) }()
		if err := served.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-gone; err != nil || len(client.Instances()) != 0 {
			t.Errorf("got %v with %v", err, client.Instances())
		}
		if err := client.WaitGone(t.Context(), 4711); err != nil {
			t.Errorf("nobody ever was: %v", err)
		}
	})
}

// Those who follow the registered instances learn that one in quarantine has gone.
func TestClientTellsThatAnInstanceInQuarantineIsGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		served := serve(t, d, "generate", echo(""))
		client := runtimetest.Client(t, d, "backend", "generate")
		waitFor(t, client, d.ID())
		client.ReportDown(d.ID())
		waitFor(t, client)
		synctest.Wait()
		select {
		case <-client.Changed():
		default:
		}
		if err := served.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		select {
		case <-client.Changed():
		case <-time.After(2 * runtime.Quarantine):
		}
		if all := client.All(); time.Since(start) > 0 || len(all) != 0 {
			t.Errorf("told after %s of %v", time.Since(start), all)
		}
	})
}
