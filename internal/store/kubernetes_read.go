package store

import (
	"context"
	"strings"

	"github.com/dynctl/dynctl/internal/kube"
)

// Get implements [Store].
func (k *Kubernetes) Get(ctx context.Context, key string) (KV, error) {
	return callKubernetes(ctx, k, "get", key, func(ctx context.Context) (KV, error) {
		if err := k.syncKey(ctx, key); err != nil {
			return KV{}, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		kv, ok := k.state.data[key]
		if !ok {
			return KV{}, ErrNotFound
		}
		return kv, nil
	})
}

// List implements [Store].
func (k *Kubernetes) List(ctx context.Context, prefix string) ([]KV, Revision, error) {
	l, err := callKubernetes(ctx, k, "list", prefix, func(ctx context.Context) (listed, error) {
		if err := k.syncPrefix(ctx, prefix); err != nil {
			return listed{}, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return listed{k.state.list(prefix), k.state.rev}, nil
	})
	return l.kvs, l.rev, err
}

// Newest implements [Store].
func (k *Kubernetes) Newest(ctx context.Context, prefix string) (Revision, error) {
	return callKubernetes(ctx, k, "find the newest of", prefix, func(ctx context.Context) (Revision, error) {
		if err := k.syncPrefix(ctx, prefix); err != nil {
			return 0, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		return k.state.newest(prefix), nil
	})
}

// Watch implements [Store].
func (k *Kubernetes) Watch(ctx context.Context, prefix string) (*Watcher, error) {
	watching, cancel := context.WithCancel(ctx)
	w, err := callKubernetes(ctx, k, "watch", prefix, func(ctx context.Context) (*Watcher, error) {
		if err := k.syncPrefix(ctx, prefix); err != nil {
			return nil, err
		}
		k.mu.Lock()
		defer k.mu.Unlock()
		// Whoever follows the API pushes changes, so the source only unregisters.
		w, err := newWatcher(watching, k.life, k.state.list(prefix), k.state.rev, k.health.trouble, func(ctx context.Context, w *Watcher) {
			<-ctx.Done()
			cancel()
			k.mu.Lock()
			defer k.mu.Unlock()
			delete(k.state.watchers, w)
		})
		if err == nil {
			k.state.watchers[w] = prefix
		}
		return w, err
	})
	if err != nil {
		cancel()
	}
	return w, err
}

// syncPrefix waits until this process knows all changes below a prefix that were made
// before.
func (k *Kubernetes) syncPrefix(ctx context.Context, prefix string) error {
	err := k.sync(ctx, kube.Selector(prefix), "", func(r *kube.Record) bool {
		return r.Spec.Key != "" && strings.HasPrefix(r.Spec.Key, prefix)
	})
	if err != nil || !kube.Held(prefix) {
		return err
	}
	return k.syncWorkers(ctx)
}

// syncKey is syncPrefix for one key. What this process itself has in its document is known.
func (k *Kubernetes) syncKey(ctx context.Context, key string) error {
	place, held := kube.PlaceOf(key)
	if held && k.inDocument(place) {
		_, err, _ := k.health.trouble()
		return err
	}
	name := kube.KeyObject(key)
	err := k.sync(ctx, "", name, func(r *kube.Record) bool { return r.Metadata.Name == name })
	if err != nil || !held {
		return err
	}
	return k.syncWorkers(ctx)
}

// sync asks for the versions of records, by a selector or a name, and waits until this
// process knows those. of tells which of the records known here are among them.
func (k *Kubernetes) sync(ctx context.Context, selector, name string, of func(*kube.Record) bool) error {
	found, version, err := k.client.Versions(ctx, kube.Records, selector, name)
	if err != nil {
		return err
	}
	newest, there := int64(0), map[string]bool{}
	for _, m := range found {
		newest, there[m.UID] = max(newest, m.Version()), true
	}
	return k.await(ctx, func() bool {
		if k.version < newest {
			return false
		}
		for _, r := range k.records {
			if m := r.Metadata; !there[m.UID] && m.Version() <= version && of(r) {
				return false // it was deleted
			}
		}
		return true
	})
}

// syncWorkers is sync for all objects of workers.
func (k *Kubernetes) syncWorkers(ctx context.Context) error {
	found, version, err := k.client.Versions(ctx, kube.WorkerMetadata, "", "")
	if err != nil {
		return err
	}
	newest, there := int64(0), map[string]bool{}
	for _, m := range found {
		newest, there[m.UID] = max(newest, m.Version()), true
	}
	return k.await(ctx, func() bool {
		if k.workersVersion < newest {
			return false
		}
		for _, w := range k.workers {
			if !there[w.uid] && w.version <= version {
				return false
			}
		}
		return true
	})
}
