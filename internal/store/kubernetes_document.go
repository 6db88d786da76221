package store

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
)

// documents writes the DynamoWorkerMetadata object of this process's pod, as a whole. All
// changes that wait while one is written are written together.
type documents struct {
	turn chan struct{} // capacity 1: held by whoever writes; guards applied
	// applied is what was written last, by this run of the process.
	applied kube.Document

	written atomic.Bool // at least once

	mu      sync.Mutex
	waiting []*documentChange
}

// documentChange is one change that waits to be written.
type documentChange struct {
	mutate func(kube.Document) (kube.Document, error)
	done   bool // guarded by turn
	err    error
}

// inDocument reports whether this process keeps a key in its document: that of an instance
// which lives under a lease of this process, in a pod.
func (k *Kubernetes) inDocument(p kube.Place) bool { return k.pod.In() && k.leaseIn(p.ID) }

// change writes one change of the document.
func (k *Kubernetes) change(ctx context.Context, mutate func(kube.Document) (kube.Document, error)) error {
	d, c := &k.documents, &documentChange{mutate: mutate}
	d.mu.Lock()
	d.waiting = append(d.waiting, c)
	d.mu.Unlock()
	select {
	case d.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err() // somebody else may write it yet
	}
	defer func() { <-d.turn }()
	if c.done {
		return c.err
	}
	d.mu.Lock()
	all := d.waiting
	d.waiting = nil
	d.mu.Unlock()
	limited, cancel := context.WithTimeout(k.life.ctx, k.timeout) // others rely on it, whose caller may stay
	defer cancel()
	k.applyAll(limited, all)
	return c.err
}

// applyAll writes changes together. The caller holds the turn.
func (k *Kubernetes) applyAll(ctx context.Context, all []*documentChange) {
	d := &k.documents
	next := d.applied
	for _, c := range all {
		changed, err := c.mutate(next)
		if c.err = err; err == nil {
			next = changed
		}
	}
	var written kube.Worker
	err := k.client.Apply(ctx, kube.WorkerMetadata, k.pod.Object(), kube.FieldManager, k.pod.Apply(next, k.run), &written)
	for _, c := range all {
		if c.done = true; c.err == nil {
			c.err = err
		}
	}
	if err != nil {
		return
	}
	d.applied = next
	d.written.Store(true)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.changeWorker(&written, false, written.Metadata.Version())
	close(k.moved)
	k.moved = make(chan struct{})
}

// putInDocument writes a key of this process.
func (k *Kubernetes) putInDocument(ctx context.Context, key string, p kube.Place, value []byte, c condition) (Revision, error) {
	err := k.change(ctx, func(doc kube.Document) (kube.Document, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if err := k.state.allowed(key, c, p.ID); err != nil {
			return doc, err
		}
		if c.absent && doc.Has(p) { // of another change that is written with this one
			return doc, ErrExists
		}
		return doc.Put(p, value)
	})
	if err != nil {
		return 0, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	kv, there := k.state.data[key]
	if !there {
		return 0, ErrLeaseNotFound
	}
	return kv.ModRevision, nil
}

func (k *Kubernetes) removeFromDocument(ctx context.Context, p kube.Place) error {
	return k.change(ctx, func(doc kube.Document) (kube.Document, error) { return doc.Put(p, nil) })
}

// dropFromDocument removes all entries under a lease, if there are any.
func (k *Kubernetes) dropFromDocument(ctx context.Context, id cluster.InstanceID) error {
	if !k.pod.In() {
		return nil
	}
	k.mu.Lock()
	view := k.workers[k.pod.Object()]
	var places []kube.Place
	if view != nil && view.run == k.run {
		for _, e := range view.entries {
			if p, ok := kube.PlaceOf(e.Key); ok && p.ID == id {
				places = append(places, p)
			}
		}
	}
	k.mu.Unlock()
	if len(places) == 0 {
		return nil
	}
	return k.change(ctx, func(doc kube.Document) (kube.Document, error) {
		var err error
		for _, p := range places {
			if doc, err = doc.Put(p, nil); err != nil {
				return doc, err
			}
		}
		return doc, nil
	})
}

// repairDocument writes the document again if its object was deleted, or is still that of
// an earlier process in this pod, whose entries others would take to be there.
func (k *Kubernetes) repairDocument(ctx context.Context) {
	k.mu.Lock()
	view := k.workers[k.pod.Object()]
	wrong := k.pod.In() && len(k.holding) > 0 && (view == nil || view.run != k.run)
	k.mu.Unlock()
	if !wrong {
		return
	}
	if view != nil && k.documents.written.Load() {
		k.log.Warn("another process writes the document of this pod: several in one pod need the discovery mode container", "object", k.pod.Object())
	}
	err := k.change(ctx, func(doc kube.Document) (kube.Document, error) { return doc, nil })
	if err != nil && !errors.Is(err, context.Canceled) {
		k.log.Warn("the pod's document cannot be written", "object", k.pod.Object(), "err", err)
	}
}
