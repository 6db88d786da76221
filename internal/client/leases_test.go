package client

import (
	"fmt"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// holders is a view in which each lease has its owner.
func holders(nodes, workers map[string]cluster.InstanceID) View {
	v := View{Status: map[string]cluster.WorkerStatus{}}
	for name, id := range nodes {
		v.Nodes = append(v.Nodes, cluster.Node{Name: name, InstanceID: id})
	}
	for name, id := range workers {
		v.Status[name] = cluster.WorkerStatus{Name: name, InstanceID: id}
	}
	return v
}

func TestLeases(t *testing.T) {
	c := lab(t)
	short, long := grant(t, c, 30*time.Second), grant(t, c, time.Minute)
	v := holders(map[string]cluster.InstanceID{"node-1": long}, map[string]cluster.InstanceID{
		"worker-1": short, "worker-2": 0, "worker-3": 0x7fff_ffff_ffff_0001,
	})
	l := leases{}
	if _, ok := l.left(short, time.Now()); ok {
		t.Error("nobody asked yet")
	}
	l.refresh(t.Context(), c.store, v)
	now := time.Now()
	left, ok := l.left(short, now)
	if !ok || left <= 10*time.Second || left > 30*time.Second {
		t.Errorf("%s left of 30 s", left)
	}
	// Between two answers it counts down by the clock, to zero and no further.
	if later, _ := l.left(short, now.Add(2*time.Second)); later != left-2*time.Second {
		t.Errorf("%s left after two more seconds, it was %s", later, left)
	}
	if later, ok := l.left(short, now.Add(time.Hour)); later != 0 || !ok {
		t.Errorf("%s left after an hour", later)
	}
	// A lease that is gone has nothing left; a worker without one is not known.
	if left, ok := l.left(0x7fff_ffff_ffff_0001, now); left != 0 || !ok {
		t.Errorf("a lease that is gone: %s %t", left, ok)
	}
	if _, ok := l.left(0, now); ok {
		t.Error("no lease has no time")
	}
	list := l.list(v, now)
	if len(list) != 2 || list[0].Owner != "worker-1" || list[1].Owner != "node-1" || list[0].TTL != 30*time.Second || list[0].Left+list[0].Renewed != list[0].TTL {
		t.Errorf("list %+v, want the soonest to end first", list)
	}
	// Owners that have left are forgotten.
	l.refresh(t.Context(), c.store, holders(nil, map[string]cluster.InstanceID{"worker-1": short}))
	if len(l) != 1 {
		t.Errorf("%d leases are remembered", len(l))
	}
	if got := l.list(View{}, now); got == nil || len(got) != 0 {
		t.Errorf("nobody there: %v", got)
	}
}

// In a large cluster each snapshot asks about some leases, those asked longest ago
// first; within a few snapshots all are known.
func TestLeaseBudget(t *testing.T) {
	c := lab(t)
	id := grant(t, c, time.Minute)
	workers := map[string]cluster.InstanceID{}
	const n = 2*leaseBudget + 10
	for i := range n {
		workers[cluster.WorkerName(i+1)] = id + 1 + cluster.InstanceID(i) // gone, which is an answer too
	}
	v := holders(map[string]cluster.InstanceID{"node-1": id}, workers)
	l := leases{}
	for round, want := range []int{leaseBudget, 2 * leaseBudget, n + 1, n + 1} {
		before := time.Now()
		l.refresh(t.Context(), c.store, v)
		asked := 0
		for _, s := range l {
			if !s.at.Before(before) {
				asked++
			}
		}
		if len(l) != want || asked > leaseBudget {
			t.Errorf("round %d: %d known, want %d; asked about %d", round, len(l), want, asked)
		}
	}
	for owner, id := range workers {
		if _, ok := l.left(id, time.Now()); !ok {
			t.Errorf("%s was never asked about", owner)
		}
	}
	if got := fmt.Sprint(len(l.list(v, time.Now()))); got != "1" {
		t.Errorf("%s leases are listed, all but one are gone", got)
	}
}
