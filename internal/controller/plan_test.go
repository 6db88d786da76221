package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

var tiny = cluster.ModelSpec{Name: "tiny", Path: "/models/tiny"}

func node(name string, cores ...int) cluster.Node {
	n := cluster.Node{ID: "id-" + name, Name: name}
	for i, c := range cores {
		n.Devices = append(n.Devices, cluster.Device{ID: fmt.Sprintf("cpu:%d", i), Cores: c})
	}
	return n
}

func prefers(n cluster.Node, roles ...cluster.Role) cluster.Node {
	n.Roles = roles
	return n
}

// world applies plans and lets workers follow, as agents would.
type world struct {
	View
	t *testing.T
}

func newWorld(t *testing.T, prefill, decode int, nodes ...cluster.Node) *world {
	return &world{t: t, View: View{
		Topology: &cluster.Topology{Model: tiny, Prefill: prefill, Decode: decode},
		Nodes:    nodes,
		Status:   map[string]cluster.WorkerStatus{},
	}}
}

func (w *world) apply(changes []Change) {
	for _, ch := range changes {
		i := slices.IndexFunc(w.Assignments, func(a cluster.Assignment) bool { return a.Name == ch.Assignment.Name })
		switch {
		case ch.Delete:
			w.Assignments = slices.Delete(w.Assignments, i, i+1)
			delete(w.Status, ch.Assignment.Name)
		case i >= 0:
			w.Assignments[i] = ch.Assignment
		default:
			w.Assignments = append(w.Assignments, ch.Assignment)
		}
	}
}

// follow makes every placed worker reach what its assignment asks for.
func (w *world) follow() {
	for _, a := range w.Assignments {
		if a.Node == "" || !slices.ContainsFunc(w.Nodes, func(n cluster.Node) bool { return n.ID == a.Node }) {
			delete(w.Status, a.Name)
			continue
		}
		st := cluster.WorkerStatus{Name: a.Name, Generation: a.Generation, State: cluster.StateReady}
		switch a.Desire {
		case cluster.DesireDrain:
			st.State = cluster.StateDrained
		case cluster.DesireRemove:
			st.State = cluster.StateStopped
		}
		w.Status[a.Name] = st
	}
}

// converge plans until nothing changes, and fails if that takes too long or a
// plan is not idempotent.
func (w *world) converge() {
	w.t.Helper()
	for range 200 {
		changes := Plan(w.View)
		if len(changes) == 0 {
			return
		}
		w.apply(changes)
		if again := Plan(w.View); len(again) != 0 {
			w.t.Fatalf("not idempotent: %+v", again)
		}
		w.follow()
	}
	w.t.Fatalf("no rest after 200 rounds, next plan: %+v", Plan(w.View))
}

// picture draws the assignments as "worker-1 prefill node-1/cpu:0".
func (w *world) picture() string {
	var lines []string
	slices.SortFunc(w.Assignments, func(a, b cluster.Assignment) int { return cluster.CompareNames(a.Name, b.Name) })
	for _, a := range w.Assignments {
		where := strings.TrimPrefix(a.Node, "id-") + "/" + a.Device
		if a.Node == "" {
			where = "(" + a.Unplaced + ")"
		}
		line := fmt.Sprintf("%s %s %s", a.Name, a.Role, where)
		if a.Desire != cluster.DesireRun {
			line += " " + string(a.Desire)
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func (w *world) want(lines ...string) {
	w.t.Helper()
	if got, want := w.picture(), strings.Join(lines, "\n"); got != want {
		w.t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestPlan(t *testing.T) {
	t.Run("names follow the roles", func(t *testing.T) {
		w := newWorld(t, 2, 4, node("a", 2))
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 prefill a/cpu:0", "worker-3 decode a/cpu:0",
			"worker-4 decode a/cpu:0", "worker-5 decode a/cpu:0", "worker-6 decode a/cpu:0")
	})
	t.Run("spread over equal nodes", func(t *testing.T) {
		w := newWorld(t, 2, 2, node("a", 2), node("b", 2))
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 prefill b/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode b/cpu:0")
	})
	t.Run("bigger devices take more", func(t *testing.T) {
		w := newWorld(t, 0, 4, node("a", 2), node("b", 6))
		w.converge()
		w.want("worker-1 decode b/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode b/cpu:0")
	})
	t.Run("preferred roles", func(t *testing.T) {
		w := newWorld(t, 1, 2, prefers(node("a", 2), cluster.RoleDecode), prefers(node("b", 2), cluster.RolePrefill))
		w.converge()
		w.want("worker-1 prefill b/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
		w.Nodes = w.Nodes[:1] // b dies
		w.follow()
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
	})
	t.Run("scale up reuses the lowest free name", func(t *testing.T) {
		w := newWorld(t, 1, 3, node("a", 2))
		w.converge()
		w.Topology.Decode = 1
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0")
		w.Topology.Decode, w.Topology.Prefill = 2, 2
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 prefill a/cpu:0", "worker-4 decode a/cpu:0")
	})
	t.Run("scale down waits for the drain", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2))
		w.converge()
		w.Topology.Decode = 1
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0 remove")
		if more := Plan(w.View); len(more) != 0 {
			t.Errorf("while it drains: %+v", more)
		}
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0")
	})
	t.Run("scale down takes drained workers first", func(t *testing.T) {
		w := newWorld(t, 0, 3, node("a", 2))
		w.converge()
		w.Assignments[0].Desire = cluster.DesireDrain
		w.follow()
		w.converge() // a drained worker keeps its place
		w.want("worker-1 decode a/cpu:0 drain", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
		w.Topology.Decode = 2
		w.converge()
		w.want("worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
	})
	t.Run("scale down takes workers of drained nodes first", func(t *testing.T) {
		w := newWorld(t, 0, 3, node("a", 2), node("b", 2), node("c", 2))
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode c/cpu:0")
		w.Topology.Decode = 2
		w.Cordons = map[string]cluster.Cordon{"id-b": {Node: "id-b"}}
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-3 decode c/cpu:0")
	})
	t.Run("no node, then one", func(t *testing.T) {
		w := newWorld(t, 0, 1)
		w.converge()
		w.want("worker-1 decode (no node is up)")
		w.Nodes = []cluster.Node{node("a", 2)}
		w.converge()
		w.want("worker-1 decode a/cpu:0")
	})
	t.Run("device that does not exist", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.Topology.Engine.Device = "gpu"
		w.converge()
		w.want("worker-1 decode (no node has a device gpu)")
	})
	t.Run("a group of GPUs with as many ranks", func(t *testing.T) {
		n := node("a", 2)
		n.Devices = append(n.Devices, cluster.Device{ID: "gpu:0"}, cluster.Device{ID: "gpu:1+2"})
		w := newWorld(t, 0, 1, n)
		w.Topology.Engine.Device, w.Topology.Engine.TensorParallel = "gpu", 2
		w.converge()
		w.want("worker-1 decode a/gpu:1+2")
		w = newWorld(t, 0, 1, n)
		w.Topology.Engine.Device, w.Topology.Engine.TensorParallel = "gpu", 4
		w.converge()
		w.want("worker-1 decode (no node has a device gpu with 4 ranks)")
	})
	t.Run("node lost while draining", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		w.Assignments[0].Desire = cluster.DesireDrain
		w.Nodes = nil
		w.follow()
		w.converge()
		w.want("worker-1 decode (drained; its node is gone) drain")
		w.Assignments[0].Desire = cluster.DesireRun
		w.Nodes = []cluster.Node{node("b", 2)}
		w.converge()
		w.want("worker-1 decode b/cpu:0")
	})
	t.Run("down to nothing", func(t *testing.T) {
		w := newWorld(t, 2, 2, node("a", 2))
		w.converge()
		w.Topology.Prefill, w.Topology.Decode = 0, 0
		w.converge()
		w.want("")
	})
	t.Run("nothing declared", func(t *testing.T) {
		if got := Plan(View{Nodes: []cluster.Node{node("a", 2)}}); len(got) != 0 {
			t.Errorf("plan without a topology: %+v", got)
		}
	})
}

// A change tells all of why: what is asked for, and what is in its way.
func TestPlanSaysWhy(t *testing.T) {
	w := newWorld(t, 0, 1)
	why := func() (all []string) {
		changes := Plan(w.View)
		w.apply(changes)
		for _, ch := range changes {
			all = append(all, ch.Why)
		}
		return all
	}
	for _, step := range []struct {
		what   string
		change func()
		want   string
	}{
		{"no node", func() {}, "scale up: unplaced: no node is up"},
		{"nothing new", func() {}, ""},
		{"a node that is drained", func() {
			w.Nodes = []cluster.Node{node("a", 2)}
			w.Cordons = map[string]cluster.Cordon{"id-a": {Node: "id-a"}}
		}, "unplaced: all nodes are drained"},
		{"a node", func() { w.Cordons = nil }, "placed: on a cpu:0"},
	} {
		step.change()
		if got := strings.Join(why(), ", "); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}

// rounds applies one plan after the other, with the workers doing at once what they are
// asked, and returns what changed in each.
func (w *world) rounds() (log []string) {
	w.t.Helper()
	for range 100 {
		changes := Plan(w.View)
		if len(changes) == 0 {
			return log
		}
		var texts []string
		for _, ch := range changes {
			texts = append(texts, ch.Assignment.Name+" "+string(ch.Action))
		}
		log = append(log, strings.Join(texts, ", "))
		w.apply(changes)
		w.follow()
	}
	w.t.Fatalf("no rest: %q", log)
	return nil
}

func (w *world) wantRounds(want ...string) {
	w.t.Helper()
	if got := w.rounds(); !slices.Equal(got, want) {
		w.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func (w *world) assignment(name string) *cluster.Assignment {
	w.t.Helper()
	i := slices.IndexFunc(w.Assignments, func(a cluster.Assignment) bool { return a.Name == name })
	if i < 0 {
		w.t.Fatalf("no %s in\n%s", name, w.picture())
	}
	return &w.Assignments[i]
}

// say changes what a worker reports.
func (w *world) say(name string, change func(*cluster.WorkerStatus)) {
	st := w.Status[name]
	change(&st)
	w.Status[name] = st
}

func TestPlanReplaces(t *testing.T) {
	t.Run("one that serves stays until its successor does, one that does not leaves at once", func(t *testing.T) {
		for state, leaves := range map[cluster.State]bool{
			cluster.StateReady: false, cluster.StateDegraded: false, cluster.StateDraining: false, cluster.StateFailed: true,
		} {
			w := newWorld(t, 0, 1, node("a", 2))
			w.converge()
			w.assignment("worker-1").Replace = true
			w.apply(Plan(w.View))
			w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = state })
			w.apply(Plan(w.View))
			if s := w.assignment("worker-2"); s.Replaces != "worker-1" || s.Node == "" {
				t.Fatalf("%s: no successor:\n%s", state, w.picture())
			}
			if got := w.assignment("worker-1").Desire == cluster.DesireRemove; got != leaves {
				t.Errorf("%s: leaves %t, want %t:\n%s", state, got, leaves, w.picture())
			}
		}
	})
	t.Run("one that does not serve stays while there is no place for a successor", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		w.assignment("worker-1").Replace = true
		w.Topology.Engine.Device = "gpu"
		w.apply(Plan(w.View))
		w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateFailed })
		w.apply(Plan(w.View))
		if a := w.assignment("worker-1"); a.Desire != cluster.DesireRun {
			t.Errorf("%s", w.picture())
		}
	})
	t.Run("a new engine comes with new workers, one of a role at a time", func(t *testing.T) {
		w := newWorld(t, 1, 2, node("a", 2))
		w.converge()
		w.Topology.Engine.KVBlocks = 99
		w.wantRounds(
			"worker-4 start, worker-5 start", "worker-1 remove, worker-2 remove",
			"worker-1 drop, worker-2 drop, worker-4 change, worker-5 change, worker-6 start",
			"worker-3 remove", "worker-3 drop, worker-6 change")
		w.want("worker-4 prefill a/cpu:0", "worker-5 decode a/cpu:0", "worker-6 decode a/cpu:0")
	})
	t.Run("without a place for one more, in place", func(t *testing.T) {
		n := node("a", 2)
		n.Devices[0].MemoryBytes = 3 << 30
		w := newWorld(t, 0, 3, n)
		w.converge()
		for _, a := range w.Assignments {
			w.say(a.Name, func(st *cluster.WorkerStatus) { st.MemoryBytes = 1 << 30 })
		}
		w.Topology.Restarts++
		w.Topology.Engine.MaxSeqs = 7 // what that takes nobody knows: a new one is tried
		changes := Plan(w.View)
		w.apply(changes)
		if s := w.assignment("worker-4"); s.Node == "" || s.Replaces != "worker-1" {
			t.Fatalf("the successor: %+v", s)
		}
		w.Status["worker-4"] = cluster.WorkerStatus{Name: "worker-4", State: cluster.StateFailed, NoMemory: true, FitsAlone: true, Generation: 1}
		changes = Plan(w.View)
		w.apply(changes)
		if a := w.assignment("worker-1"); a.Engine.MaxSeqs != 7 || a.Generation != 2 || !strings.Contains(changes[0].Why, "in place: no memory") {
			t.Errorf("%+v: %s", a, changes[0].Why)
		}
		// Now that one of the new kind says what it takes, nobody is tried again.
		w.Status["worker-1"] = cluster.WorkerStatus{Name: "worker-1", State: cluster.StateReady, Generation: 2, MemoryBytes: 1 << 30}
		w.Status["worker-4"] = cluster.WorkerStatus{Name: "worker-4", State: cluster.StateStopped, Generation: 1}
		w.apply(Plan(w.View))
		changes = Plan(w.View)
		if len(changes) != 0 { // the drop and the next one came together
			t.Errorf("%+v", changes)
		}
		if a := w.assignment("worker-2"); a.Engine.MaxSeqs != 7 || a.Generation != 2 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("a successor that fails stays alone", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2))
		w.converge()
		w.Topology.Model.Name = "broken"
		w.apply(Plan(w.View))
		w.Status["worker-3"] = cluster.WorkerStatus{Name: "worker-3", State: cluster.StateFailed, Reason: "no such file", Generation: 1}
		if more := Plan(w.View); len(more) != 0 {
			t.Errorf("%+v", more)
		}
		w.Topology.Model = tiny // taken back
		w.wantRounds("worker-3 remove", "worker-3 drop")
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0")
	})
	t.Run("a rolling restart keeps names, but of the only one of its role", func(t *testing.T) {
		w := newWorld(t, 1, 2, node("a", 2))
		w.converge()
		w.Topology.Restarts++
		w.wantRounds("worker-2 change, worker-4 start", "worker-1 remove, worker-2 change, worker-3 change", "worker-1 drop, worker-3 change, worker-4 change")
		w.want("worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 prefill a/cpu:0")
		for _, a := range w.Assignments {
			if a.Restarts != 1 {
				t.Errorf("%+v", a)
			}
		}
	})
	t.Run("somebody asks for a successor", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2))
		w.converge()
		w.assignment("worker-1").Replace = true
		w.wantRounds("worker-3 start", "worker-1 remove", "worker-1 drop, worker-3 change")
		w.want("worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
	})
	t.Run("taken back at any step", func(t *testing.T) {
		for steps := range 3 {
			w := newWorld(t, 0, 2, node("a", 2))
			w.converge()
			w.assignment("worker-1").Replace = true
			for range steps {
				w.apply(Plan(w.View))
				if a := w.assignment("worker-1"); a.Desire == cluster.DesireRemove {
					w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateDraining })
				} else {
					w.follow()
				}
			}
			x := w.assignment("worker-1")
			x.Replace, x.Desire = false, cluster.DesireRun
			w.follow()
			w.converge()
			w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0")
		}
	})
	t.Run("a successor of one that fails takes over at once", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2))
		w.converge()
		w.assignment("worker-1").Replace = true
		w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateFailed })
		changes := Plan(w.View)
		if len(changes) != 2 || changes[0].Action != cluster.ActionRemove || changes[1].Action != cluster.ActionStart {
			t.Errorf("%+v", changes)
		}
		w.converge()
		w.want("worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
	})
	t.Run("scale down while one is replaced", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2))
		w.converge()
		w.assignment("worker-2").Replace = true
		w.apply(Plan(w.View))
		w.Topology.Decode = 1
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0")
	})
}

func TestPlanDrainsNodes(t *testing.T) {
	cordon := func(w *world, n string) { w.Cordons = map[string]cluster.Cordon{"id-" + n: {Node: "id-" + n}} }
	t.Run("workers get successors elsewhere", func(t *testing.T) {
		w := newWorld(t, 1, 2, node("a", 2), node("b", 2))
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode a/cpu:0")
		cordon(w, "a")
		w.wantRounds("worker-4 start, worker-5 start", "worker-1 remove, worker-3 remove", "worker-1 drop, worker-3 drop, worker-4 change, worker-5 change")
		w.want("worker-2 decode b/cpu:0", "worker-4 prefill b/cpu:0", "worker-5 decode b/cpu:0")
		w.Topology.Decode = 3 // nothing new goes there
		w.converge()
		w.want("worker-1 decode b/cpu:0", "worker-2 decode b/cpu:0", "worker-4 prefill b/cpu:0", "worker-5 decode b/cpu:0")
	})
	t.Run("with the deadline of the order", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2), node("b", 2))
		w.converge()
		at := time.Unix(77, 0)
		w.Cordons = map[string]cluster.Cordon{"id-a": {Node: "id-a", Deadline: at, Force: true}}
		w.apply(Plan(w.View))
		w.follow()
		w.apply(Plan(w.View))
		if a := w.assignment("worker-1"); !a.DrainDeadline.Equal(at) || !a.DrainForce || a.Desire != cluster.DesireRemove {
			t.Errorf("%+v", a)
		}
	})
	t.Run("the only node", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		cordon(w, "a")
		w.converge()
		w.want("worker-2 decode (all nodes are drained)")
		w.Cordons = nil
		w.converge()
		w.want("worker-2 decode a/cpu:0")
	})
	t.Run("the only node, after a successor was ordered", func(t *testing.T) {
		for _, first := range []string{"order", "drain"} {
			w := newWorld(t, 0, 1, node("a", 2))
			w.converge()
			w.assignment("worker-1").Replace = true
			if first == "order" {
				w.Topology.Engine.Device = "gpu" // the successor has no place yet
				w.apply(Plan(w.View))
				w.want("worker-1 decode a/cpu:0", "worker-2 decode (no node has a device gpu)")
				w.Topology.Engine.Device = ""
			}
			cordon(w, "a")
			w.converge()
			w.want("worker-2 decode (all nodes are drained)")
		}
	})
	t.Run("the node of the successor is lost", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2), node("b", 2))
		w.converge()
		cordon(w, "a")
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 decode b/cpu:0")
		w.Nodes = w.Nodes[:1]
		w.apply(Plan(w.View)) // it has no place any more
		if w.apply(Plan(w.View)); w.assignment("worker-1").Desire != cluster.DesireRemove {
			t.Errorf("the drain waits for a successor without a place:\n%s", w.picture())
		}
		w.follow()
		w.converge()
		w.want("worker-2 decode (all nodes are drained)")
	})
	t.Run("taken back", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2), node("b", 2))
		w.converge()
		cordon(w, "a")
		w.apply(Plan(w.View))
		w.Cordons = nil
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0")
	})
	t.Run("one that never served moves at once", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2), node("b", 2))
		w.apply(Plan(w.View))
		cordon(w, "a")
		w.apply(Plan(w.View))
		w.want("worker-1 decode b/cpu:0")
	})
}

func TestPlanFlips(t *testing.T) {
	t.Run("counts that change against each other", func(t *testing.T) {
		w := newWorld(t, 1, 4, node("a", 2))
		w.converge()
		w.Topology.Prefill, w.Topology.Decode = 3, 2
		w.wantRounds("worker-4 change, worker-5 change", "worker-4 change, worker-5 change") // and they serve so
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 prefill a/cpu:0", "worker-5 prefill a/cpu:0")
		if a := w.assignment("worker-5"); a.Generation != 2 {
			t.Errorf("%+v", a)
		}
	})
	t.Run("the one that is named", func(t *testing.T) {
		w := newWorld(t, 1, 3, node("a", 2))
		w.converge()
		w.Topology.Prefill, w.Topology.Decode, w.Topology.Flip = 2, 2, cluster.Flip{Worker: "worker-3", Role: cluster.RolePrefill}
		w.wantRounds("worker-3 change", "worker-3 change")
		w.Topology.Prefill, w.Topology.Decode, w.Topology.Flip = 1, 3, cluster.Flip{Worker: "worker-3", Role: cluster.RoleDecode}
		w.wantRounds("worker-3 change", "worker-3 change")
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode a/cpu:0")
	})
	t.Run("the one that is named stays on its node", func(t *testing.T) {
		w := newWorld(t, 1, 2, prefers(node("a", 2), cluster.RoleDecode), prefers(node("b", 2), cluster.RolePrefill))
		w.converge()
		w.Topology.Prefill, w.Topology.Decode, w.Topology.Flip = 2, 1, cluster.Flip{Worker: "worker-3", Role: cluster.RolePrefill}
		w.wantRounds("worker-3 change", "worker-3 change")
		w.want("worker-1 prefill b/cpu:0", "worker-2 decode a/cpu:0", "worker-3 prefill a/cpu:0")
	})
	t.Run("nodes that prefer a role get new workers", func(t *testing.T) {
		w := newWorld(t, 1, 2, prefers(node("a", 2), cluster.RoleDecode), prefers(node("b", 2), cluster.RolePrefill))
		w.converge()
		w.Topology.Prefill, w.Topology.Decode = 2, 1
		w.converge()
		w.want("worker-1 prefill b/cpu:0", "worker-2 decode a/cpu:0", "worker-4 prefill b/cpu:0")
	})
	t.Run("what does not serve is replaced", func(t *testing.T) {
		w := newWorld(t, 1, 2, node("a", 2))
		w.converge()
		w.say("worker-3", func(st *cluster.WorkerStatus) { st.State = cluster.StateFailed })
		w.say("worker-2", func(st *cluster.WorkerStatus) { st.State = cluster.StateFailed })
		w.Topology.Prefill, w.Topology.Decode = 2, 1
		for _, ch := range Plan(w.View) {
			if ch.Action == cluster.ActionChange {
				t.Errorf("%+v", ch)
			}
		}
	})
}

func TestPlanBalances(t *testing.T) {
	t.Run("a node that comes gets its share", func(t *testing.T) {
		w := newWorld(t, 1, 3, node("a", 2))
		w.converge()
		w.Nodes = append(w.Nodes, node("b", 2))
		w.Settling = map[string]bool{"id-b": true}
		w.wantRounds()
		w.Settling = nil
		w.converge()
		w.want("worker-3 decode a/cpu:0", "worker-4 decode a/cpu:0", "worker-5 prefill b/cpu:0", "worker-6 decode b/cpu:0")
	})
	t.Run("not one that would be as full", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		w.Nodes = append(w.Nodes, node("b", 2))
		w.wantRounds()
	})
	t.Run("back to where a role is preferred", func(t *testing.T) {
		w := newWorld(t, 1, 1, prefers(node("a", 2), cluster.RoleDecode), prefers(node("b", 2), cluster.RolePrefill))
		w.converge()
		b := w.Nodes[1]
		w.Nodes = w.Nodes[:1]
		w.follow()
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0")
		w.Nodes = append(w.Nodes, b)
		w.converge()
		w.want("worker-2 decode a/cpu:0", "worker-3 prefill b/cpu:0")
	})
	t.Run("only while all else is quiet", func(t *testing.T) {
		w := newWorld(t, 0, 4, node("a", 2))
		w.converge()
		w.Nodes = append(w.Nodes, node("b", 2))
		w.say("worker-4", func(st *cluster.WorkerStatus) { st.State = cluster.StateLoading })
		if changes := Plan(w.View); len(changes) != 0 {
			t.Errorf("%+v", changes)
		}
	})
}

func TestPlanFollowsDevices(t *testing.T) {
	w := newWorld(t, 0, 2, node("a", 2, 2))
	w.converge()
	w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:1")
	w.assignment("worker-2").Desire = cluster.DesireDrain
	w.Topology.Engine.Device = "cpu:0"
	w.follow()
	w.converge()
	w.assignment("worker-2").Desire = cluster.DesireRun
	w.follow()
	w.converge()
	w.want("worker-1 decode a/cpu:0", "worker-3 decode a/cpu:0")
	w.Topology.Engine.Device = "gpu" // there is none: better here than nowhere
	w.converge()
	w.want("worker-1 decode a/cpu:0", "worker-2 decode (no node has a device gpu)", "worker-3 decode a/cpu:0")
	w.Nodes = append(w.Nodes, cluster.Node{ID: "id-b", Name: "b", Devices: []cluster.Device{{ID: "gpu:0"}}})
	w.converge()
	w.want("worker-2 decode b/gpu:0", "worker-4 decode b/gpu:0")
}

// An assignment keeps at which level its server sleeps, from when the worker says so until it
// serves: the worker may be gone when the server is to wake.
func TestPlanRemembersSleep(t *testing.T) {
	w := newWorld(t, 0, 1, node("a", 1))
	w.converge()
	a := w.assignment("worker-1")
	generation := a.Generation
	a.Desire, a.Sleep = cluster.DesireDrain, 2
	asleep := func(want int) {
		t.Helper()
		w.apply(Plan(w.View))
		if a := w.assignment("worker-1"); a.Asleep != want || a.Generation != generation || a.Node == "" {
			t.Errorf("%+v, want level %d", a, want)
		}
		if changes := Plan(w.View); len(changes) != 0 {
			t.Errorf("%+v", changes)
		}
	}
	asleep(0)
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.State, st.Sleep = cluster.StateSleeping, 2 })
	asleep(2)
	w.assignment("worker-1").Desire = cluster.DesireRun
	for _, state := range []cluster.State{cluster.StateFailed, cluster.StateLoading, cluster.StateWarming} {
		w.say("worker-1", func(st *cluster.WorkerStatus) { st.State, st.Sleep = state, 0 })
		asleep(2)
	}
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateReady })
	asleep(0)
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateSleeping }) // somebody else's
	asleep(0)
}

func TestPlanKnowsMemory(t *testing.T) {
	small, large := node("a", 8), node("b", 2)
	small.Devices[0].MemoryBytes, large.Devices[0].MemoryBytes = 2<<30, 16<<30
	w := newWorld(t, 0, 1, small)
	w.converge()
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.MemoryBytes = 3 << 29 })
	w.Topology.Decode = 2
	w.apply(Plan(w.View))
	w.want("worker-1 decode a/cpu:0", "worker-2 decode (no device has 1.5 GiB free)")
	w.Nodes = append(w.Nodes, large)
	w.apply(Plan(w.View))
	w.want("worker-1 decode a/cpu:0", "worker-2 decode b/cpu:0")
}

// Whatever happens, plans come to rest with the right counts, unique names and
// living nodes.
func TestPlanConverges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	w := newWorld(t, 1, 1, node("n0", 2))
	for step := range 300 {
		switch r.IntN(8) {
		case 0:
			w.Topology.Prefill, w.Topology.Decode = r.IntN(4), 1+r.IntN(5)
		case 1:
			w.Nodes = append(w.Nodes, node(fmt.Sprint("n", step+1), 1+r.IntN(8)))
		case 2:
			if len(w.Nodes) > 1 {
				i := r.IntN(len(w.Nodes))
				w.Nodes = slices.Delete(w.Nodes, i, i+1)
			}
		case 3:
			if len(w.Assignments) > 0 {
				a := &w.Assignments[r.IntN(len(w.Assignments))]
				if a.Desire != cluster.DesireRemove {
					a.Desire = []cluster.Desire{cluster.DesireDrain, cluster.DesireRun}[r.IntN(2)]
				}
			}
		case 4:
			w.Topology.Engine.KVBlocks = 1 + r.IntN(3)
		case 5:
			w.Topology.Restarts++
		case 6:
			if len(w.Assignments) > 0 {
				w.Assignments[r.IntN(len(w.Assignments))].Replace = true
			}
		case 7:
			w.Cordons = map[string]cluster.Cordon{}
			if n := w.Nodes[r.IntN(len(w.Nodes))]; len(w.Nodes) > 1 {
				w.Cordons[n.ID] = cluster.Cordon{Node: n.ID}
			}
		}
		w.follow()
		w.converge()
		takes := func(n cluster.Node) bool { _, cordoned := w.Cordons[n.ID]; return !cordoned }
		placed := slices.ContainsFunc(w.Nodes, takes)
		count := map[cluster.Role]int{}
		names := map[string]bool{}
		for _, a := range w.Assignments {
			count[a.Role]++
			if names[a.Name] {
				t.Fatalf("step %d: two assignments of %s", step, a.Name)
			}
			names[a.Name] = true
			if a.Desire == cluster.DesireRun && placed != slices.ContainsFunc(w.Nodes, func(n cluster.Node) bool { return n.ID == a.Node && takes(n) }) {
				t.Fatalf("step %d: %+v is not on a node that takes it, or should be on none", step, a)
			}
			if a.Desire == cluster.DesireRun && (a.Engine != w.Topology.Engine || a.Restarts != w.Topology.Restarts || placed && (a.Replace || a.Replaces != "")) {
				t.Fatalf("step %d: %+v is not up to date", step, a)
			}
		}
		for _, role := range cluster.Roles {
			if count[role] != w.Topology.Count(role) {
				t.Fatalf("step %d: %d %s workers, want %d:\n%s", step, count[role], role, w.Topology.Count(role), w.picture())
			}
		}
	}
}

func TestPlanRoles(t *testing.T) {
	t.Run("only the role rolls whose engine changed", func(t *testing.T) {
		w := newWorld(t, 2, 2, node("a", 2))
		w.converge()
		w.Topology.DecodeSpec.Engine.MaxSeqs = 8
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 prefill a/cpu:0", "worker-5 decode a/cpu:0", "worker-6 decode a/cpu:0")
		for _, a := range w.Assignments {
			want := 0
			if a.Role == cluster.RoleDecode {
				want = 8
			}
			if a.Engine.MaxSeqs != want || a.Generation != 1 {
				t.Errorf("%s %s: max_seqs %d at generation %d, want %d at 1", a.Name, a.Role, a.Engine.MaxSeqs, a.Generation, want)
			}
		}
	})
	t.Run("new workers have the engine of their role", func(t *testing.T) {
		w := newWorld(t, 1, 1, node("a", 2))
		w.Topology.Engine.KVBlocks = 100
		w.Topology.PrefillSpec.Engine.KVBlocks = 7
		w.converge()
		if p, d := w.Assignments[0].Engine.KVBlocks, w.Assignments[1].Engine.KVBlocks; p != 7 || d != 100 {
			t.Errorf("prefill has %d blocks, decode %d; want 7 and 100", p, d)
		}
	})
	t.Run("devices of a role", func(t *testing.T) {
		w := newWorld(t, 2, 2, node("a", 2, 2, 2))
		w.Topology.PrefillSpec.Engine.Device = "cpu:2"
		w.Topology.DecodeSpec.Engine.Device = "cpu:0,cpu:1"
		w.converge()
		w.want("worker-1 prefill a/cpu:2", "worker-2 prefill a/cpu:2", "worker-3 decode a/cpu:0", "worker-4 decode a/cpu:1")
	})
	t.Run("pack fills a node, and its devices evenly", func(t *testing.T) {
		w := newWorld(t, 0, 4, node("a", 2), node("b", 2, 2))
		w.Topology.Placement = cluster.PlacementPack
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode a/cpu:0")
		w.Nodes = w.Nodes[1:]
		w.follow()
		w.converge()
		w.want("worker-1 decode b/cpu:0", "worker-2 decode b/cpu:1", "worker-3 decode b/cpu:0", "worker-4 decode b/cpu:1")
	})
	t.Run("pack for one role", func(t *testing.T) {
		w := newWorld(t, 2, 2, node("a", 2), node("b", 2))
		w.Topology.DecodeSpec.Placement = cluster.PlacementPack
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 prefill b/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode a/cpu:0")
	})
	t.Run("another placement moves nobody", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2), node("b", 2))
		w.converge()
		w.Topology.Placement = cluster.PlacementPack
		if changes := Plan(w.View); len(changes) != 0 {
			t.Errorf("%+v", changes)
		}
	})
	t.Run("a worker leaves a device that is not wanted", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 2, 2))
		w.Topology.Engine.Device = "cpu:0"
		w.converge()
		w.Topology.Engine.Device = "cpu:1"
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:1")
		if more := Plan(w.View); len(more) != 0 {
			t.Errorf("before worker-3 serves: %+v", more)
		}
		w.follow()
		w.converge()
		w.want("worker-3 decode a/cpu:1", "worker-4 decode a/cpu:1") // names of workers that leave are taken
	})
	t.Run("a device that no node has takes no worker away", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		w.Topology.Engine.Device = "gpu"
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 decode (no node has a device gpu)")
		if a := w.Assignments[0]; a.Engine.Device != "" || a.Generation != 1 {
			t.Errorf("it was restarted where it is not wanted: %+v", a)
		}
	})
	t.Run("a drained worker stays where it is until it is resumed", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2, 2))
		w.converge()
		w.Assignments[0].Desire = cluster.DesireDrain
		w.Topology.Engine.Device = "cpu:1"
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0 drain")
		w.Assignments[0].Desire = cluster.DesireRun
		w.follow()
		w.converge()
		w.want("worker-2 decode a/cpu:1")
	})
}
