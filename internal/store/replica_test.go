package store

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A lease ends by the time in which somebody watched it, never by a gap in that.
func TestLeasesEndByObservedTime(t *testing.T) {
	const ttl = 10 * time.Second
	now := time.Unix(1000, 0)
	r := newReplica()
	pass := func(d, step time.Duration) {
		for end := now.Add(d); now.Before(end); {
			now = now.Add(step)
			r.observe(now)
		}
	}
	r.observe(now)
	r.hold(1, ttl, 0)
	r.hold(2, ttl, 0)
	pass(ttl-time.Second, time.Second)
	r.hold(2, ttl, 1) // renewed
	if ids := r.overdue(); len(ids) != 0 {
		t.Errorf("a second before the end: %v are overdue", ids)
	}
	if left := r.left(r.leases[1]); left != time.Second {
		t.Errorf("%s left, want 1s", left)
	}
	pass(time.Hour, time.Hour) // the observer stood still: what it missed it does not know
	if ids := r.overdue(); !slices.Equal(ids, []cluster.InstanceID{1}) {
		t.Errorf("overdue after an hour without an observer: %v, want 1, which had a second left", ids)
	}
	r.hold(2, ttl, 1) // the same beat, read again
	pass(ttl-2*time.Second, time.Second/2)
	if ids := r.overdue(); !slices.Equal(ids, []cluster.InstanceID{1}) {
		t.Errorf("overdue too early: %v", ids)
	}
	pass(time.Second, time.Second/2)
	if ids := r.overdue(); !slices.Equal(ids, []cluster.InstanceID{1, 2}) {
		t.Errorf("overdue: %v, want both", ids)
	}
	now = now.Add(-time.Hour) // no clock of this kind goes back; no lease may live for ever by it
	r.observe(now)
	if ids := r.overdue(); len(ids) != 2 {
		t.Errorf("after a step back: %v", ids)
	}
}
