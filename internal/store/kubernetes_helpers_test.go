package store_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
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
