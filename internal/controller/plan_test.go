package controller

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

var tiny = cluster.ModelSpec{Name: "tiny"}

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
	for range 20 {
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
	w.t.Fatalf("no rest after 20 rounds, next plan: %+v", Plan(w.View))
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
	t.Run("new engine rolls through one at a time", func(t *testing.T) {
		w := newWorld(t, 0, 3, node("a", 2))
		w.converge()
		w.Topology.Engine.KVBlocks = 99
		for round := 1; round <= 3; round++ {
			changes := Plan(w.View)
			if len(changes) != 1 {
				t.Fatalf("round %d: %d workers change at once", round, len(changes))
			}
			w.apply(changes)
			if more := Plan(w.View); len(more) != 0 {
				t.Fatalf("round %d: another worker changes while %s restarts", round, changes[0].Assignment.Name)
			}
			w.follow()
		}
		w.converge()
	})
}

// Whatever happens, plans come to rest with the right counts, unique names and
// living nodes.
func TestPlanConverges(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	w := newWorld(t, 1, 1, node("n0", 2))
	for step := range 300 {
		switch r.IntN(5) {
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
		}
		w.follow()
		w.converge()
		count := map[cluster.Role]int{}
		names := map[string]bool{}
		for _, a := range w.Assignments {
			count[a.Role]++
			if names[a.Name] {
				t.Fatalf("step %d: two assignments of %s", step, a.Name)
			}
			names[a.Name] = true
			if a.Desire == cluster.DesireRun && !slices.ContainsFunc(w.Nodes, func(n cluster.Node) bool { return n.ID == a.Node }) {
				t.Fatalf("step %d: %+v is not on a living node", step, a)
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
		for _, a := range w.Assignments {
			want, generation := 0, int64(1)
			if a.Role == cluster.RoleDecode {
				want, generation = 8, 2
			}
			if a.Engine.MaxSeqs != want || a.Generation != generation {
				t.Errorf("%s %s: max_seqs %d at generation %d, want %d at %d", a.Name, a.Role, a.Engine.MaxSeqs, a.Generation, want, generation)
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
		w.want("worker-1 decode a/cpu:0 remove", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:1")
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
		w.want("worker-1 decode a/cpu:0")
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
