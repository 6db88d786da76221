package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Leased is a Store for packages that do not know what one is: keys with plain values,
// all of them owned by one lease. It satisfies the store of nixl/directory.
type Leased struct {
	store Store
	lease func() cluster.InstanceID
}

// NewLeased returns the keys of whoever has the lease. lease is asked before each
// write, for it changes when a lost one is granted anew.
func NewLeased(s Store, lease func() cluster.InstanceID) *Leased {
	return &Leased{store: s, lease: lease}
}

// Put writes a key that ends with the lease.
func (l *Leased) Put(ctx context.Context, key string, value []byte) error {
	_, err := l.store.Put(ctx, key, value, WithLease(l.lease()))
	return err
}

// DeletePrefix deletes all keys with that prefix.
func (l *Leased) DeletePrefix(ctx context.Context, prefix string) error {
	_, err := l.store.DeletePrefix(ctx, prefix)
	return err
}

// Follow calls f with every key below prefix, then with each change, and with a nil
// value for a key that is gone, until ctx ends; it returns its cause.
func (l *Leased) Follow(ctx context.Context, prefix string, f func(key string, value []byte)) error {
	w, err := l.store.Watch(ctx, prefix)
	if err != nil {
		return err
	}
	defer w.Close()
	known := map[string]bool{}
	put := func(kv KV) {
		known[kv.Key] = true
		f(kv.Key, append([]byte{}, kv.Value...))
	}
	gone := func(key string) {
		delete(known, key)
		f(key, nil)
	}
	for {
		select {
		case e, ok := <-w.Events():
			if !ok {
				return errors.Join(context.Cause(ctx), fmt.Errorf("follow %q: watch has ended: %w", prefix, ErrUnavailable))
			}
			switch e.Type {
			case Put:
				put(e.KV)
			case Delete:
				gone(e.KV.Key)
			case Resync:
				left := map[string]bool{}
				for _, kv := range e.All {
					left[kv.Key] = true
					put(kv)
				}
				for key := range known {
					if !left[key] {
						gone(key)
					}
				}
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
