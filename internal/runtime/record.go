package runtime

import (
	"context"
	"errors"
	"sync"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// record is one key under the lease: its desired state, and the state last written. The
// runtime retries failed writes until the two agree.
type record struct {
	d     *DistributedRuntime
	key   func(cluster.InstanceID) string
	write func(ctx context.Context, key string, id cluster.InstanceID) error
	// bind, if not nil, runs before the key is written under an id, and bound
	// after it was.
	bind  func(cluster.InstanceID) error
	bound func(cluster.InstanceID)

	// mu guards the desired state. It is held only for assignments, so that an order
	// never waits for the store.
	mu sync.Mutex
	// wanted says whether the key should exist. final says that it will never be wanted
	// again. version counts the changes of both.
	wanted, final bool
	version       uint64

	lock chan struct{} // capacity 1: held by the goroutine that uses anything below
	// settled is the version that the store holds, written under id; 0 is none.
	settled uint64
	// id is the lease id of the last attempt to write the key, even if it failed; 0 means
	// that there is no key.
	id     cluster.InstanceID
	warned bool
}

// add registers a record with the repair loop. The record is wanted from the start.
func (d *DistributedRuntime) add(r *record) error {
	r.d, r.wanted, r.version, r.lock = d, true, 1, make(chan struct{}, 1)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return ErrClosed
	}
	d.records[r] = struct{}{}
	return nil
}

func (r *record) acquire(ctx context.Context) error {
	select {
	case r.lock <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *record) relinquish() { <-r.lock }

// first settles a new record. If the lease turns out to be lost, it waits for a new one.
// A record that cannot be settled is withdrawn.
func (r *record) first(ctx context.Context) error {
	ctx, cancel := r.d.join(ctx)
	defer cancel()
	for {
		_, renewed := r.d.current()
		err := r.settle(ctx)
		if errors.Is(err, store.ErrLeaseNotFound) {
			err = r.d.awaitRenewal(ctx, renewed)
			if err == nil {
				continue
			}
		}
		if err != nil {
			r.withdraw()
		}
		return err
	}
}

// order changes the desired state, without waiting for the store.
func (r *record) order(alter func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	alter()
	r.version++
}

// ordered returns the desired state.
func (r *record) ordered() (wanted, final bool, version uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.wanted, r.final, r.version
}

// withdraw has the repair loop delete the key, which may have been written.
func (r *record) withdraw() {
	r.order(func() { r.wanted, r.final = false, true })
	r.d.repairs.Wake()
}

// change changes the desired state and settles it. The repair loop continues if that
// fails, if the store does not answer, or if ctx ends while another goroutine settles.
func (r *record) change(ctx context.Context, alter func()) error {
	ctx, cancel := r.d.join(ctx)
	defer cancel()
	ctx, done := r.d.cfg.Store.WhileAnswering(ctx)
	defer done()
	if r.d.ctx.Err() != nil {
		return ErrClosed
	}
	r.order(alter)
	err := r.settle(ctx)
	if err != nil {
		r.d.repairs.Wake()
	}
	return err
}

// verify unsettles a record whose key is gone. A key under another lease belongs to a
// successor and is left alone.
func (r *record) verify(ctx context.Context) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.relinquish()
	if wanted, _, version := r.ordered(); !wanted || r.settled != version || r.id != r.d.ID() {
		return nil
	}
	_, err := r.d.cfg.Store.Get(ctx, r.key(r.id))
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	r.d.log.Warn("key is gone, writing it again", "key", r.key(r.id))
	r.settled = 0
	return nil
}

func (r *record) settle(ctx context.Context) error {
	if err := r.acquire(ctx); err != nil {
		return err
	}
	defer r.relinquish()
	return r.settleLocked(ctx)
}

// settleLocked makes the store agree with the desired state.
func (r *record) settleLocked(ctx context.Context) error {
	err := r.agree(ctx)
	switch {
	case err == nil:
		if r.warned {
			r.d.log.Info("registration is in order again", "key", r.key(r.d.ID()))
		}
		r.warned = false
	case !r.warned && ctx.Err() == nil:
		r.warned = true
		r.d.log.Warn("registration will be retried", "key", r.key(r.d.ID()), "err", err)
	}
	return err
}

func (r *record) agree(ctx context.Context) error {
	wanted, final, version := r.ordered()
	if !wanted {
		return r.remove(ctx, final, version)
	}
	id := r.d.ID()
	if r.settled == version && r.id == id {
		return nil
	}
	if r.bind != nil {
		if err := r.bind(id); err != nil {
			return err
		}
	}
	r.id, r.settled = id, 0
	if err := r.write(ctx, r.key(id), id); err != nil {
		return err
	}
	r.settled = version
	if r.bound != nil {
		r.bound(id)
	}
	return nil
}

// remove deletes the key if this runtime still owns it, and forgets a record that is
// final.
func (r *record) remove(ctx context.Context, final bool, version uint64) error {
	if r.id != 0 {
		key := r.key(r.id)
		kv, err := r.d.cfg.Store.Get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return err
		case kv.Lease == r.id:
			if err := r.d.cfg.Store.Delete(ctx, key); err != nil {
				return err
			}
		}
	}
	r.id, r.settled = 0, version
	if final {
		r.d.mu.Lock()
		delete(r.d.records, r)
		r.d.mu.Unlock()
	}
	return nil
}
