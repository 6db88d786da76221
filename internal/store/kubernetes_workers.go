package store

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// workerView is what this process makes of one DynamoWorkerMetadata object.
type workerView struct {
	uid     string
	version int64
	run     string       // of the process that wrote it; empty: it knows no leases
	entries []kube.Entry // of the last valid state
	invalid error        // why the present state is not valid
	shown   map[string]struct{}
}

// replaceWorkers takes over a list of all objects of workers.
func (k *Kubernetes) replaceWorkers(all []*kube.Worker, version int64) {
	there := map[string]bool{}
	for _, w := range all {
		there[w.Metadata.Name] = true
		k.changeWorker(w, false, w.Metadata.Version())
	}
	for name, view := range maps.Clone(k.workers) {
		if !there[name] && view.version <= version { // it may be one of this process's, newer than the list
			k.forgetWorker(name)
		}
	}
	k.workersVersion = max(k.workersVersion, version)
}

// changeWorker takes over one object. The metadata of an object that became invalid stays
// as it was, unless it is another object of the same name.
func (k *Kubernetes) changeWorker(w *kube.Worker, gone bool, version int64) {
	k.workersVersion = max(k.workersVersion, version)
	name := w.Metadata.Name
	old := k.workers[name]
	switch {
	case old != nil && version <= old.version:
		return // this process has seen more already, in the answer to a write
	case gone:
		k.forgetWorker(name)
		return
	}
	view := &workerView{uid: w.Metadata.UID, version: version, run: w.Metadata.Labels[kube.LabelRun], shown: map[string]struct{}{}}
	view.entries, view.invalid = w.Entries()
	if old != nil {
		view.shown = old.shown
		if view.invalid != nil && old.uid == view.uid {
			view.entries, view.run = old.entries, old.run
		}
	}
	if view.invalid != nil && (old == nil || old.invalid == nil) {
		k.log.Warn("metadata of a worker is not valid", "object", name, "kept_last", len(view.entries) > 0, "err", view.invalid)
	}
	k.workers[name] = view
	k.showWorker(name)
}

func (k *Kubernetes) forgetWorker(name string) {
	if view := k.workers[name]; view != nil {
		view.entries = nil
		k.showWorker(name)
		delete(k.workers, name)
	}
}

// showWorker makes the state have the entries of an object that count now: those of a ready
// pod, or of this process itself, whose lease lives if they have one.
func (k *Kubernetes) showWorker(name string) {
	view := k.workers[name]
	if view == nil {
		return
	}
	want := map[string]KV{}
	if k.isReady(name) || k.pod.In() && name == k.pod.Object() {
		for _, e := range view.entries {
			kv := KV{Key: e.Key, Value: e.Value}
			if view.run != "" {
				lease := k.leaseOf(e.ID)
				if lease == nil || lease.Spec.Run != view.run {
					continue
				}
				kv.Lease = e.ID
			}
			want[e.Key] = kv
		}
	}
	for key := range view.shown {
		if _, still := want[key]; !still {
			k.state.remove([]string{key}, k.next(0))
			delete(view.shown, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(want)) {
		kv := want[key]
		view.shown[key] = struct{}{}
		if now, there := k.state.data[key]; there && now.Lease == kv.Lease && bytes.Equal(now.Value, kv.Value) {
			continue
		}
		kv.ModRevision = k.next(0)
		k.state.put(kv)
	}
}

// showRun shows the objects of one run of a process again, after a lease of it has begun or
// ended.
func (k *Kubernetes) showRun(run string) {
	for name, view := range k.workers {
		if view.run == run {
			k.showWorker(name)
		}
	}
}

func (k *Kubernetes) isReady(name string) bool {
	for _, workers := range k.ready {
		if workers[name] {
			return true
		}
	}
	return false
}

// foreign returns the object that holds a key, if it is not one of this process.
func (k *Kubernetes) foreign(key string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, view := range k.workers {
		if _, ok := view.shown[key]; ok {
			return name
		}
	}
	return ""
}

// replaceReady takes over all EndpointSlices, or all pods in container mode.
func (k *Kubernetes) replaceReady(all []*kube.Ready, _ int64) {
	before := k.ready
	k.ready = map[string]map[string]bool{}
	for _, r := range all {
		k.ready[r.Metadata.Name] = r.Workers()
	}
	for _, declared := range []map[string]map[string]bool{before, k.ready} {
		for _, workers := range declared {
			for name := range workers {
				k.showWorker(name)
			}
		}
	}
}

// changeReady takes over one of them.
func (k *Kubernetes) changeReady(r *kube.Ready, gone bool, _ int64) {
	before := k.ready[r.Metadata.Name]
	delete(k.ready, r.Metadata.Name)
	if !gone {
		k.ready[r.Metadata.Name] = r.Workers()
	}
	for _, workers := range []map[string]bool{before, k.ready[r.Metadata.Name]} {
		for name := range workers {
			k.showWorker(name)
		}
	}
}

// whyNone says why no instance is known below a prefix, or nothing if there is one.
func (k *Kubernetes) whyNone(prefix string) string {
	if len(k.state.list(prefix)) > 0 {
		return ""
	}
	readiness, selector := kube.ReadyIn(k.pod.Mode)
	if len(k.workers) == 0 {
		return fmt.Sprintf("there is no %s in namespace %s", kube.WorkerMetadata.Kind, k.client.Namespace)
	}
	var reasons []string
	for _, name := range slices.Sorted(maps.Keys(k.workers)) {
		view := k.workers[name]
		matches := slices.ContainsFunc(view.entries, func(e kube.Entry) bool { return strings.HasPrefix(e.Key, prefix) })
		switch {
		case view.invalid != nil && len(view.entries) == 0:
			reasons = append(reasons, fmt.Sprintf("%s is not valid: %v", name, view.invalid))
		case !matches:
		case !k.isReady(name):
			reasons = append(reasons, fmt.Sprintf("%s is %s", name, k.whyUnready(name, readiness, selector)))
		default:
			reasons = append(reasons, name+": its process has lost its lease")
		}
	}
	if len(reasons) == 0 {
		return fmt.Sprintf("none of the %d workers in namespace %s has registered it", len(k.workers), k.client.Namespace)
	}
	const most = 5
	if more := len(reasons) - most; more > 0 {
		reasons = append(reasons[:most], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(reasons, "; ")
}

func (k *Kubernetes) whyUnready(name string, readiness kube.Resource, selector string) string {
	if len(k.ready) == 0 {
		return fmt.Sprintf("in no %s with the label %s: is there a Service with the labels %s and %s?", readiness.Kind, selector, kube.LabelEnabled, kube.LabelBackend)
	}
	for _, workers := range k.ready {
		if _, named := workers[name]; named {
			return "not ready: see its readiness probe"
		}
	}
	return fmt.Sprintf("in none of the %d %s objects with the label %s: does its Service select the pod?", len(k.ready), readiness.Kind, selector)
}

// leaseIn reports whether this process holds a lease.
func (k *Kubernetes) leaseIn(id cluster.InstanceID) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.holding[id] != nil
}
