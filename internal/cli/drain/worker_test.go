package drain

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/client"
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

// Questions and plans tell images of encode workers from sequences, and what becomes of them.
func TestWordsForImages(t *testing.T) {
	w := func(name string, role cluster.Role, running, waiting int) cluster.WorkerStatus {
		return cluster.WorkerStatus{Name: name, Role: role, Node: "id-1", State: cluster.StateReady, InstanceID: 7, Stats: cluster.WorkerStats{Running: running, Waiting: waiting}}
	}
	encode, decode, idle := w("worker-1", cluster.RoleEncode, 1, 2), w("worker-2", cluster.RoleDecode, 4, 0), w("worker-3", cluster.RoleEncode, 0, 0)
	v := client.View{Nodes: []cluster.Node{{ID: "id-1", Name: "node-1"}}, Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
	known := map[string]cluster.Worker{}
	for _, st := range []cluster.WorkerStatus{encode, decode, idle} {
		v.Assignments[st.Name] = cluster.Assignment{Name: st.Name, Role: st.Role, Node: st.Node, Desire: cluster.DesireRun}
		v.Status[st.Name] = st
		known[st.Name] = cluster.Worker{WorkerStatus: st}
	}
	one, two, three, node := fleet.Target{Name: "worker-1"}, fleet.Target{Name: "worker-2"}, fleet.Target{Name: "worker-3"}, fleet.Target{Name: "node-1", Node: true}
	if got, want := stakes([]fleet.Target{one, two, three, node}, v, v.Workers()), "worker-1 (3 images), worker-2 (4 sequences), worker-3 (0 images), node/node-1 (4 sequences and 3 images)"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	const elsewhere = "Their images are encoded by another encode worker, or by the workers that compute their prompts."
	for _, tc := range []struct {
		targets []fleet.Target
		want    string
	}{
		{[]fleet.Target{one}, elsewhere},
		{[]fleet.Target{one, three}, elsewhere},
		{[]fleet.Target{two}, "No other decode worker serves: they fail unless one does within 15s."},
		{[]fleet.Target{one, two}, "No other decode worker serves: they fail unless one does within 15s."},
		{[]fleet.Target{node}, "No other decode worker serves: they fail unless one does within 15s."},
	} {
		if got := fate(tc.targets, v); got != tc.want {
			t.Errorf("%v: %q", tc.targets, got)
		}
	}
	if got := planDrain(known["worker-1"], cluster.Assignment{Desire: cluster.DesireRun}); got != "would drain worker-1: ready, 3 images to finish" {
		t.Errorf("%q", got)
	}
	if got := planDrain(known["worker-2"], cluster.Assignment{Desire: cluster.DesireRun}); got != "would drain worker-2: ready, 4 sequences to finish or hand over" {
		t.Errorf("%q", got)
	}
	if _, n, got := planNode(true, v.Nodes[0], known, v); n != 7 || got != "would drain node-1: 3 workers (worker-1, worker-2, worker-3) would leave, 4 sequences and 3 images to finish or hand over" {
		t.Errorf("%d: %q", n, got)
	}
	cut := &cluster.DrainStatus{CutOff: 1}
	d := drainer{alone: true, worker: known["worker-1"]}
	if got := d.cutOffText(cut); got != "; who wants what was cut off has it encoded elsewhere" {
		t.Errorf("%q", got)
	}
}
