package store

import (
	"cmp"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// landing is a write of this process on its way back.
type landing struct {
	arrived bool
	rev     Revision
	visible bool
}

// replaceRecords takes over a list of all records. What differs is told as changes; only a
// list that is older than what is known here means that the API server lost its data.
func (k *Kubernetes) replaceRecords(all []*kube.Record, version int64) {
	slices.SortFunc(all, func(a, b *kube.Record) int { return cmp.Compare(a.Metadata.Version(), b.Metadata.Version()) })
	lost := version < k.version
	next := make(map[string]*kube.Record, len(all))
	for _, r := range all {
		next[r.Metadata.Name] = r
	}
	if lost {
		k.log.Warn("the API server has an older state, reading all again", "server", k.client.Server)
	}
	watchers := k.state.watchers
	if lost { // told as a whole below
		k.state.watchers = nil
	}
	for name, old := range maps.Clone(k.records) {
		if r := next[name]; r == nil || r.Metadata.UID != old.Metadata.UID {
			k.changeRecord(old, true, version)
		}
	}
	for _, leases := range []bool{true, false} { // keys need their leases
		for _, r := range all {
			old := k.records[r.Metadata.Name]
			if r.IsLease() == leases && (old == nil || old.Metadata.ResourceVersion != r.Metadata.ResourceVersion) {
				k.changeRecord(r, false, r.Metadata.Version())
			}
		}
	}
	k.version = version
	k.state.rev = max(k.state.rev, Revision(version))
	if lost {
		k.state.watchers = watchers
		for w, prefix := range watchers {
			w.reset(k.state.list(prefix), k.state.rev)
		}
	}
}

// changeRecord takes over one change.
func (k *Kubernetes) changeRecord(r *kube.Record, gone bool, version int64) {
	k.version = max(k.version, version)
	name := r.Metadata.Name
	if gone {
		delete(k.records, name)
		delete(k.orphaned, name)
	} else {
		k.records[name] = r
	}
	rev := k.next(version)
	if r.IsLease() {
		k.changeLease(r, gone, rev)
		return
	}
	visible := !gone && !r.Spec.Pending && k.leaseLives(r)
	_, shown := k.state.data[r.Spec.Key]
	switch {
	case visible:
		k.state.put(KV{Key: r.Spec.Key, Value: r.Data(), ModRevision: rev, Lease: r.LeaseID()})
	case shown:
		k.state.remove([]string{r.Spec.Key}, rev)
	}
	if l := k.landings[r.Spec.Write]; l != nil && !gone {
		*l = landing{arrived: true, rev: rev, visible: visible}
	}
	if !gone && !visible && !k.leaseLives(r) {
		k.orphaned[name] = k.state.clock
	} else {
		delete(k.orphaned, name)
	}
}

func (k *Kubernetes) changeLease(r *kube.Record, gone bool, rev Revision) {
	id := r.LeaseID()
	if !gone {
		k.state.hold(id, r.Duration(), uint64(r.Spec.Beats)) //nolint:gosec // any change is a beat
		k.lookSooner(r.Duration())
		k.showRun(r.Spec.Run)
		return
	}
	for name, key := range k.records {
		if !key.IsLease() && key.Spec.LeaseUID == r.Metadata.UID {
			k.orphaned[name] = k.state.clock
		}
	}
	k.state.end(id, rev)
	k.showRun(r.Spec.Run)
}

// leaseOf returns the record of a lease, nil if it does not live.
func (k *Kubernetes) leaseOf(id cluster.InstanceID) *kube.Record {
	return k.records[kube.LeaseObject(id)]
}

// leaseLives reports whether a key has no lease or one that lives.
func (k *Kubernetes) leaseLives(key *kube.Record) bool {
	id := key.LeaseID()
	if id == 0 {
		return true
	}
	lease := k.leaseOf(id)
	return lease != nil && lease.Metadata.UID == key.Spec.LeaseUID
}
