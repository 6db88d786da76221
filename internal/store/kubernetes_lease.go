package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// holding is a lease that this process renews.
type holding struct {
	uid   string
	ttl   time.Duration
	beats int64
}

// GrantLease implements [Store]. The TTL is rounded up to the least one of this store.
func (k *Kubernetes) GrantLease(ctx context.Context, ttl time.Duration) (Lease, error) {
	if ttl <= 0 {
		return Lease{}, fmt.Errorf("grant lease: ttl %s is not positive", ttl)
	}
	ttl = max(ttl, k.minTTL).Round(time.Millisecond)
	return callKubernetes(ctx, k, "grant lease", "", func(ctx context.Context) (Lease, error) {
		id := k.leaseID()
		name := kube.LeaseObject(id)
		r := &kube.Record{
			Object: kube.Object{
				APIVersion: kube.Records.APIVersion(), Kind: kube.Records.Kind,
				Metadata: kube.Meta{Name: name, Labels: map[string]string{kube.LabelLease: "true"}, Owners: k.pod.Owners()},
			},
			Spec: kube.RecordSpec{Lease: id.String(), TTL: ttl.Milliseconds(), Beats: 1, Run: k.run},
		}
		var granted kube.Record
		err := k.client.Create(ctx, kube.Records, r, &granted)
		for kube.IsExists(err) { // of an earlier process in this container, whose name is the same
			if err = k.endLease(ctx, id, "", ""); err == nil || errors.Is(err, ErrLeaseNotFound) {
				err = k.client.Create(ctx, kube.Records, r, &granted)
			}
		}
		if err != nil {
			return Lease{}, err
		}
		uid := granted.Metadata.UID
		k.mu.Lock()
		k.holding[id] = &holding{uid: uid, ttl: ttl, beats: 1}
		k.mu.Unlock()
		version := granted.Metadata.Version()
		if err := k.await(ctx, func() bool { return k.version >= version }); err != nil {
			return Lease{}, err
		}
		return Lease{ID: id, TTL: ttl}, nil
	})
}

// leaseID returns the id of the next lease. In a pod that is the one of the pod's object
// for the first lease, and that of a name made of it for each later one. Nodes and
// processes outside of pods have random ids.
func (k *Kubernetes) leaseID() cluster.InstanceID {
	k.mu.Lock()
	defer k.mu.Unlock()
	if !k.pod.In() || k.agent {
		k.agent = false
		return newID()
	}
	k.names++
	if k.names == 1 {
		return kube.InstanceID(k.pod.Object())
	}
	return kube.InstanceID(fmt.Sprintf("%s-%d", k.pod.Object(), k.names))
}

// keepAlive implements [leaseServer].
func (k *Kubernetes) keepAlive(ctx context.Context, id cluster.InstanceID) (time.Duration, error) {
	return callKubernetes(ctx, k, "keep alive lease", id.String(), func(ctx context.Context) (time.Duration, error) {
		k.mu.Lock()
		h := k.holding[id]
		if h == nil {
			k.mu.Unlock()
			return 0, ErrLeaseNotFound
		}
		h.beats++
		patch := map[string]any{
			"metadata": map[string]any{"uid": h.uid},
			"spec":     map[string]any{"beats": h.beats},
		}
		k.mu.Unlock()
		var renewed kube.Record
		err := k.client.Patch(ctx, kube.Records, kube.LeaseObject(id), patch, &renewed)
		if kube.IsNotFound(err) || kube.IsConflict(err) {
			return 0, ErrLeaseNotFound
		}
		return h.ttl, err
	})
}

// LeaseTTL implements [Store]. The time left is what this process knows: of a lease that it
// has not seen renewed yet, it is the TTL less the time since the store was opened.
func (k *Kubernetes) LeaseTTL(ctx context.Context, id cluster.InstanceID) (left, granted time.Duration, err error) {
	type ttl struct{ left, granted time.Duration }
	t, err := callKubernetes(ctx, k, "look up lease", id.String(), func(ctx context.Context) (ttl, error) {
		name := kube.LeaseObject(id)
		if err := k.sync(ctx, "", name, func(r *kube.Record) bool { return r.Metadata.Name == name }); err != nil {
			return ttl{}, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		lease, err := k.state.lease(id)
		if err != nil {
			return ttl{}, err
		}
		return ttl{k.state.left(lease), lease.ttl}, nil
	})
	return t.left, t.granted, err
}

// RevokeLease implements [Store].
func (k *Kubernetes) RevokeLease(ctx context.Context, id cluster.InstanceID) error {
	_, err := callKubernetes(ctx, k, "revoke lease", id.String(), func(ctx context.Context) (struct{}, error) {
		k.mu.Lock()
		delete(k.holding, id)
		k.mu.Unlock()
		return struct{}{}, k.endLease(ctx, id, "", "")
	})
	return err
}

// endLease ends a lease, if it is at a version that is not empty, and removes its keys.
func (k *Kubernetes) endLease(ctx context.Context, id cluster.InstanceID, uid, version string) error {
	name := kube.LeaseObject(id)
	deleted, err := k.client.Delete(ctx, kube.Records, name, uid, version)
	if kube.IsNotFound(err) {
		return fmt.Errorf("lease %s: %w", id, ErrLeaseNotFound)
	}
	if err != nil {
		return err
	}
	err = k.await(ctx, func() bool {
		r := k.records[name]
		return r == nil || r.Metadata.UID != deleted
	})
	if err != nil {
		return err
	}
	if err := k.dropFromDocument(ctx, id); err != nil { // readers of this store do not see it any more
		k.log.Debug("entries of an ended lease stay in the pod's document", "lease", id.String(), "err", err)
	}
	for _, r := range k.keysOf(deleted) {
		// What is left over is removed as an orphan, or by Kubernetes.
		if _, err := k.client.Delete(ctx, kube.Records, r.Metadata.Name, r.Metadata.UID, r.Metadata.ResourceVersion); err != nil {
			k.log.Debug("a key of an ended lease stays until it is removed as an orphan", "key", r.Spec.Key, "err", err)
		}
	}
	return nil
}

// keysOf returns the records of the keys of a lease.
func (k *Kubernetes) keysOf(lease string) (found []*kube.Record) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, r := range k.records {
		if !r.IsLease() && r.Spec.LeaseUID == lease {
			found = append(found, r)
		}
	}
	return found
}
