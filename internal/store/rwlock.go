package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// exclusiveCreator creates a key if neither it nor any key under one of the
// blocking prefixes exists, in one step. It fails with ErrExists or ErrConflict.
type exclusiveCreator interface {
	createUnless(ctx context.Context, key string, value []byte, blockers []string, opts []PutOption) (Revision, error)
}

// RWLock is a distributed lock with one writer or any number of readers. Locks
// belong to leases and end with them. Writers wait for readers and may starve.
type RWLock struct {
	store  ReadWriter
	prefix string // "v1/{name}/"
}

// NewRWLock returns the lock of that name; nothing is locked yet.
func NewRWLock(s ReadWriter, name string) *RWLock {
	return &RWLock{store: s, prefix: "v1/" + name + "/"}
}

// Lock waits until it holds the lock alone, and returns the function that unlocks it. It
// fails when ctx ends or the lease is gone. The lease is the owner: one lease must not
// ask for the same lock twice at the same time.
func (l *RWLock) Lock(ctx context.Context, lease cluster.InstanceID) (unlock func(context.Context) error, err error) {
	return l.acquire(ctx, lease, l.prefix+"writer", "writing", l.prefix)
}

// RLock waits until there is no writer, and returns the function that unlocks. A reader
// id that is in use fails with [ErrExists].
func (l *RWLock) RLock(ctx context.Context, lease cluster.InstanceID, reader string) (unlock func(context.Context) error, err error) {
	key := l.prefix + "readers/" + reader
	if _, err := l.store.Get(ctx, key); err == nil {
		return nil, fmt.Errorf("lock %s: reader %s: %w", l.prefix, reader, ErrExists)
	}
	return l.acquire(ctx, lease, key, "reading", l.prefix+"writer")
}

func (l *RWLock) acquire(ctx context.Context, lease cluster.InstanceID, key, value, blocker string) (func(context.Context) error, error) {
	creator, ok := l.store.(exclusiveCreator)
	if !ok {
		return nil, fmt.Errorf("lock %s: the store cannot lock", l.prefix)
	}
	watcher, err := l.store.Watch(ctx, l.prefix)
	if err != nil {
		return nil, err
	}
	defer watcher.Close()
	for ev := range watcher.Events() {
		if ev.Type == Put {
			continue // nothing became free
		}
		rev, err := creator.createUnless(ctx, key, []byte(value), []string{blocker}, []PutOption{WithLease(lease)})
		for errors.Is(err, ErrUnavailable) && ctx.Err() == nil {
			// The attempt may have taken effect, or may still: check what the store
			// holds.
			sleep(ctx, 100*time.Millisecond)
			rev, err = l.settle(ctx, creator, lease, key, value, blocker)
		}
		switch {
		case err == nil:
			return l.unlocker(key, rev), nil
		case errors.Is(err, ErrConflict), errors.Is(err, ErrExists):
			continue
		}
		return nil, err
	}
	return nil, fmt.Errorf("lock %s: %w", l.prefix, context.Cause(ctx))
}

// settle finds out whether an attempt whose answer was lost took the lock. If not, it
// repeats the attempt.
func (l *RWLock) settle(ctx context.Context, creator exclusiveCreator, lease cluster.InstanceID, key, value, blocker string) (Revision, error) {
	kv, err := l.store.Get(ctx, key)
	switch {
	case err == nil && kv.Lease == lease:
		return kv.ModRevision, nil
	case err == nil || errors.Is(err, ErrNotFound):
		return creator.createUnless(ctx, key, []byte(value), []string{blocker}, []PutOption{WithLease(lease)})
	}
	return 0, err
}

// unlocker returns a function that deletes the key, unless another owner has it by now.
func (l *RWLock) unlocker(key string, rev Revision) func(context.Context) error {
	return func(ctx context.Context) error {
		kv, err := l.store.Get(ctx, key)
		switch {
		case errors.Is(err, ErrNotFound):
			return nil
		case err != nil:
			return err
		case kv.ModRevision != rev:
			return nil
		}
		return l.store.Delete(ctx, key)
	}
}
