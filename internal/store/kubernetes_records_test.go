package store_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// record creates a record as another process does.
func record(t *testing.T, c *kube.Client, key string, spec kube.RecordSpec) {
	t.Helper()
	spec.Key, spec.Write = key, "of "+key
	r := &kube.Record{
		Object: kube.Object{
			APIVersion: kube.Records.APIVersion(), Kind: kube.Records.Kind,
			Metadata: kube.Meta{Name: kube.KeyObject(key), Labels: kube.KeyLabels(key)},
		},
		Spec: spec,
	}
	var made kube.Record
	if err := c.Create(t.Context(), kube.Records, r, &made); err != nil {
		t.Fatal(err)
	}
}

// A read waits until this process has seen what was written before, also by others.
func TestKubernetesReadsWait(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), kube.Pod{})
	if _, err := s.Put(t.Context(), "p/old", []byte("1")); err != nil {
		t.Fatal(err)
	}
	release := server.Hold()
	record(t, server.Client("test"), "p/new", kube.RecordSpec{Value: "2"})
	if _, err := server.Client("test").Delete(t.Context(), kube.Records, kube.KeyObject("p/old"), "", ""); err != nil {
		t.Fatal(err)
	}
	for name, read := range map[string]func(context.Context) error{
		"get of a new key":     func(ctx context.Context) error { _, err := s.Get(ctx, "p/new"); return err },
		"get of a deleted key": func(ctx context.Context) error { _, err := s.Get(ctx, "p/old"); return err },
		"list":                 func(ctx context.Context) error { _, _, err := s.List(ctx, "p/"); return err },
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		if err := read(ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("%s, before it has arrived: %v", name, err)
		}
		cancel()
	}
	release()
	if kvs, _, err := s.List(patient(t), "p/"); err != nil || len(kvs) != 1 || string(kvs[0].Value) != "2" {
		t.Errorf("list: %v, %v", kvs, err)
	}
}

// A key that has not decided yet whether it may be is not there.
func TestKubernetesPending(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), kube.Pod{})
	record(t, server.Client("test"), "p/k", kube.RecordSpec{Value: "1", Pending: true})
	if kvs, _, err := s.List(t.Context(), "p/"); err != nil || len(kvs) != 0 {
		t.Errorf("list: %v, %v", kvs, err)
	}
	if _, err := s.Get(t.Context(), "p/k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("get: %v", err)
	}
	// One that has decided says when it asked.
	if _, err := store.NewRWLock(s, "lock").TryLock(t.Context(), grantIn(t, s).ID); err != nil {
		t.Fatal(err)
	}
	var writer kube.Record
	if err := server.Client("test").Get(t.Context(), kube.Records, kube.KeyObject("v1/lock/writer"), &writer); err != nil {
		t.Fatal(err)
	}
	if spec := writer.Spec; spec.Pending || spec.Since == 0 || spec.Since >= writer.Metadata.Version() {
		t.Errorf("the writer's record: %+v at %d", spec, writer.Metadata.Version())
	}
}

// Keys whose lease was deleted by hand are gone at once, do not come back with another
// lease of the same id, and are removed.
func TestKubernetesOrphans(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	admin := server.Client("test")
	sees := openKubernetes(t, admin, kube.Pod{})
	s := openKubernetes(t, admin, pod("worker-0"))
	lease := grantIn(t, s)
	if _, err := s.Put(t.Context(), "owned", []byte("1"), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.Delete(t.Context(), kube.Records, kube.LeaseObject(lease.ID), "", ""); err != nil {
		t.Fatal(err)
	}
	again := grantIn(t, openKubernetes(t, admin, pod("worker-0")))
	if again.ID != lease.ID {
		t.Fatalf("id %s, want %s", again.ID, lease.ID)
	}
	for name, s := range map[string]*store.Kubernetes{"a process that saw it": sees, "a new process": openKubernetes(t, admin, kube.Pod{})} {
		if _, err := s.Get(t.Context(), "owned"); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%s: a key of a lease that is gone: %v", name, err)
		}
	}
	storetest.Eventually(t, "the orphan is removed", func() bool {
		var r kube.Record
		return kube.IsNotFound(admin.Get(t.Context(), kube.Records, kube.KeyObject("owned"), &r))
	})
}

// A process that sees renewals late ends no lease.
func TestKubernetesLateWatch(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	s := openKubernetes(t, server.Client("test"), kube.Pod{})
	openKubernetes(t, server.Client("test"), kube.Pod{}) // ends the leases of others, too
	keeper, err := s.KeepLease(t.Context(), storetest.TTL, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer keeper.Close()
	release := server.Hold()
	refused := server.Requests("DELETE", kube.Records.Plural)
	storetest.Eventually(t, "somebody tries to end the lease", func() bool { return server.Requests("DELETE", kube.Records.Plural) > refused })
	release()
	if _, err := s.Put(patient(t), "k", []byte("1"), store.WithLease(keeper.ID())); err != nil {
		t.Errorf("a write under the lease: %v", err)
	}
	select {
	case <-keeper.Lost():
		t.Error("the lease was lost although it was renewed")
	default:
	}
}

// A key of a lock that asked later gives way to one that asked earlier and has decided
// meanwhile, although that is the newer record then.
func TestKubernetesEarlierWins(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	admin := server.Client("test")
	s := openKubernetes(t, admin, kube.Pod{})
	lease := grantIn(t, s)
	record(t, admin, "v1/lock/writer", kube.RecordSpec{Value: "writing", Pending: true})
	var writer kube.Record
	if err := admin.Get(t.Context(), kube.Records, kube.KeyObject("v1/lock/writer"), &writer); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() {
		_, err := store.NewRWLock(s, "lock").TryRLock(patient(t), lease.ID, "reader")
		got <- err
	}()
	storetest.Eventually(t, "the reader asks", func() bool {
		var r kube.Record
		return admin.Get(t.Context(), kube.Records, kube.KeyObject("v1/lock/readers/reader"), &r) == nil
	})
	patch := map[string]any{"spec": map[string]any{"pending": nil, "since": writer.Metadata.Version()}}
	if err := admin.Patch(t.Context(), kube.Records, writer.Metadata.Name, patch, &writer); err != nil {
		t.Fatal(err)
	}
	if err := <-got; !errors.Is(err, store.ErrConflict) {
		t.Errorf("the later one: %v, want %v", err, store.ErrConflict)
	}
	storetest.Eventually(t, "the later one has withdrawn", func() bool {
		var r kube.Record
		return kube.IsNotFound(admin.Get(t.Context(), kube.Records, kube.KeyObject("v1/lock/readers/reader"), &r))
	})
}

// What a process has written itself does not flicker when it comes back on the watch.
func TestKubernetesOwnWritesAreNewer(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	n := namespace{t, server.Client("test")}
	n.slice("one", map[string]bool{"z": true})
	s := openKubernetes(t, n.admin, pod("worker-0"))
	lease := grantIn(t, s)
	w, err := s.Watch(t.Context(), "/services/")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	release := server.Hold()
	for _, name := range []string{"a", "b"} {
		if _, err := s.Create(t.Context(), "/services/dynamo/backend/"+name+"/"+lease.ID.String(), []byte("{}"), store.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	n.worker("z", foreignData(kube.InstanceID("z"), "10.0.0.9:1")) // comes after both
	release()
	for seen := false; !seen; {
		ev := storetest.Next(t, w)
		if ev.Type == store.Delete {
			t.Errorf("%s is gone for a moment", ev.KV.Key)
		}
		seen = ev.KV.Key == instanceKey(kube.InstanceID("z"))
	}
}

// An object that was made anew and is not valid has nothing of the one before, also if the
// deletion was not seen.
func TestKubernetesRecreatedUnseen(t *testing.T) {
	t.Parallel()
	server := kubetest.New(t)
	n := namespace{t, server.Client("test")}
	n.slice("one", map[string]bool{"a": true})
	n.worker("a", foreignData(kube.InstanceID("a"), "10.0.0.1:1"))
	s := openKubernetes(t, n.admin, kube.Pod{})
	w, err := s.Watch(t.Context(), everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state := map[string]string{}
	awaitInstances(t, w, state, "valid", "10.0.0.1:1")
	release := server.Hold()
	if _, err := n.admin.Delete(t.Context(), kube.WorkerMetadata, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	n.worker("a", `{"endpoints":[]}`)
	server.Compact()
	release()
	awaitInstances(t, w, state, "none of the object before")
}
