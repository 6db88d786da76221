package store_test

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// podBehaviors are those of discovery by pods, over any API server.
func podBehaviors(t *testing.T, open func(t *testing.T) namespace) {
	for name, run := range map[string]func(*testing.T, namespace){
		"OwnInstances": ownInstances, "InstancesOfOthers": instancesOfOthers, "InvalidMetadata": invalidMetadata,
		"RestartedContainer": restartedContainer, "DocumentIsRepaired": documentIsRepaired, "SayWhyNone": sayWhyNone,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			run(t, open(t))
		})
	}
}

func TestKubernetesPods(t *testing.T) {
	t.Parallel()
	podBehaviors(t, func(t *testing.T) namespace { return namespace{t, kubetest.New(t).Client("test")} })
}

// ownInstances has two leases of a pod register instances, and another process see them as
// long as the pod is ready and their lease lives.
func ownInstances(t *testing.T, n namespace) {
	ctx := t.Context()
	mine, other := openKubernetes(t, n.admin, pod("worker-0")), openKubernetes(t, n.admin, kube.Pod{})
	first, second := grantIn(t, mine), grantIn(t, mine)
	if first.ID != kube.InstanceID("worker-0") || second.ID != kube.InstanceID("worker-0-2") {
		t.Errorf("ids: got %s and %s", first.ID, second.ID)
	}
	w, err := other.Watch(ctx, everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state := map[string]string{}
	for i, lease := range []store.Lease{first, second} {
		if _, err := mine.Create(ctx, instanceKey(lease.ID), []byte(instance(lease.ID, fmt.Sprint("10.0.0.", i+1, ":1"))), store.WithLease(lease.ID)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := mine.Create(ctx, instanceKey(first.ID), []byte("{}"), store.WithLease(first.ID)); !errors.Is(err, store.ErrExists) {
		t.Errorf("registered twice: %v", err)
	}
	if kv, err := mine.Get(ctx, instanceKey(first.ID)); err != nil || kv.Lease != first.ID {
		t.Errorf("the process does not see itself: %+v, %v", kv, err)
	}
	card := cluster.CardKey("dynamo", "backend", "generate", first.ID)
	if _, err := mine.Put(ctx, card, []byte(`{"display_name":"m"}`), store.WithLease(first.ID)); err != nil {
		t.Fatal(err)
	}
	if kvs, _, err := other.List(ctx, everyInstance); err != nil || len(kvs) != 0 {
		t.Errorf("before the pod is ready: %v, %v", kvs, err)
	}
	var object kube.Worker
	if err := n.admin.Get(ctx, kube.WorkerMetadata, "worker-0", &object); err != nil {
		t.Fatal(err)
	}
	owner := kube.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: podUID("worker-0"), Controller: true}
	if len(object.Metadata.Owners) != 1 || object.Metadata.Owners[0] != owner {
		t.Errorf("owners: %+v", object.Metadata.Owners)
	}
	if !strings.Contains(string(object.Spec.Data), `"type":"Model"`) {
		t.Errorf("data: %s", object.Spec.Data)
	}
	n.slice("workers", map[string]bool{"worker-0": true})
	awaitInstances(t, w, state, "the ready pod's instances", "10.0.0.1:1", "10.0.0.2:1")
	if kv, err := other.Get(ctx, card); err != nil || string(kv.Value) != `{"display_name":"m"}` || kv.Lease != first.ID {
		t.Errorf("model card: %+v, %v", kv, err)
	}
	n.slice("workers", map[string]bool{"worker-0": false})
	awaitInstances(t, w, state, "none of a pod that is not ready")
	n.slice("workers", map[string]bool{"worker-0": true})
	awaitInstances(t, w, state, "again", "10.0.0.1:1", "10.0.0.2:1")
	if err := mine.RevokeLease(ctx, second.ID); err != nil {
		t.Fatal(err)
	}
	awaitInstances(t, w, state, "without that of a revoked lease", "10.0.0.1:1")
	if err := n.admin.Get(ctx, kube.WorkerMetadata, "worker-0", &object); err != nil || strings.Contains(string(object.Spec.Data), second.ID.String()) {
		t.Errorf("the document still has the instance: %v, %s", err, object.Spec.Data)
	}
	if err := other.Delete(ctx, instanceKey(first.ID)); err == nil {
		t.Error("an instance of another pod was deleted")
	}
	if err := mine.Delete(ctx, instanceKey(first.ID)); err != nil {
		t.Fatal(err)
	}
	awaitInstances(t, w, state, "without a deleted one")
}

func grantIn(t *testing.T, s store.Store) store.Lease {
	t.Helper()
	lease, err := s.GrantLease(t.Context(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

// instancesOfOthers follows workers of NVIDIA Dynamo, which know no leases.
func instancesOfOthers(t *testing.T, n namespace) {
	ids := map[string]cluster.InstanceID{"a": kube.InstanceID("a"), "b": kube.InstanceID("b")}
	n.slice("one", map[string]bool{"a": true})
	n.slice("two", map[string]bool{"b": true, "c": true})
	n.worker("a", foreignData(ids["a"], "10.0.0.1:1"))
	s := openKubernetes(t, n.admin, kube.Pod{})
	w, err := s.Watch(t.Context(), everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state := map[string]string{}
	awaitInstances(t, w, state, "what was there", "10.0.0.1:1")
	n.worker("b", foreignData(ids["b"], "10.0.0.2:1"))
	awaitInstances(t, w, state, "an added one", "10.0.0.1:1", "10.0.0.2:1")
	n.worker("b", foreignData(ids["b"], "10.0.0.3:1")) // NVIDIA Dynamo before 1.3 kept the old one
	awaitInstances(t, w, state, "a changed transport", "10.0.0.1:1", "10.0.0.3:1")
	if kv, err := s.Get(t.Context(), instanceKey(ids["b"])); err != nil || kv.Lease != 0 {
		t.Errorf("got %+v, %v", kv, err)
	}
	if _, err := n.admin.Delete(t.Context(), kube.WorkerMetadata, "b", "", ""); err != nil {
		t.Fatal(err)
	}
	awaitInstances(t, w, state, "without a deleted one", "10.0.0.1:1")
	n.worker("b", foreignData(ids["b"], "10.0.0.4:1")) // of the same name and generation
	awaitInstances(t, w, state, "a recreated one", "10.0.0.1:1", "10.0.0.4:1")
	if _, err := n.admin.Delete(t.Context(), kube.EndpointSlices, "two", "", ""); err != nil {
		t.Fatal(err)
	}
	awaitInstances(t, w, state, "without the pods of a deleted slice", "10.0.0.1:1")
}

// invalidMetadata keeps what an object had before it became invalid, and nothing of an
// object before it.
func invalidMetadata(t *testing.T, n namespace) {
	id := kube.InstanceID("a")
	n.slice("one", map[string]bool{"a": true})
	n.worker("a", foreignData(id, "10.0.0.1:1"))
	s := openKubernetes(t, n.admin, kube.Pod{})
	w, err := s.Watch(t.Context(), everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state := map[string]string{}
	awaitInstances(t, w, state, "valid", "10.0.0.1:1")
	const invalid = `{"endpoints":{"a/b/c/zz":"text"}}`
	n.worker("a", invalid)
	if kvs, _, err := s.List(t.Context(), everyInstance); err != nil || len(kvs) != 1 {
		t.Errorf("after it became invalid: %v, %v", kvs, err)
	}
	n.worker("a", foreignData(id, "10.0.0.2:1"))
	awaitInstances(t, w, state, "valid again", "10.0.0.2:1")
	if _, err := n.admin.Delete(t.Context(), kube.WorkerMetadata, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	n.worker("a", invalid)
	awaitInstances(t, w, state, "another object that is invalid")
	if kvs, _, err := s.List(t.Context(), everyInstance); err != nil || len(kvs) != 0 {
		t.Errorf("of another object: %v, %v", kvs, err)
	}
}

// restartedContainer has a process take the place of one before it in the same pod, which
// left its lease and its document.
func restartedContainer(t *testing.T, n namespace) {
	ctx := t.Context()
	n.slice("one", map[string]bool{"worker-0": true})
	other := openKubernetes(t, n.admin, kube.Pod{})
	before := openKubernetes(t, n.admin, pod("worker-0"))
	lease := grantIn(t, before)
	if _, err := before.Create(ctx, instanceKey(lease.ID), []byte(instance(lease.ID, "10.0.0.1:1")), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	if _, err := before.Put(ctx, "status", []byte("1"), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	w, err := other.Watch(ctx, everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state := map[string]string{}
	awaitInstances(t, w, state, "the first process", "10.0.0.1:1")
	if err := before.Close(); err != nil {
		t.Fatal(err)
	}
	after := openKubernetes(t, n.admin, pod("worker-0"))
	again := grantIn(t, after)
	if again.ID != lease.ID {
		t.Errorf("the id of the pod: got %s, want %s", again.ID, lease.ID)
	}
	awaitInstances(t, w, state, "none of the first process under the lease of the second")
	if _, err := other.Get(ctx, "status"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("a key of the former lease: %v", err)
	}
	if _, err := after.Create(ctx, instanceKey(again.ID), []byte(instance(again.ID, "10.0.0.2:1")), store.WithLease(again.ID)); err != nil {
		t.Fatal(err)
	}
	storetest.Follow(t, w, state, "the second process", func() bool {
		all := fmt.Sprint(state)
		if strings.Contains(all, "10.0.0.1:1/") {
			t.Error("what the first process had came back under the lease of the second")
		}
		return strings.Contains(all, "10.0.0.2:1/")
	})
}

// documentIsRepaired deletes the object of a process that lives.
func documentIsRepaired(t *testing.T, n namespace) {
	ctx := t.Context()
	n.slice("one", map[string]bool{"worker-0": true})
	mine := openKubernetes(t, n.admin, pod("worker-0"))
	lease := grantIn(t, mine)
	if _, err := mine.Create(ctx, instanceKey(lease.ID), []byte(instance(lease.ID, "10.0.0.1:1")), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	var object kube.Worker
	if err := n.admin.Get(ctx, kube.WorkerMetadata, "worker-0", &object); err != nil {
		t.Fatal(err)
	}
	if _, err := n.admin.Delete(ctx, kube.WorkerMetadata, "worker-0", "", ""); err != nil {
		t.Fatal(err)
	}
	storetest.Eventually(t, "the object is there again", func() bool {
		var now kube.Worker
		err := n.admin.Get(ctx, kube.WorkerMetadata, "worker-0", &now)
		return err == nil && now.Metadata.UID != object.Metadata.UID && bytes.Contains(now.Spec.Data, []byte("10.0.0.1:1"))
	})
}
