package store_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// outage takes the API server away for longer than leases live: watchers keep what they
// know, calls fail at once or in time, and when it is back nothing has expired.
func outage(t *testing.T, c func() *kube.Client, stop, resume func()) {
	ctx := t.Context()
	keeps, watches := openKubernetes(t, c(), pod("worker-0")), openKubernetes(t, c(), kube.Pod{})
	namespace{t, c()}.slice("one", map[string]bool{"worker-0": true})
	keeper, err := keeps.KeepLease(ctx, storetest.TTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	if _, err := keeps.Put(ctx, "k/owned", []byte("1"), store.WithLease(keeper.ID())); err != nil {
		t.Fatal(err)
	}
	if _, err := keeps.Create(ctx, instanceKey(keeper.ID()), []byte(instance(keeper.ID(), "10.0.0.1:1")), store.WithLease(keeper.ID())); err != nil {
		t.Fatal(err)
	}
	w, err := watches.Watch(ctx, "k/")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	instances, err := watches.Watch(ctx, everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer instances.Close()
	state, known := map[string]string{}, map[string]string{}
	storetest.Follow(t, w, state, "the key", func() bool { return state["k/owned"] == "1" })
	awaitInstances(t, instances, known, "the instance", "10.0.0.1:1")

	idle := grantIn(t, keeps) // nobody renews it
	asked := time.Now()
	before, _, err := watches.LeaseTTL(ctx, idle.ID)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	stopped := time.Now()
	storetest.Eventually(t, "the watch is known to be stale", func() bool { since, err, _ := w.Stale(); return !since.IsZero() && err != nil })
	limited, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, err := watches.Get(limited, "k/owned"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("get: got %v, want %v", err, store.ErrUnavailable)
	}
	answering, done := watches.WhileAnswering(ctx)
	defer done()
	select {
	case <-answering.Done():
	case <-time.After(storetest.Patience):
		t.Error("nobody is told that the API server is silent")
	}
	begun := time.Now()
	storetest.Eventually(t, "the lease is over by its keeper's clock, twice", func() bool {
		return keeper.Uncertain() && time.Since(begun) > 2*keeper.TTL()
	})
	select {
	case ev := <-w.Events():
		t.Errorf("an event of a server that is down: %+v", ev)
	case ev := <-instances.Events():
		t.Errorf("an event of a server that is down: %+v", ev)
	default:
	}

	resumed := time.Now()
	resume()
	if _, err := watches.Put(patient(t), "k/after", []byte("2")); err != nil {
		t.Fatal(err)
	}
	storetest.Follow(t, w, state, "the change after the outage", func() bool { return state["k/after"] == "2" })
	after, _, err := watches.LeaseTTL(patient(t), idle.ID)
	if err != nil {
		t.Fatal(err)
	}
	// Of the outage, less than a quarter of the shortest TTL counts for leases.
	if most := stopped.Sub(asked) + time.Since(resumed) + storetest.TTL/4; before-after > most {
		t.Errorf("an outage of %s took %s of a lease, at most %s are right", resumed.Sub(stopped), before-after, most)
	}
	storetest.Eventually(t, "the lease is renewed", func() bool { return !keeper.Uncertain() })
	if state["k/owned"] != "1" {
		t.Error("a lease has expired in the outage")
	}
	if kv, err := watches.Get(ctx, instanceKey(keeper.ID())); err != nil || kv.Lease != keeper.ID() {
		t.Errorf("the instance: %+v, %v", kv, err)
	}
	select {
	case <-keeper.Lost():
		t.Error("the lease was lost")
	default:
	}
	storetest.Eventually(t, "the watch is current", func() bool { since, _, _ := w.Stale(); return since.IsZero() })
}

// patient returns a context that ends late.
func patient(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func TestKubernetesOutage(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	outage(t, func() *kube.Client { return server.Client("test") }, func() { server.SetDown(true) }, func() { server.SetDown(false) })
}

// A watch whose history is gone lists again, and tells the difference.
func TestKubernetesGone(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), kube.Pod{})
	lease := grantIn(t, s)
	for _, key := range []string{"p/kept", "p/changed", "p/deleted"} {
		if _, err := s.Put(t.Context(), key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Put(t.Context(), "p/leased", []byte("1"), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if ev := storetest.Next(t, w); ev.Type != store.Resync || len(ev.All) != 4 {
		t.Fatalf("first event: %+v", ev)
	}
	kept, err := s.Get(t.Context(), "p/kept")
	if err != nil {
		t.Fatal(err)
	}
	release := server.Hold() // the store learns of none of this until the history is gone
	admin := server.Client("test")
	var made kube.Record
	if err := admin.Patch(t.Context(), kube.Records, kube.KeyObject("p/changed"), map[string]any{"spec": map[string]any{"value": "2"}}, &made); err != nil {
		t.Error(err)
	}
	for _, name := range []string{kube.KeyObject("p/deleted"), kube.LeaseObject(lease.ID)} {
		if _, err := admin.Delete(t.Context(), kube.Records, name, "", ""); err != nil {
			t.Error(err)
		}
	}
	// Another lease of that id does not keep the keys of the one before.
	successor := &kube.Record{Object: kube.Object{Metadata: kube.Meta{Name: kube.LeaseObject(lease.ID)}}, Spec: kube.RecordSpec{Lease: lease.ID.String(), TTL: 60_000, Beats: 1}}
	if err := admin.Create(t.Context(), kube.Records, successor, &made); err != nil {
		t.Fatal(err)
	}
	server.Compact()
	release()
	got := map[string]store.EventType{}
	for range 3 {
		ev := storetest.Next(t, w)
		got[ev.KV.Key] = ev.Type
	}
	want := map[string]store.EventType{"p/changed": store.Put, "p/deleted": store.Delete, "p/leased": store.Delete}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("events: got %v, want %v", got, want)
	}
	if kv, err := s.Get(t.Context(), "p/kept"); err != nil || kv.ModRevision != kept.ModRevision {
		t.Errorf("a key that did not change: %+v, %v, was %+v", kv, err, kept)
	}
}

// An API server with an older state, as after a restored backup, has all read again.
func TestKubernetesRestored(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), kube.Pod{})
	for _, key := range []string{"p/old", "p/new"} {
		if key == "p/new" {
			server.Backup()
		}
		if _, err := s.Put(t.Context(), key, []byte("1")); err != nil {
			t.Fatal(err)
		}
	}
	w, err := s.Watch(t.Context(), "p/")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	storetest.Next(t, w)
	server.Restore()
	if ev := storetest.Next(t, w); ev.Type != store.Resync || len(ev.All) != 1 || ev.All[0].Key != "p/old" {
		t.Errorf("after the restore: %+v", ev)
	}
	if _, err := s.Put(patient(t), "p/new", []byte("2")); err != nil {
		t.Error(err)
	}
}

// A process that cannot renew loses its lease to those who can see it stand still; one whose
// watch alone is broken loses nothing.
func TestKubernetesOverdue(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s, sees := openKubernetes(t, server.Client("test"), kube.Pod{}), openKubernetes(t, server.Client("test"), kube.Pod{})
	lease, err := s.GrantLease(t.Context(), storetest.TTL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(t.Context(), "k", []byte("1"), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the key of a process that is gone", func() bool {
		_, err := sees.Get(t.Context(), "k")
		return errors.Is(err, store.ErrNotFound)
	})
	storetest.Eventually(t, "its records are removed", func() bool {
		all, _, err := server.Client("test").List(t.Context(), kube.Records, "")
		return err == nil && len(all) == 0
	})
}

// What N workers cost is what the documents say.
func TestKubernetesRequests(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), pod("worker-0"))
	keeper, err := s.KeepLease(t.Context(), storetest.TTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	patches := func() int { return server.Requests("PATCH", kube.Records.Plural) }
	lists := func() int { return server.Requests("GET", kube.Records.Plural) }
	before, listed, begun := patches(), lists(), time.Now()
	storetest.Eventually(t, "four renewals", func() bool { return patches() >= before+4 })
	took := time.Since(begun)
	if took < keeper.TTL() { // a renewal each half of the TTL, less a tenth of that
		t.Errorf("four renewals in %s, of a lease of %s", took, keeper.TTL())
	}
	// A probe comes after an eighth of the TTL without news, of which renewals are some.
	if probes := lists() - listed; probes > int(8*took/keeper.TTL())+1 {
		t.Errorf("%d probes in %s", probes, took)
	}
	if n := server.Requests("DELETE", kube.Records.Plural); n != 0 {
		t.Errorf("%d deletions", n)
	}
	// Registering many endpoints at once is few writes of the document.
	applied := server.Requests("PATCH", kube.WorkerMetadata.Plural)
	errs := make(chan error)
	const endpoints = 20
	for i := range endpoints {
		go func() {
			key := fmt.Sprintf("/services/dynamo/backend/e%d/%s", i, keeper.ID())
			_, err := s.Create(t.Context(), key, []byte("{}"), store.WithLease(keeper.ID()))
			errs <- err
		}()
	}
	for range endpoints {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if n := server.Requests("PATCH", kube.WorkerMetadata.Plural) - applied; n > endpoints {
		t.Errorf("%d writes of the document for %d endpoints", n, endpoints)
	}
	var object kube.Worker
	if err := server.Client("test").Get(t.Context(), kube.WorkerMetadata, "worker-0", &object); err != nil {
		t.Fatal(err)
	}
	if entries, err := object.Entries(); err != nil || len(entries) != endpoints {
		t.Errorf("%d entries, %v", len(entries), err)
	}
}
