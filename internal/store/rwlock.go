package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// exclusiveCreator creates a key if neither it nor any key under one of the
// blocking prefixes exists, in one step. It fails with ErrExists or ErrConflict.
type exclusiveCreator interface {
	createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error)
}

// RWLock is a distributed lock with one writer or any number of readers. Locks belong to
// leases and end with them. Writers come in the order in which they asked; readers wait
// while a writer holds the lock or waits for it, so that no writer starves. Who waits
// watches, and asks the store only when something has changed.
//
// The keys, with their values, are `v1/{name}/writer` (writing),
// `v1/{name}/readers/{id}` (reading) and, for the order of writers,
// `v1/{name}/writers/{lease}` (waiting), which a writer has until it unlocks.
type RWLock struct {
	store  ReadWriter
	prefix string // "v1/{name}/"
}

// Parts of the keys of a lock.
const (
	lockWriter  = "writer"
	lockReaders = "readers/"
	lockWriters = "writers/"
)

// lockRetry is the pause after which a step whose answer was lost is looked at again.
const lockRetry = 100 * time.Millisecond

// NewRWLock returns the lock of that name; nothing is locked yet.
func NewRWLock(s ReadWriter, name string) *RWLock {
	return &RWLock{store: s, prefix: "v1/" + name + "/"}
}

// Unlock gives a lock back. It does nothing if the lock was lost with its lease, and may be
// called again if it fails.
type Unlock func(context.Context) error

// Lock waits until it holds the lock alone, and returns the function that unlocks it. It
// fails when ctx ends or the lease is gone. The lease is the owner: a second request of one
// lease fails with [ErrExists]. Whoever holds the lock as a reader must not wait for it.
func (l *RWLock) Lock(ctx context.Context, lease cluster.InstanceID) (Unlock, error) {
	return l.lock(ctx, lease, true)
}

// TryLock is [RWLock.Lock] without a wait: it fails with [ErrConflict] if somebody else holds
// the lock, or waits for it as a writer.
func (l *RWLock) TryLock(ctx context.Context, lease cluster.InstanceID) (Unlock, error) {
	return l.lock(ctx, lease, false)
}

// RLock waits until there is no writer, and returns the function that unlocks. A reader
// id that is in use fails with [ErrExists].
func (l *RWLock) RLock(ctx context.Context, lease cluster.InstanceID, reader string) (Unlock, error) {
	return l.rlock(ctx, lease, reader, true)
}

// TryRLock is [RWLock.RLock] without a wait: it fails with [ErrConflict] if there is a writer.
func (l *RWLock) TryRLock(ctx context.Context, lease cluster.InstanceID, reader string) (Unlock, error) {
	return l.rlock(ctx, lease, reader, false)
}

func (l *RWLock) lock(ctx context.Context, lease cluster.InstanceID, wait bool) (Unlock, error) {
	place := l.prefix + lockWriters + lease.String()
	if _, err := l.store.Get(ctx, place); err == nil {
		return nil, l.explain(ErrExists)
	}
	turn, err := l.create(ctx, lease, place, "waiting", nil)
	switch {
	case errors.Is(err, ErrConflict): // as stores say it that have several conditions
		return nil, l.explain(ErrExists)
	case err != nil:
		l.withdraw(ctx, lease, place, err)
		return nil, l.explain(err)
	}
	leave := l.unlocker(place, turn)
	rev, err := l.acquire(ctx, lease, l.prefix+lockWriter, "writing", []string{l.prefix + lockReaders}, wait,
		func() (bool, error) { return l.mayWrite(ctx, place, turn) })
	if err != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
		defer cancel()
		_ = leave(ctx) // else it ends with the lease
		return nil, l.explain(err)
	}
	unlock := l.unlocker(l.prefix+lockWriter, rev)
	return func(ctx context.Context) error {
		if err := unlock(ctx); err != nil {
			return err
		}
		return leave(ctx)
	}, nil
}

// mayWrite reports whether no writer that came before is left.
func (l *RWLock) mayWrite(ctx context.Context, place string, turn Revision) (bool, error) {
	kvs, _, err := l.store.List(ctx, l.prefix+lockWriters)
	if err != nil {
		return false, err
	}
	first, there := true, false
	for _, kv := range kvs {
		first = first && kv.ModRevision >= turn
		there = there || kv.Key == place && kv.ModRevision == turn
	}
	if !there {
		return false, ErrLeaseNotFound
	}
	return first, nil
}

func (l *RWLock) rlock(ctx context.Context, lease cluster.InstanceID, reader string, wait bool) (Unlock, error) {
	if reader == "" || strings.Contains(reader, "/") {
		return nil, l.explain(fmt.Errorf("bad reader id %q", reader))
	}
	key := l.prefix + lockReaders + reader
	if _, err := l.store.Get(ctx, key); err == nil {
		return nil, l.explain(fmt.Errorf("reader %s: %w", reader, ErrExists))
	}
	blockers := []string{l.prefix + lockWriter, l.prefix + lockWriters}
	rev, err := l.acquire(ctx, lease, key, "reading", blockers, wait, func() (bool, error) { return true, nil })
	if err != nil {
		return nil, l.explain(err)
	}
	return l.unlocker(key, rev), nil
}

// acquire creates a key as soon as turn says so and nothing blocks it.
func (l *RWLock) acquire(ctx context.Context, lease cluster.InstanceID, key, value string, blockers []string, wait bool, turn func() (bool, error)) (Revision, error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	watcher, err := l.store.Watch(watching, l.prefix)
	for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		sleep(ctx, lockRetry)
		watcher, err = l.store.Watch(watching, l.prefix)
	}
	if err != nil {
		return 0, err
	}
	defer watcher.Close()
	for ev := range watcher.Events() {
		if ev.Type == Put {
			continue // nothing became free
		}
		mine, err := turn()
		for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
			sleep(ctx, lockRetry)
			mine, err = turn()
		}
		var rev Revision
		if err == nil && mine {
			rev, err = l.create(ctx, lease, key, value, blockers)
		}
		switch {
		case err == nil && mine:
			return rev, nil
		case err != nil && !errors.Is(err, ErrConflict) && !errors.Is(err, ErrExists):
			return 0, err
		case !wait:
			return 0, ErrConflict
		}
	}
	return 0, context.Cause(ctx)
}

// create creates a key of the lock. After an answer was lost it finds out whether the attempt
// took effect, or still may, and repeats it if not.
func (l *RWLock) create(ctx context.Context, lease cluster.InstanceID, key, value string, blockers []string) (Revision, error) {
	creator, ok := l.store.(exclusiveCreator)
	if !ok {
		return 0, errors.New("the store cannot lock")
	}
	rev, err := creator.createUnless(ctx, key, []byte(value), blockers, []PutOption{WithLease(lease)})
	for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
		sleep(ctx, lockRetry)
		var kv KV
		switch kv, err = l.store.Get(ctx, key); {
		case err == nil && kv.Lease == lease:
			return kv.ModRevision, nil
		case err == nil || errors.Is(err, ErrNotFound):
			rev, err = creator.createUnless(ctx, key, []byte(value), blockers, []PutOption{WithLease(lease)})
		}
	}
	return rev, err
}

// withdraw deletes the place of a writer who does not know whether it has one, because the
// answer was lost. Else nobody with this lease could ask again.
func (l *RWLock) withdraw(ctx context.Context, lease cluster.InstanceID, place string, err error) {
	if errors.Is(err, ErrExists) || errors.Is(err, ErrLeaseNotFound) {
		return // there is none, or it is another request's
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), DefaultTimeout)
	defer cancel()
	if kv, err := l.store.Get(ctx, place); err == nil && kv.Lease == lease {
		_ = l.store.Delete(ctx, place) // else it ends with the lease
	}
}

// unlocker returns a function that deletes the key, unless another owner has it by now.
func (l *RWLock) unlocker(key string, rev Revision) Unlock {
	return func(ctx context.Context) error {
		kv, err := l.store.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return l.explain(err)
		case kv.ModRevision != rev:
			return nil
		}
		return l.explain(l.store.Delete(ctx, key))
	}
}

func (l *RWLock) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("lock %s: %w", strings.TrimSuffix(l.prefix, "/"), err)
}
