package runtime_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/runtime"
	"github.com/dynctl/dynctl/internal/runtime/runtimetest"
	"github.com/dynctl/dynctl/internal/store"
)

func TestLostLeaseIsGrantedAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, c.Runtime(t, "frontend-1"), "backend", "generate")
		release := make(chan struct{})
		served := serve(t, d, "generate", hold(release))
		away, err := d.Serve(t.Context(), "backend", "stats", echo("stats"))
		if err != nil {
			t.Fatal(err)
		}
		if err := away.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err = d.PutOwned(t.Context(), fixed("p/k"), byID("status"))
		if err != nil {
			t.Fatal(err)
		}
		card := func(id cluster.InstanceID) string { return "mdc/" + id.String() }
		if _, err := d.PutOwned(t.Context(), card, byID("card")); err != nil {
			t.Fatal(err)
		}
		released := make(chan [2]cluster.InstanceID, 1)
		d.OnRelease(func(old, renewed cluster.InstanceID) {
			if got, want := value(t, c.Store, card(renewed)), "card of "+renewed.String(); got != want {
				t.Errorf("card when told: got %q, want %q", got, want)
			}
			released <- [2]cluster.InstanceID{old, renewed}
		})
		old := d.ID()
		before := only(t, client)
		stream, err := client.Call(t.Context(), before, "req-1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		next(t, stream, "started")

		if err := c.Store.RevokeLease(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		ids := <-released
		if ids[0] != old || ids[1] != d.ID() || ids[1] == old {
			t.Errorf("released: got %v, want from %s to %s", ids, old, d.ID())
		}
		waitFor(t, client, d.ID())
		after := client.Instances()[0]
		if after.Transport == before.Transport || after != served.Instance() {
			t.Errorf("instance: got %+v", after)
		}
		if got, want := value(t, c.Store, "p/k"), "status of "+d.ID().String(); got != want {
			t.Errorf("key: got %q, want %q", got, want)
		}
		if got := value(t, c.Store, away.Instance().Key()); got != "" {
			t.Errorf("an endpoint that had left came back: %s", got)
		}

		// The running request goes on; a new one at the old place is told to look
		// again, and finds the new place.
		synctest.Wait()
		if _, err := ask(t.Context(), client, before); !errors.Is(err, requestplane.ErrDraining) {
			t.Errorf("new request at the old path: got %v, want %v", err, requestplane.ErrDraining)
		}
		if n := served.InFlight(); n != 1 {
			t.Errorf("in flight: got %d, want the one on the old path", n)
		}
		close(release)
		if got, err := recv(t.Context(), stream); err != nil || got != "done" {
			t.Errorf("running request: got %q, %v", got, err)
		}
		if got, err := ask(t.Context(), client, after); err != nil || got != "started done" {
			t.Errorf("request at the new path: got %q, %v", got, err)
		}
		synctest.Wait()
		if _, err := ask(t.Context(), client, before); !errors.Is(err, requestplane.ErrUnknownEndpoint) {
			t.Errorf("old path afterwards: got %v, want %v", err, requestplane.ErrUnknownEndpoint)
		}
	})
}

// A lease that was granted in the place of a lost one is watched like the first, without
// anything else that would wake the runtime.
func TestLeaseIsLostAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		released := make(chan time.Time, 1)
		d.OnRelease(func(_, _ cluster.InstanceID) { released <- time.Now() })
		for range 3 {
			if err := c.Store.RevokeLease(t.Context(), d.ID()); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			// Within one renewal, long before the next audit.
			if took := (<-released).Sub(begin); took > runtime.DefaultLeaseTTL/2 {
				t.Errorf("a lost lease was granted anew after %s", took)
			}
		}
	})
}

// The lease goes between two lines of its owner, who has not heard of it yet.
func TestLeaseLostBetweenTwoCalls(t *testing.T) {
	for name, call := range map[string]func(t *testing.T, d *runtime.DistributedRuntime) (key string){
		"serve": func(t *testing.T, d *runtime.DistributedRuntime) string {
			return serve(t, d, "generate", echo("")).Instance().Key()
		},
		"put": func(t *testing.T, d *runtime.DistributedRuntime) string {
			if _, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v")); err != nil {
				t.Fatal(err)
			}
			return "p/k"
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := runtimetest.New(t)
				d := c.Runtime(t, "worker-1")
				old := d.ID()
				if err := c.Store.RevokeLease(t.Context(), old); err != nil {
					t.Fatal(err)
				}
				start := time.Now()
				key := call(t, d)
				if took := time.Since(start); took > time.Second {
					t.Errorf("noticed the loss after %s", took)
				}
				if d.ID() == old {
					t.Error("still on the lost lease")
				}
				if value(t, c.Store, key) == "" {
					t.Error("no key")
				}
			})
		})
	}
}

func TestUpdateAfterALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		owned, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v1"))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Store.RevokeLease(t.Context(), d.ID()); err != nil {
			t.Fatal(err)
		}
		if err := owned.Update(t.Context(), byID("v2")); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("update: got %v, want %v", err, store.ErrLeaseNotFound)
		}
		time.Sleep(time.Second)
		if got, want := value(t, c.Store, "p/k"), "v2 of "+d.ID().String(); got != want {
			t.Errorf("value: got %q, want %q", got, want)
		}
		if err := owned.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := value(t, c.Store, "p/k"); got != "" {
			t.Errorf("after delete: got %q", got)
		}
	})
}

// A key that a successor took over is left to the successor.
func TestDeleteSparesASuccessor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		first, second := c.Runtime(t, "worker-1"), c.Runtime(t, "worker-1")
		owned, err := first.PutOwned(t.Context(), fixed("p/k"), byID("first"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := second.PutOwned(t.Context(), fixed("p/k"), byID("second")); err != nil {
			t.Fatal(err)
		}
		if err := owned.Delete(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, want := value(t, c.Store, "p/k"), "second of "+second.ID().String(); got != want {
			t.Errorf("value: got %q, want %q", got, want)
		}
	})
}

// Keys that somebody deleted come back; one that a successor took over does not.
func TestDeletedKeysAreWrittenAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d, successor := c.Runtime(t, "worker-1"), c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, successor, "backend", "generate")
		serve(t, d, "generate", echo("worker-1"))
		for _, key := range []string{"p/deleted", "p/taken"} {
			if _, err := d.PutOwned(t.Context(), fixed(key), byID("first")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := successor.PutOwned(t.Context(), fixed("p/taken"), byID("second")); err != nil {
			t.Fatal(err)
		}
		inst := only(t, client)
		for _, key := range []string{"p/deleted", inst.Key()} {
			if err := c.Store.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
		waitFor(t, client)
		time.Sleep(3 * runtime.DefaultLeaseTTL)
		synctest.Wait()
		waitFor(t, client, d.ID())
		if got, err := ask(t.Context(), client, inst); err != nil || got != "worker-1" {
			t.Errorf("call: got %q, %v", got, err)
		}
		if got, want := value(t, c.Store, "p/deleted"), "first of "+d.ID().String(); got != want {
			t.Errorf("deleted key: got %q, want %q", got, want)
		}
		if got, want := value(t, c.Store, "p/taken"), "second of "+successor.ID().String(); got != want {
			t.Errorf("taken key: got %q, want %q", got, want)
		}
	})
}

func TestOutageChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		client := runtimetest.Client(t, c.Runtime(t, "frontend-1"), "backend", "generate")
		serve(t, d, "generate", echo("worker-1"))
		leaving := serve(t, d, "leaving", echo(""))
		owned, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v1"))
		if err != nil {
			t.Fatal(err)
		}
		inst, id := only(t, client), d.ID()

		c.Store.SetOutage(true)
		time.Sleep(time.Minute)
		lease := d.Lease()
		if lease.ID != id || !lease.Uncertain || lease.Err == nil || time.Since(lease.LastRenewed) < 50*time.Second {
			t.Errorf("lease: got %+v, want it uncertain", lease)
		}
		waitFor(t, client, id)
		if since, _, _ := client.Stale(); since.IsZero() {
			t.Error("the client is not stale")
		}
		if got, err := ask(t.Context(), client, inst); err != nil || got != "worker-1" {
			t.Errorf("call: got %q, %v", got, err)
		}
		if _, err := d.Serve(t.Context(), "backend", "late", echo("")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("serve: got %v, want %v", err, store.ErrUnavailable)
		}
		// What is asked for now is done later.
		if err := owned.Update(t.Context(), byID("v2")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("update: got %v, want %v", err, store.ErrUnavailable)
		}
		if err := leaving.Leave(t.Context()); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("leave: got %v, want %v", err, store.ErrUnavailable)
		}
		time.Sleep(time.Minute)

		c.Store.SetOutage(false)
		time.Sleep(3 * time.Second)
		if lease := d.Lease(); lease.ID != id || lease.Uncertain || lease.Err != nil {
			t.Errorf("lease afterwards: got %+v, want %s and certain", lease, id)
		}
		waitFor(t, client, id)
		if got, want := value(t, c.Store, "p/k"), "v2 of "+id.String(); got != want {
			t.Errorf("value: got %q, want %q", got, want)
		}
		if got := value(t, c.Store, leaving.Instance().Key()); got != "" {
			t.Errorf("an endpoint that left is still registered: %s", got)
		}
	})
}

// lossyStore applies writes and then loses the answer, as often as told.
type lossyStore struct {
	store.Store
	lose atomic.Int32
}

func (s *lossyStore) lost(rev store.Revision, err error) (store.Revision, error) {
	if err == nil && s.lose.Add(-1) >= 0 {
		return 0, store.ErrUnavailable
	}
	return rev, err
}

func (s *lossyStore) Create(ctx context.Context, key string, value []byte, opts ...store.PutOption) (store.Revision, error) {
	return s.lost(s.Store.Create(ctx, key, value, opts...))
}

func (s *lossyStore) Put(ctx context.Context, key string, value []byte, opts ...store.PutOption) (store.Revision, error) {
	return s.lost(s.Store.Put(ctx, key, value, opts...))
}

func TestLostAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		lossy := &lossyStore{Store: c.Store}
		d := c.Runtime(t, "worker-1", func(cfg *runtime.Config) { cfg.Store = lossy })

		// A first registration that failed must not be found later.
		lossy.lose.Store(2)
		if _, err := d.Serve(t.Context(), "backend", "generate", echo("")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("serve: got %v, want %v", err, store.ErrUnavailable)
		}
		if _, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v")); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("put: got %v, want %v", err, store.ErrUnavailable)
		}
		time.Sleep(time.Second)
		if kvs, _, _ := c.Store.List(t.Context(), ""); len(kvs) != 0 {
			t.Errorf("left behind: %v", kvs)
		}

		// A registration under a new lease is repeated until its answer arrives.
		served := serve(t, d, "generate", echo("here"))
		if _, err := d.PutOwned(t.Context(), fixed("p/k"), byID("v")); err != nil {
			t.Fatal(err)
		}
		old := d.ID()
		lossy.lose.Store(5)
		if err := c.Store.RevokeLease(t.Context(), old); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Second)
		if d.ID() == old || lossy.lose.Load() >= 0 {
			t.Fatalf("lease %s after %s, %d answers left to lose", d.ID(), old, lossy.lose.Load())
		}
		client := runtimetest.Client(t, d, "backend", "generate")
		if got, err := ask(t.Context(), client, served.Instance()); err != nil || got != "here" {
			t.Errorf("call: got %q, %v", got, err)
		}
		if got, want := value(t, c.Store, "p/k"), "v of "+d.ID().String(); got != want {
			t.Errorf("value: got %q, want %q", got, want)
		}
	})
}

// slowStore answers writes and deletions once it is told to go on.
type slowStore struct {
	store.Store
	slow atomic.Bool
	goOn chan struct{}
}

func (s *slowStore) wait(ctx context.Context) error {
	if !s.slow.Load() {
		return nil
	}
	select {
	case <-s.goOn:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *slowStore) Put(ctx context.Context, key string, value []byte, opts ...store.PutOption) (store.Revision, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Put(ctx, key, value, opts...)
}

func (s *slowStore) Create(ctx context.Context, key string, value []byte, opts ...store.PutOption) (store.Revision, error) {
	if err := s.wait(ctx); err != nil {
		return 0, err
	}
	return s.Store.Create(ctx, key, value, opts...)
}

// While one write takes long, others give up waiting for their turn: what they were
// asked for was once forgotten with that.
func TestAnOrderOutlivesItsWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		slow := &slowStore{Store: c.Store, goOn: make(chan struct{})}
		d := c.Runtime(t, "worker-1", func(cfg *runtime.Config) { cfg.Store = slow })
		client := runtimetest.Client(t, d, "backend", "generate")
		served := serve(t, d, "generate", echo("here"))
		status, err := d.PutOwned(t.Context(), fixed("p/status"), byID("ready"))
		if err != nil {
			t.Fatal(err)
		}
		gone, err := d.PutOwned(t.Context(), fixed("p/gone"), byID("v"))
		if err != nil {
			t.Fatal(err)
		}
		if err := served.Leave(t.Context()); err != nil {
			t.Fatal(err)
		}

		slow.slow.Store(true)
		var busy sync.WaitGroup
		busy.Go(func() {
			if err := status.Update(t.Context(), byID("draining")); err != nil {
				t.Errorf("update: %v", err)
			}
		})
		busy.Go(func() {
			if err := gone.Update(t.Context(), byID("v2")); err != nil {
				t.Errorf("update of what is deleted meanwhile: %v", err)
			}
		})
		busy.Go(func() {
			if err := served.Join(t.Context()); err != nil {
				t.Errorf("join: %v", err)
			}
		})
		synctest.Wait()
		for name, order := range map[string]func(context.Context) error{
			"update": func(ctx context.Context) error { return status.Update(ctx, byID("drained")) },
			"delete": gone.Delete,
			"leave":  served.Leave,
		} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := order(ctx); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: got %v, want %v", name, err, context.DeadlineExceeded)
			}
			cancel()
		}
		slow.slow.Store(false)
		close(slow.goOn)
		busy.Wait()
		time.Sleep(time.Second)
		if got, want := value(t, c.Store, "p/status"), "drained of "+d.ID().String(); got != want {
			t.Errorf("status: got %q, want %q", got, want)
		}
		if got := value(t, c.Store, "p/gone"); got != "" {
			t.Errorf("deleted key: got %q", got)
		}
		waitFor(t, client)
	})
}

func TestElectAcrossALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "agent-1")
		ctx, cancel := context.WithCancel(t.Context())
		turns := make(chan cluster.InstanceID)
		done := make(chan error, 1)
		go func() {
			done <- d.Elect(ctx, cluster.LeaderPrefix, "agent-1", func(ctx context.Context) error {
				turns <- d.ID()
				<-ctx.Done()
				return nil
			})
		}()
		first := <-turns
		if err := c.Store.RevokeLease(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if second := <-turns; second == first {
			t.Error("led again under the lost lease")
		}
		if who, err := store.Leader(t.Context(), c.Store, cluster.LeaderPrefix); err != nil || who != "agent-1" {
			t.Errorf("leader: got %q, %v", who, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("elect: got %v, want %v", err, context.Canceled)
		}
	})
}

func TestRevokeStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		start := func(worker, namespace, node, incarnation string) *runtime.DistributedRuntime {
			d := c.Runtime(t, worker, func(cfg *runtime.Config) {
				cfg.Namespace, cfg.Node, cfg.Incarnation = namespace, node, incarnation
			})
			serve(t, d, "generate", echo(worker))
			serve(t, d, "stats", echo(worker))
			return d
		}
		stale := start("worker-1", "dynamo", "node-a", "run-1")
		kept := []*runtime.DistributedRuntime{
			start("worker-2", "dynamo", "node-a", "run-2"),
			start("worker-3", "dynamo", "node-b", "run-1"),
			start("worker-4", "other", "node-a", "run-1"),
			start("worker-5", "dynamo", "node-a", ""),
		}
		before := []cluster.InstanceID{stale.ID()}
		for _, d := range kept {
			before = append(before, d.ID())
		}
		for _, want := range []int{1, 0} {
			if n, err := runtime.RevokeStale(t.Context(), c.Store, "dynamo", "node-a", "run-2"); err != nil || n != want {
				t.Errorf("revoked: got %d, %v, want %d", n, err, want)
			}
			if _, _, err := c.Store.LeaseTTL(t.Context(), before[0]); !errors.Is(err, store.ErrLeaseNotFound) {
				t.Errorf("stale lease: got %v, want %v", err, store.ErrLeaseNotFound)
			}
			for _, id := range before[1:] {
				if _, _, err := c.Store.LeaseTTL(t.Context(), id); err != nil {
					t.Errorf("lease of somebody else: %v", err)
				}
			}
			// A run that was not over after all would come back; end it.
			if err := stale.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for _, args := range [][3]string{{"", "n", "i"}, {"ns", "", "i"}, {"ns", "n", ""}} {
			if _, err := runtime.RevokeStale(t.Context(), c.Store, args[0], args[1], args[2]); err == nil {
				t.Errorf("arguments %q were accepted", args)
			}
		}
	})
}

// unrevocable is a store that does not revoke some leases.
type unrevocable struct {
	store.Store
	fails map[cluster.InstanceID]error
}

func (u unrevocable) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	if err := u.fails[id]; err != nil {
		return err
	}
	return u.Store.RevokeLease(ctx, id)
}

// A stale lease that could not be revoked is told, one that has ended by itself is not;
// the others are revoked all the same.
func TestRevokeStaleTellsWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		var ids []cluster.InstanceID
		for _, worker := range []string{"worker-1", "worker-2", "worker-3"} {
			d := c.Runtime(t, worker, func(cfg *runtime.Config) { cfg.Node, cfg.Incarnation = "node-a", "run-1" })
			serve(t, d, "generate", echo(worker))
			ids = append(ids, d.ID())
			defer d.Close(t.Context()) // it would come back
		}
		boom := errors.New("no quorum")
		s := unrevocable{c.Store, map[cluster.InstanceID]error{ids[0]: boom, ids[1]: store.ErrLeaseNotFound}}
		n, err := runtime.RevokeStale(t.Context(), s, cluster.DefaultNamespace, "node-a", "run-2")
		if n != 1 || !errors.Is(err, boom) || errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("revoked %d, %v, want 1 and only %v", n, err, boom)
		}
		if _, _, err := c.Store.LeaseTTL(t.Context(), ids[2]); !errors.Is(err, store.ErrLeaseNotFound) {
			t.Errorf("the third lease: %v", err)
		}
		if _, err := runtime.RevokeStale(t.Context(), unlisted{c.Store}, cluster.DefaultNamespace, "node-a", "run-2"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("without a store: %v", err)
		}
	})
}

// unlisted is a store that does not answer.
type unlisted struct{ store.Store }

func (unlisted) List(context.Context, string) ([]store.KV, store.Revision, error) {
	return nil, 0, store.ErrUnavailable
}

// Whoever waits for a lost lease to be granted anew, while the store is silent, hears that
// the runtime was closed.
func TestElectEndsWithTheRuntime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := runtimetest.New(t)
		d := c.Runtime(t, "worker-1")
		leads, done := make(chan struct{}), make(chan error, 1)
		go func() {
			done <- d.Elect(t.Context(), cluster.LeaderPrefix, "agent-1", func(ctx context.Context) error {
				close(leads)
				<-ctx.Done()
				return context.Cause(ctx)
			})
		}()
		<-leads
		c.Store.SetOutage(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		_ = d.Close(t.Context()) // the lease cannot be revoked
		if err := <-done; !errors.Is(err, runtime.ErrClosed) {
			t.Errorf("elect: got %v, want %v", err, runtime.ErrClosed)
		}
		c.Store.SetOutage(false)
	})
}
