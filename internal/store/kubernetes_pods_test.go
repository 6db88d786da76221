package store_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// namespace is a namespace of an API server, small or real.
type namespace struct {
	t     *testing.T
	admin *kube.Client
}

// podUID is a uid that both servers accept.
func podUID(name string) string {
	return "11111111-2222-3333-4444-" + fmt.Sprintf("%012x", kube.InstanceID(name))[:12]
}

func pod(name string) kube.Pod { return kube.Pod{Name: name, UID: podUID(name)} }

// slice declares which pods are ready.
func (n namespace) slice(name string, ready map[string]bool) {
	n.t.Helper()
	endpoints := []any{}
	for pod, ok := range ready {
		endpoints = append(endpoints, map[string]any{
			"addresses": []string{"10.1.2.3"}, "conditions": map[string]any{"ready": ok}, "targetRef": map[string]any{"kind": "Pod", "name": pod},
		})
	}
	body := map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4", "endpoints": endpoints,
		"metadata": map[string]any{"name": name, "labels": map[string]string{kube.LabelBackend: "kubernetes", kube.LabelEnabled: "true"}},
	}
	var made kube.Object
	err := n.admin.Create(n.t.Context(), kube.EndpointSlices, body, &made)
	if kube.IsExists(err) {
		err = n.admin.Patch(n.t.Context(), kube.EndpointSlices, name, map[string]any{"endpoints": endpoints}, &made)
	}
	if err != nil {
		n.t.Fatal(err)
	}
}

// worker applies an object as a worker of NVIDIA Dynamo does.
func (n namespace) worker(name, data string) kube.Meta {
	n.t.Helper()
	body := map[string]any{
		"apiVersion": "nvidia.com/v1alpha1", "kind": "DynamoWorkerMetadata", "metadata": map[string]any{"name": name},
		"spec": map[string]any{"data": json.RawMessage(data)},
	}
	var made kube.Object
	if err := n.admin.Apply(n.t.Context(), kube.WorkerMetadata, name, kube.FieldManager, body, &made); err != nil {
		n.t.Fatal(err)
	}
	return made.Metadata
}

// instance returns an instance of the endpoint generate, as JSON.
func instance(id cluster.InstanceID, address string) string {
	return fmt.Sprintf(`{"type":"Endpoint","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":%d,"transport":{"tcp":"%s/%s/generate"}}`, uint64(id), address, id)
}

func instanceKey(id cluster.InstanceID) string {
	return cluster.InstanceKey("dynamo", "backend", "generate", id)
}

// foreignData is what a worker of NVIDIA Dynamo with one instance has.
func foreignData(id cluster.InstanceID, address string) string {
	return fmt.Sprintf(`{"endpoints":{"dynamo/backend/generate/%s":%s},"model_cards":null,"event_channels":{},"event_sources":{}}`, id, instance(id, address))
}

const everyInstance = "/services/dynamo/backend/generate/"

// awaitInstances waits until a store shows exactly the given addresses.
func awaitInstances(t *testing.T, w *store.Watcher, state map[string]string, what string, addresses ...string) {
	t.Helper()
	storetest.Follow(t, w, state, what, func() bool {
		if len(state) != len(addresses) {
			return false
		}
		all := fmt.Sprint(state)
		for _, a := range addresses {
			if !strings.Contains(all, a+"/") {
				return false
			}
		}
		return true
	})
}

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
	awaitInstances(t, w, state, "the second process", "10.0.0.2:1")
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

// buffer is a log that tests read while it is written.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// sayWhyNone has the store say why it knows no instances.
func sayWhyNone(t *testing.T, n namespace) {
	var log buffer
	s, err := store.NewKubernetes(store.KubernetesConfig{Client: n.admin, MinTTL: time.Second, Explain: 50 * time.Millisecond}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w, err := s.Watch(t.Context(), everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	says := func(what string) {
		t.Helper()
		storetest.Eventually(t, "it says: "+what, func() bool { return strings.Contains(log.String(), what) })
	}
	says("there is no DynamoWorkerMetadata in namespace " + n.admin.Namespace)
	n.worker("b", `{"endpoints":{}}`)
	says("none of the 1 workers")
	n.worker("a", foreignData(kube.InstanceID("a"), "10.0.0.1:1"))
	says("a is in no EndpointSlice with the label nvidia.com/dynamo-discovery-enabled=true")
	n.slice("one", map[string]bool{"b": true})
	says("a is in none of the 1 EndpointSlice objects")
	n.slice("one", map[string]bool{"a": false})
	says("a is not ready: see its readiness probe")
	n.worker("a", `{"endpoints":[]}`)
	n.slice("one", map[string]bool{"a": true})
	state := map[string]string{}
	awaitInstances(t, w, state, "what it had before it was invalid", "10.0.0.1:1")
	if _, err := n.admin.Delete(t.Context(), kube.WorkerMetadata, "a", "", ""); err != nil {
		t.Fatal(err)
	}
	n.worker("a", `{"endpoints":[]}`)
	says("a is not valid: spec.data")
}

// Container mode looks at containers of pods, and names objects after both.
func TestKubernetesContainers(t *testing.T) {
	t.Parallel()
	n := namespace{t, kubetest.New(t).Client("test")}
	ctx := t.Context()
	engine := pod("worker-0")
	engine.Mode, engine.Container = kube.ModeContainer, "engine-0"
	mine := openKubernetes(t, n.admin, engine)
	other := openKubernetes(t, n.admin, kube.Pod{Mode: kube.ModeContainer})
	lease := grantIn(t, mine)
	if lease.ID != kube.InstanceID("worker-0-engine-0") {
		t.Errorf("id: got %s", lease.ID)
	}
	if _, err := mine.Create(ctx, instanceKey(lease.ID), []byte(instance(lease.ID, "10.0.0.1:1")), store.WithLease(lease.ID)); err != nil {
		t.Fatal(err)
	}
	w, err := other.Watch(ctx, everyInstance)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	statuses := func(ready bool) map[string]any {
		return map[string]any{"containerStatuses": []any{map[string]any{"name": "engine-0", "ready": ready}, map[string]any{"name": "main", "ready": true}}}
	}
	var made kube.Object
	body := map[string]any{"metadata": map[string]any{"name": "worker-0", "labels": map[string]string{kube.LabelEnabled: "true"}}, "status": statuses(false)}
	if err := n.admin.Create(ctx, kube.Pods, body, &made); err != nil {
		t.Fatal(err)
	}
	state := map[string]string{}
	if kvs, _, err := other.List(ctx, everyInstance); err != nil || len(kvs) > 0 {
		t.Errorf("before the container is ready: %v, %v", kvs, err)
	}
	if err := n.admin.Patch(ctx, kube.Pods, "worker-0", map[string]any{"status": statuses(true)}, &made); err != nil {
		t.Fatal(err)
	}
	awaitInstances(t, w, state, "the ready container", "10.0.0.1:1")
}

// A node's lease leaves the pod's id to the worker.
func TestKubernetesAgent(t *testing.T) {
	t.Parallel()
	s, err := store.NewKubernetes(store.KubernetesConfig{Client: kubetest.New(t).Client("test"), Pod: pod("worker-0"), Agent: true, MinTTL: time.Second}, storetest.Discard)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	node, worker := grantIn(t, s), grantIn(t, s)
	if worker.ID != kube.InstanceID("worker-0") || node.ID == 0 || node.ID >= 1<<53 {
		t.Errorf("node %s, worker %s", node.ID, worker.ID)
	}
	if _, err := store.NewKubernetes(store.KubernetesConfig{Client: &kube.Client{}, Pod: kube.Pod{Name: "a"}}, storetest.Discard); err == nil {
		t.Error("a pod without a uid is accepted")
	}
}
