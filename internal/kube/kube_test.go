package kube_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// The vectors are those of NVIDIA Dynamo.
func TestInstanceID(t *testing.T) {
	for name, want := range map[string]cluster.InstanceID{
		"worker-0": 0x43710f49c0cff, "worker-99999": 0x1a53e46fb5a46c, "worker-0-engine-0": 0x1c9a5dad7b0253,
	} {
		if got := kube.InstanceID(name); got != want {
			t.Errorf("%s: got %s, want %s", name, got, want)
		}
	}
	for n := range 64 { // names of any length, the last word full or not
		if id := kube.InstanceID(strings.Repeat("a", n)); id == 0 || id >= 1<<53 {
			t.Errorf("%d letters: %s", n, id)
		}
	}
}

func TestPod(t *testing.T) {
	for _, tc := range []struct {
		pod        kube.Pod
		object     string
		controller bool
		wrong      string
	}{
		{kube.Pod{Name: "worker-0", UID: "u"}, "worker-0", true, ""},
		{kube.Pod{Name: "worker-0", UID: "u", Mode: "pod", Container: "engine-0"}, "worker-0", true, ""},
		{kube.Pod{Name: "worker-0", UID: "u", Mode: "container", Container: "main"}, "worker-0", true, ""},
		{kube.Pod{Name: "worker-0", UID: "u", Mode: "container", Container: "engine-0"}, "worker-0-engine-0", false, ""},
		{kube.Pod{Name: "worker-0"}, "worker-0", true, "POD_UID"},
		{kube.Pod{Name: "worker-0", UID: "u", Mode: "container"}, "worker-0-", false, "CONTAINER_NAME"},
		{kube.Pod{Mode: "node"}, "", true, "mode"},
	} {
		err := tc.pod.Check()
		if (err == nil) != (tc.wrong == "") || err != nil && !strings.Contains(err.Error(), tc.wrong) {
			t.Errorf("%+v: %v, want %q", tc.pod, err, tc.wrong)
		}
		if got := tc.pod.Object(); got != tc.object {
			t.Errorf("%+v: object %q, want %q", tc.pod, got, tc.object)
		}
		if !tc.pod.In() {
			continue
		}
		owner := tc.pod.Apply(kube.Document{}, "run").Metadata.Owners[0]
		want := kube.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "worker-0", UID: tc.pod.UID, Controller: tc.controller}
		if owner != want {
			t.Errorf("%+v: owner %+v, want %+v", tc.pod, owner, want)
		}
	}
}

// What is applied is the object that NVIDIA Dynamo reads.
func TestWorkerMetadata(t *testing.T) {
	id := kube.InstanceID("worker-0")
	key, card := cluster.InstanceKey("dynamo", "backend", "generate", id), cluster.CardKey("dynamo", "backend", "generate", id)
	instance := `{"type":"Endpoint","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":1186445869714687,"transport":{"tcp":"10.0.0.7:41234/43710f49c0cff/generate"}}`
	var doc kube.Document
	for k, value := range map[string]string{key: instance, card: `{"display_name":"my-model"}`, card + "/lora-1": `{"display_name":"lora"}`} {
		place, ok := kube.PlaceOf(k)
		if !ok || place.ID != id {
			t.Fatalf("%s: place %+v %t", k, place, ok)
		}
		var err error
		if doc, err = doc.Put(place, []byte(value)); err != nil || !doc.Has(place) {
			t.Fatal(err)
		}
	}
	pod := kube.Pod{Name: "worker-0", Namespace: "inference", UID: "0b7c"}
	got, err := json.Marshal(pod.Apply(doc, "R"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{"apiVersion":"nvidia.com/v1alpha1","kind":"DynamoWorkerMetadata","metadata":{"name":"worker-0","namespace":"inference","labels":{"dynctl.dev/run":"R"},` +
		`"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"worker-0","uid":"0b7c","controller":true,"blockOwnerDeletion":false}]},"spec":{"data":{` +
		`"endpoints":{"dynamo/backend/generate/43710f49c0cff":` + instance + `},"model_cards":{` +
		`"dynamo/backend/generate/43710f49c0cff":{"type":"Model","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":1186445869714687,"card_json":{"display_name":"my-model"}},` +
		`"dynamo/backend/generate/43710f49c0cff/lora-1":{"type":"Model","namespace":"dynamo","component":"backend","endpoint":"generate","instance_id":1186445869714687,"card_json":{"display_name":"lora"},"model_suffix":"lora-1"}` +
		`},"event_channels":{},"event_sources":{}}}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	var read kube.Worker
	if err := json.Unmarshal(got, &read); err != nil {
		t.Fatal(err)
	}
	entries, err := read.Entries()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, e := range entries {
		if e.ID != id {
			t.Errorf("%s: id %s", e.Key, e.ID)
		}
		found[e.Key] = string(e.Value)
	}
	if want := map[string]string{key: instance, card: `{"display_name":"my-model"}`, card + "/lora-1": `{"display_name":"lora"}`}; !maps.Equal(found, want) {
		t.Errorf("read back: got %v", found)
	}
	place, _ := kube.PlaceOf(key)
	if without, err := doc.Put(place, nil); err != nil || without.Has(place) || !doc.Has(place) {
		t.Errorf("removed: %v, or the former document changed", err)
	}
	if _, err := doc.Put(place, []byte("[]")); err == nil {
		t.Error("a value that is no object is accepted")
	}
}

func TestWorkerMetadataOfOthers(t *testing.T) {
	for data, valid := range map[string]bool{
		`{"endpoints":null,"model_cards":null}`:                                                      true,
		`{"endpoints":{"a/b/c/1f":{"type":"Endpoint"}},"event_channels":{"x":{"scope":1}},"more":1}`: true,
		`null`:                              false,
		``:                                  false,
		`{"endpoints":[]}`:                  false,
		`{"endpoints":{"a/b/c/1f":"text"}}`: false,
		`{"endpoints":{"a/b/c":{}}}`:        false,
		`{"endpoints":{"a/b/c/zz":{}}}`:     false,
		`{"model_cards":{"a/b/c/1f":{"type":""}}}`: false,
	} {
		var w kube.Worker
		w.Spec.Data = json.RawMessage(data)
		if _, err := w.Entries(); (err == nil) != valid {
			t.Errorf("%s: %v, want valid %t", data, err, valid)
		}
	}
	for _, key := range []string{"/services/a/b/c", "/services/a/b/c/1/more", "/services/a/b/c/zz", "/dynctl/a/topology", "v1/mdc/a/b/c/1/x/y", "/servicesx/a/b/c/1"} {
		if _, ok := kube.PlaceOf(key); ok {
			t.Errorf("%s has a place in a document", key)
		}
	}
	for prefix, want := range map[string]bool{"": true, "/": true, "/services/": true, "/services/a/": true, "v1/mdc/a/": true, "v1/": true, "/dynctl/": false, "v1/locks/": false} {
		if kube.Held(prefix) != want {
			t.Errorf("%q: held %t", prefix, !want)
		}
	}
}

func TestReady(t *testing.T) {
	var slice kube.Ready
	body := `{"metadata":{"name":"s"},"endpoints":[
		{"conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"a"}},
		{"conditions":{"ready":false},"targetRef":{"kind":"Pod","name":"b"}},
		{"conditions":{},"targetRef":{"kind":"Pod","name":"c"}},
		{"conditions":{"ready":true}},
		{"conditions":{"ready":true},"targetRef":{"kind":"Node","name":"n"}},
		{"conditions":{"ready":true},"targetRef":{"kind":"Pod","name":"b"}}]}`
	if err := json.Unmarshal([]byte(body), &slice); err != nil {
		t.Fatal(err)
	}
	if got, want := slice.Workers(), map[string]bool{"a": true, "b": true, "c": false}; !maps.Equal(got, want) {
		t.Errorf("slice: got %v, want %v", got, want)
	}
	var pod kube.Ready
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"p"},"status":{"containerStatuses":[{"name":"main","ready":true},{"name":"engine-0","ready":false}]}}`), &pod); err != nil {
		t.Fatal(err)
	}
	if got, want := pod.Workers(), map[string]bool{"p": true, "p-engine-0": false}; !maps.Equal(got, want) {
		t.Errorf("pod: got %v, want %v", got, want)
	}
}

// A prefix selects all records below it, by labels that the API accepts.
func TestSelectors(t *testing.T) {
	keys := []string{"k", "/k", "/dynctl/ns/topology", "/dynctl/ns/status/worker-1", "/dynctl/nodes/n", "v1/locks/a/writer", "a/b/c/d/e/f/g/h"}
	for _, key := range keys {
		labels := kube.KeyLabels(key)
		for name, value := range labels {
			if len(value) > 63 || strings.ContainsAny(name, " :") {
				t.Errorf("label %s=%s", name, value)
			}
		}
		for end := range len(key) + 1 {
			selector := kube.Selector(key[:end])
			if name, value, _ := strings.Cut(selector, "="); selector != "" && labels[name] != value {
				t.Errorf("%s is not selected by its prefix %q", key, key[:end])
			}
		}
	}
	if kube.Selector("/dynctl/ns/status/") == kube.Selector("/dynctl/ns/") {
		t.Error("a directory is listed by one above it")
	}
	names := map[string]bool{}
	for _, key := range keys {
		names[kube.KeyObject(key)] = true
	}
	if len(names) != len(keys) || slices.Contains(slices.Collect(maps.Keys(names)), "") {
		t.Errorf("names of %d keys: %v", len(keys), names)
	}
}
