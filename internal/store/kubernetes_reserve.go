package store

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/kube"
)

// reserveWait limits the wait for a key that asked for its place earlier and does not know
// yet whether it has it.
const reserveWait = time.Second

// reserve creates the key if no key begins with one of the blockers. The API has no
// transactions of several objects. The key is therefore created pending, which nobody sees.
// The versions of all records are one order: of two keys that exclude each other the later one sees the
// earlier one and gives up, and the earlier one does not care for the later one. Then
// the key is confirmed.
func (w *recordWrite) reserve(ctx context.Context, blockers []string) (Revision, error) {
	k := w.k
	if w.taken(blockers) {
		return 0, ErrConflict
	}
	if _, err := w.create(ctx, true); err != nil && !errors.Is(err, ErrExists) {
		return 0, err
	}
	k.mu.Lock()
	mine := k.records[w.name]
	visible := mine != nil && !mine.Spec.Pending
	k.mu.Unlock()
	switch {
	case visible:
		return 0, ErrExists
	case mine == nil:
		return 0, errAgain
	case w.lease != nil && mine.Spec.LeaseUID != w.lease.Metadata.UID:
		return 0, errUndecided // it may go again without an event
	}
	// It is this write's, or that of an earlier attempt of the same owner.
	if err := w.awaitPlace(ctx, blockers, mine.Metadata.Version()); err != nil {
		return 0, errors.Join(err, w.withdraw(ctx, mine))
	}
	return w.confirm(ctx, mine)
}

// errUndecided asks to try again soon.
var errUndecided = fmt.Errorf("%w: another one asked earlier and has not decided yet", ErrUnavailable)

// taken reports whether a key that all see excludes this one.
func (w *recordWrite) taken(blockers []string) bool {
	w.k.mu.Lock()
	defer w.k.mu.Unlock()
	taken, _ := w.blockedLocked(blockers, math.MaxInt64)
	return taken
}

// blockedLocked reports whether a key that asked before a version excludes this one.
// certain is false if it is pending itself: it may go again, which is no event.
func (w *recordWrite) blockedLocked(blockers []string, before int64) (certain, blocked bool) {
	for name, r := range w.k.records {
		if name == w.name || r.IsLease() || !under(r.Spec.Key, blockers) || !w.k.leaseLives(r) {
			continue
		}
		since := r.Spec.Since
		if since == 0 {
			since = r.Metadata.Version()
		}
		if since < before {
			certain, blocked = certain || !r.Spec.Pending, true
		}
	}
	return certain, blocked
}

// awaitPlace returns nil once nothing that asked earlier is in the way.
func (w *recordWrite) awaitPlace(ctx context.Context, blockers []string, since int64) error {
	limited, cancel := context.WithTimeout(ctx, reserveWait)
	defer cancel()
	var certain, blocked bool
	for {
		w.k.mu.Lock()
		certain, blocked = w.blockedLocked(blockers, since)
		moved := w.k.moved
		w.k.mu.Unlock()
		switch {
		case !blocked:
			return nil
		case certain:
			return ErrConflict
		}
		select {
		case <-moved:
		case <-limited.Done():
			return errUndecided
		}
	}
}

// withdraw removes a pending key.
func (w *recordWrite) withdraw(ctx context.Context, mine *kube.Record) error {
	err := w.k.deleteRecord(ctx, w.name, mine.Metadata.UID, "")
	if kube.IsConflict(err) {
		return nil // it is another one's by now
	}
	return err
}

// confirm makes a pending key visible.
func (w *recordWrite) confirm(ctx context.Context, mine *kube.Record) (Revision, error) {
	spec := w.spec()
	rev, err := w.land(ctx, spec.Write, func(into *kube.Record) error {
		return w.k.client.Patch(ctx, kube.Records, w.name, map[string]any{
			"metadata": map[string]any{"resourceVersion": mine.Metadata.ResourceVersion},
			"spec":     map[string]any{"pending": nil, "since": mine.Metadata.Version(), "write": spec.Write},
		}, into)
	})
	if kube.IsConflict(err) || kube.IsNotFound(err) {
		return 0, errAgain
	}
	return rev, err
}
