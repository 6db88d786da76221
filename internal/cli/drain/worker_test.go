package drain

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// "safe to stop" is never said for an earlier drain.
func TestOldDrains(t *testing.T) {
	at := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	drained := func(started, updated time.Time) cluster.WorkerStatus {
		return cluster.WorkerStatus{State: cluster.StateDrained, UpdatedAt: updated, Drain: &cluster.DrainStatus{StartedAt: started, Safe: true}}
	}
	d := &drainer{before: drained(at, at), resting: map[time.Time]bool{}}
	if !d.old(drained(at, at)) {
		t.Error("the status from before the order counts")
	}
	if d.old(drained(at.Add(time.Second), at.Add(time.Second))) {
		t.Error("a new drain does not count")
	}
	if !d.old(drained(at, at.Add(5*time.Second))) {
		t.Error("one heartbeat, which may have been on its way, counts")
	}
	if d.old(drained(at, at.Add(10*time.Second))) {
		t.Error("a worker at rest never counts")
	}
	if (&drainer{}).old(drained(at, at)) {
		t.Error("after a worker that served, a drain counts")
	}
}
