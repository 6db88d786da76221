package store_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/kube/kubetest"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
	"github.com/dynctl/dynctl/internal/store/storetest"
)

// sayWhyNone has the store say why it knows no instances.
func sayWhyNone(t *testing.T, n namespace) {
	var log patience.Buffer
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
