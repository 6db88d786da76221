package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// Create implements [Store].
func (k *Kubernetes) Create(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return k.write(ctx, "create", key, value, condition{absent: true}, opts)
}

// createUnless implements [exclusiveCreator].
func (k *Kubernetes) createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error) {
	return k.write(ctx, "create", key, value, condition{absent: true, blockers: blockers}, opts)
}

// Put implements [Store].
func (k *Kubernetes) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (Revision, error) {
	return k.write(ctx, "put", key, value, condition{}, opts)
}

// CompareAndSwap implements [Store].
func (k *Kubernetes) CompareAndSwap(ctx context.Context, key string, expect Revision, value []byte, opts ...PutOption) (Revision, error) {
	return k.write(ctx, "swap", key, value, condition{swap: true, expect: expect}, opts)
}

func (k *Kubernetes) write(ctx context.Context, verb, key string, value []byte, c condition, opts []PutOption) (Revision, error) {
	o := applyPutOptions(opts)
	if key == "" || !utf8.ValidString(key) {
		return 0, fmt.Errorf("%s %q: a key is text in UTF-8, and not empty", verb, key)
	}
	value = bytes.Clone(value)
	return callKubernetes(ctx, k, verb, key, func(ctx context.Context) (Revision, error) {
		lease, err := k.liveLease(ctx, o.lease)
		if err != nil {
			return 0, err
		}
		if place, held := kube.PlaceOf(key); held && place.ID == o.lease && k.inDocument(place) {
			return k.putInDocument(ctx, key, place, value, c)
		}
		w := &recordWrite{k: k, key: key, value: value, lease: lease, name: kube.KeyObject(key)}
		for {
			rev, err := w.attempt(ctx, c)
			if !errors.Is(err, errAgain) {
				return rev, err
			}
		}
	})
}

// liveLease returns the record of a lease, which other processes may have granted just now;
// nil for no lease.
func (k *Kubernetes) liveLease(ctx context.Context, id cluster.InstanceID) (*kube.Record, error) {
	if id == 0 {
		return nil, nil
	}
	k.mu.Lock()
	lease := k.leaseOf(id)
	k.mu.Unlock()
	if lease == nil {
		name := kube.LeaseObject(id)
		if err := k.sync(ctx, "", name, func(r *kube.Record) bool { return r.Metadata.Name == name }); err != nil {
			return nil, err
		}
		k.mu.Lock()
		lease = k.leaseOf(id)
		k.mu.Unlock()
	}
	if lease == nil {
		return nil, fmt.Errorf("lease %s: %w", id, ErrLeaseNotFound)
	}
	return lease, nil
}

// errAgain asks for another attempt: another process was faster.
var errAgain = errors.New("again")

// recordWrite is one write of a key.
type recordWrite struct {
	k     *Kubernetes
	key   string
	value []byte
	lease *kube.Record // nil if none
	name  string       // of the record
}

// attempt writes the key once.
func (w *recordWrite) attempt(ctx context.Context, c condition) (Revision, error) {
	switch {
	case len(c.blockers) > 0:
		return w.reserve(ctx, c.blockers)
	case c.absent || c.swap && c.expect == 0:
		rev, err := w.create(ctx, false)
		if errors.Is(err, ErrExists) && c.swap {
			err = ErrConflict
		}
		return rev, err
	case c.swap:
		return w.swap(ctx, c.expect)
	}
	rev, err := w.patch(ctx, "")
	if kube.IsNotFound(err) {
		if rev, err = w.create(ctx, false); errors.Is(err, ErrExists) {
			err = errAgain
		}
	}
	return rev, err
}

// spec returns what is to be written, and a name for the write.
func (w *recordWrite) spec() kube.RecordSpec {
	s := kube.RecordSpec{Key: w.key, Write: rand.Text()}
	s.SetData(w.value)
	if w.lease != nil {
		s.Lease, s.LeaseUID = w.lease.Spec.Lease, w.lease.Metadata.UID
	}
	return s
}

// owners has Kubernetes delete keys whose lease is gone.
func (w *recordWrite) owners() []kube.OwnerReference {
	if w.lease == nil {
		return nil
	}
	return []kube.OwnerReference{{
		APIVersion: kube.Records.APIVersion(), Kind: kube.Records.Kind, Name: w.lease.Metadata.Name, UID: w.lease.Metadata.UID,
	}}
}

// create creates the record. A record that nobody sees is in the way only until it is
// removed.
func (w *recordWrite) create(ctx context.Context, pending bool) (Revision, error) {
	spec := w.spec()
	spec.Pending = pending
	r := &kube.Record{
		Object: kube.Object{
			APIVersion: kube.Records.APIVersion(), Kind: kube.Records.Kind,
			Metadata: kube.Meta{Name: w.name, Labels: kube.KeyLabels(w.key), Owners: w.owners()},
		},
		Spec: spec,
	}
	rev, err := w.land(ctx, spec.Write, func(into *kube.Record) error { return w.k.client.Create(ctx, kube.Records, r, into) })
	if !kube.IsExists(err) {
		return rev, err
	}
	if err := w.k.syncKey(ctx, w.key); err != nil {
		return 0, err
	}
	w.k.mu.Lock()
	_, visible := w.k.state.data[w.key]
	there := w.k.records[w.name]
	lives := there != nil && w.k.leaseLives(there)
	w.k.mu.Unlock()
	switch {
	case visible || lives: // the latter waits for its place
		return 0, ErrExists
	case there != nil:
		_, err := w.k.client.Delete(ctx, kube.Records, w.name, there.Metadata.UID, there.Metadata.ResourceVersion)
		if err != nil && !kube.IsNotFound(err) && !kube.IsConflict(err) {
			return 0, err
		}
	}
	return w.create(ctx, pending)
}

// patch changes the record, if it is at a version that is not empty.
func (w *recordWrite) patch(ctx context.Context, version string) (Revision, error) {
	spec := w.spec()
	meta := map[string]any{"ownerReferences": w.owners()}
	if version != "" {
		meta["resourceVersion"] = version
	}
	// A merge leaves what the patch omits: null removes it.
	merge := map[string]any{"key": spec.Key, "write": spec.Write, "value": nil, "bytes": nil, "lease": nil, "leaseUID": nil, "pending": nil, "since": nil}
	if spec.Value != "" {
		merge["value"] = spec.Value
	}
	if spec.Bytes != nil {
		merge["bytes"] = spec.Bytes
	}
	if spec.Lease != "" {
		merge["lease"], merge["leaseUID"] = spec.Lease, spec.LeaseUID
	}
	return w.land(ctx, spec.Write, func(into *kube.Record) error {
		return w.k.client.Patch(ctx, kube.Records, w.name, map[string]any{"metadata": meta, "spec": merge}, into)
	})
}

// swap changes the key if it is at a revision.
func (w *recordWrite) swap(ctx context.Context, expect Revision) (Revision, error) {
	k := w.k
	at := func() (version string, ok bool) {
		k.mu.Lock()
		defer k.mu.Unlock()
		r := k.records[w.name]
		if r == nil || k.state.data[w.key].ModRevision != expect {
			return "", false
		}
		return r.Metadata.ResourceVersion, true
	}
	version, ok := at()
	if !ok { // this process may be behind
		if err := k.syncKey(ctx, w.key); err != nil {
			return 0, err
		}
		if version, ok = at(); !ok {
			return 0, ErrConflict
		}
	}
	rev, err := w.patch(ctx, version)
	if kube.IsConflict(err) || kube.IsNotFound(err) {
		if err := k.syncKey(ctx, w.key); err != nil { // who tries again reads what is new
			return 0, err
		}
		return 0, ErrConflict
	}
	return rev, err
}

// land sends a write and waits until it comes back among the changes, at whose place it
// took effect or, if its lease had ended before, did not.
func (w *recordWrite) land(ctx context.Context, write string, send func(*kube.Record) error) (Revision, error) {
	k, l := w.k, &landing{}
	k.mu.Lock()
	k.landings[write] = l
	k.mu.Unlock()
	defer func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		delete(k.landings, write)
	}()
	var written kube.Record
	if err := send(&written); err != nil {
		return 0, err
	}
	version := written.Metadata.Version()
	var result landing
	err := k.await(ctx, func() bool {
		if result = *l; result.arrived {
			return true
		}
		// A list after an outage has only the newest change of each record.
		result = landing{rev: Revision(version), visible: k.leaseLives(&written)}
		return k.version >= version
	})
	switch {
	case err != nil:
		return 0, err
	case !result.visible && !written.Spec.Pending:
		_, _ = k.client.Delete(ctx, kube.Records, w.name, written.Metadata.UID, written.Metadata.ResourceVersion) // else it is removed as an orphan
		return 0, fmt.Errorf("lease %s: %w", written.LeaseID(), ErrLeaseNotFound)
	}
	return result.rev, nil
}

// Delete implements [Store].
func (k *Kubernetes) Delete(ctx context.Context, key string) error {
	_, err := callKubernetes(ctx, k, "delete", key, func(ctx context.Context) (struct{}, error) {
		if place, held := kube.PlaceOf(key); held {
			if k.inDocument(place) {
				return struct{}{}, k.removeFromDocument(ctx, place)
			}
			if worker := k.foreign(key); worker != "" {
				return struct{}{}, fmt.Errorf("it belongs to the pod of %s %s", kube.WorkerMetadata.Kind, worker)
			}
		}
		return struct{}{}, k.deleteRecord(ctx, kube.KeyObject(key), "", "")
	})
	return err
}

// deleteRecord deletes a record, if there is one, and waits until this process knows.
func (k *Kubernetes) deleteRecord(ctx context.Context, name, uid, version string) error {
	deleted, err := k.client.Delete(ctx, kube.Records, name, uid, version)
	switch {
	case kube.IsNotFound(err):
		return k.sync(ctx, "", name, func(r *kube.Record) bool { return r.Metadata.Name == name })
	case err != nil:
		return err
	}
	return k.await(ctx, func() bool {
		r := k.records[name]
		return r == nil || r.Metadata.UID != deleted
	})
}

// under returns whether a key begins with any of the prefixes.
func under(key string, prefixes []string) bool {
	for _, p := range prefixes {
		if strings.HasPrefix(key, p) {
			return true
		}
	}
	return false
}
