package controller

import (
	"maps"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// up returns the workers that serve as asked, by role and by node.
func (w *world) up() (byRole map[cluster.Role]int, byNode map[string]int) {
	byRole, byNode = map[cluster.Role]int{}, map[string]int{}
	for _, a := range w.Assignments {
		if st := w.Status[a.Name]; a.Desire == cluster.DesireRun && st.State.Serving() && st.Generation == a.Generation {
			byRole[a.Role]++
			byNode[a.Node]++
		}
	}
	return byRole, byNode
}

// wave plans once and returns how many workers it changes in place and how many successors
// it starts.
func (w *world) wave() (inPlace, successors int) {
	w.t.Helper()
	changes := Plan(w.View)
	w.apply(changes)
	for _, ch := range changes {
		old := w.Status[ch.Assignment.Name]
		switch {
		case ch.Action == cluster.ActionStart && ch.Assignment.Replaces != "":
			successors++
		case ch.Action == cluster.ActionChange && old.Generation < ch.Assignment.Generation:
			inPlace++
		}
	}
	return inPlace, successors
}

// waves plans until nothing changes, with workers that follow at once.
func (w *world) waves() (inPlace, successors []int) {
	w.t.Helper()
	for range 200 {
		p, s := w.wave()
		before := maps.Clone(w.Status)
		w.follow()
		for name := range w.Status {
			w.say(name, func(st *cluster.WorkerStatus) { st.MemoryBytes = before[name].MemoryBytes })
		}
		if p > 0 {
			inPlace = append(inPlace, p)
		}
		if s > 0 {
			successors = append(successors, s)
		}
		if len(Plan(w.View)) == 0 {
			return inPlace, successors
		}
	}
	w.t.Fatalf("no rest:\n%s", w.picture())
	return nil, nil
}

func texts(ns []int) string {
	var out []string
	for _, n := range ns {
		out = append(out, strconv.Itoa(n))
	}
	return strings.Join(out, " ")
}

func TestPlanRollouts(t *testing.T) {
	restart := func(w *world) { w.Topology.Restarts++ }
	bigger := func(w *world) { w.Topology.Engine.KVBlocks = 9 }
	cordon := func(w *world) { w.Cordons = map[string]cluster.Cordon{"id-a": {Node: "id-a"}} }
	full := func(w *world) { // no room for a successor of a known size
		for i := range w.Nodes {
			w.Nodes[i].Devices[0].MemoryBytes = 16
		}
		w.measured(4, 1)
		w.Topology.Engine.MaxSeqs = 7
		w.Assignments[0].Engine.MaxSeqs = 7 // one has it already, and its size is known
	}
	for _, tc := range []struct {
		name                string
		limits              cluster.Rollout
		order               func(*world)
		inPlace, successors string
	}{
		{"a restart begins with one worker", cluster.Rollout{}, restart, "1 4 4 4 3", ""},
		{"by number", cluster.Rollout{MaxUnavailable: "6"}, restart, "1 6 6 3", ""},
		{"one at a time", cluster.Rollout{MaxUnavailable: "1"}, restart, "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1", ""},
		{"never all of a node", cluster.Rollout{MaxUnavailable: "100%"}, restart, "1 12 3", ""},
		{"none without a successor", cluster.Rollout{MaxSurge: "5", MaxUnavailable: "0"}, restart, "", "1 4 1 4 1 4 1 1"},
		{"a new engine begins with one successor", cluster.Rollout{}, bigger, "", "1 3 1 3 1 3 1 3"},
		{"a new engine without a surge", cluster.Rollout{MaxSurge: "0", MaxUnavailable: "8"}, bigger, "1 8 7", ""},
		{"nothing is allowed: one at a time", cluster.Rollout{MaxSurge: "0", MaxUnavailable: "0"}, bigger, "", "1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1 1"},
		{"the workers of a drained node", cluster.Rollout{}, cordon, "", "4"},
		{"those of a drained node by number", cluster.Rollout{MaxSurge: "3", MaxUnavailable: "0"}, cordon, "", "3 1"},
		{"those of a drained node without a surge", cluster.Rollout{MaxSurge: "0"}, cordon, "", "1 1 1 1"},
		{"without room in place, within the limit", cluster.Rollout{MaxUnavailable: "3"}, full, "3 3 3 3 3", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := newWorld(t, 0, 16, node("a", 2), node("b", 2), node("c", 2), node("d", 2))
			w.Rollout = tc.limits
			w.converge()
			tc.order(w)
			inPlace, successors := w.waves()
			if texts(inPlace) != tc.inPlace || texts(successors) != tc.successors {
				t.Errorf("in place %q, successors %q; want %q and %q", texts(inPlace), texts(successors), tc.inPlace, tc.successors)
			}
			if byRole, _ := w.up(); byRole[cluster.RoleDecode] != 16 {
				t.Errorf("in the end:\n%s", w.picture())
			}
		})
	}
	t.Run("never all of a role", func(t *testing.T) {
		w := newWorld(t, 0, 4, node("a", 2), node("b", 2), node("c", 2), node("d", 2))
		w.converge()
		w.Rollout.MaxUnavailable = "100%"
		full(w)
		for i := range w.Nodes {
			w.Nodes[i].Devices[0].MemoryBytes = 4
		}
		if inPlace, _ := w.waves(); texts(inPlace) != "3" {
			t.Errorf("all but the one that is new change at once: %s", texts(inPlace))
		}
	})
	t.Run("the limits of one restart", func(t *testing.T) {
		w := newWorld(t, 0, 16, node("a", 2))
		w.converge()
		w.Topology.Restarts++
		w.Topology.Rolling = cluster.Rolling{Rollout: cluster.Rollout{MaxUnavailable: "15"}, Restarts: 1}
		if got, _ := w.waves(); texts(got) != "1 15" {
			t.Errorf("with limits of its own: %s", texts(got))
		}
		w.Topology.Restarts++
		if got, _ := w.waves(); texts(got) != "1 4 4 4 3" {
			t.Errorf("the next one: %s", texts(got))
		}
	})
	t.Run("what does not work is tried once", func(t *testing.T) {
		w := newWorld(t, 0, 16, node("a", 2))
		w.converge()
		w.Topology.Model.Name = "broken"
		for range 5 {
			w.wave()
			w.follow()
			w.obey(func(a cluster.Assignment) string {
				if a.Model.Name == "broken" {
					return "no such file"
				}
				return ""
			})
		}
		if byRole, _ := w.up(); byRole[cluster.RoleDecode] != 16 || len(w.Assignments) != 17 {
			t.Errorf("got\n%s", w.picture())
		}
	})
}

// Whatever the limits are and however long workers take, a rollout keeps to them.
func TestPlanKeepsToLimits(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 5))
		var nodes []cluster.Node
		for i := range 1 + r.IntN(5) {
			nodes = append(nodes, node(string(rune('a'+i)), 1+r.IntN(3)))
		}
		want := 2 + r.IntN(14)
		w := newWorld(t, 0, want, nodes...)
		w.converge()
		w.Rollout = cluster.Rollout{MaxSurge: strconv.Itoa(r.IntN(5)), MaxUnavailable: []string{"0", "1", "3", "50%", "100%"}[r.IntN(5)]}
		surge, unavailable := w.Rollout.Limits(want)
		_, crowded := w.up()
		for range 1 + r.IntN(2) {
			if r.IntN(2) == 0 {
				w.Topology.Restarts++
			} else {
				w.Topology.Engine.KVBlocks++
			}
		}
		for round := 0; ; round++ {
			if round == 500 {
				t.Fatalf("seed %d: no rest:\n%s", seed, w.picture())
			}
			changes := Plan(w.View)
			w.apply(changes)
			byRole, byNode := w.up()
			up, staying := byRole[cluster.RoleDecode], 0
			for _, a := range w.Assignments {
				if a.Desire == cluster.DesireRun {
					staying++
				}
			}
			if up < want-max(unavailable, 0) || up == 0 || staying > want+max(surge, 1) {
				t.Fatalf("seed %d round %d: %d of %d serve, %d in all, with %+v:\n%s", seed, round, up, want, staying, w.Rollout, w.picture())
			}
			for n, had := range crowded {
				on := 0
				for _, a := range w.Assignments {
					if a.Node == n && a.Desire == cluster.DesireRun && a.Replaces == "" {
						on++
					}
				}
				if had > 1 && on > 1 && byNode[n] == 0 {
					t.Fatalf("seed %d round %d: no worker of %s serves:\n%s", seed, round, n, w.picture())
				}
			}
			slow := map[string]cluster.WorkerStatus{} // some workers take longer
			for _, a := range w.Assignments {
				if st := w.Status[a.Name]; r.IntN(2) == 0 {
					if st.Generation != a.Generation {
						st.State = cluster.StateLoading
					}
					slow[a.Name] = st
				}
			}
			w.follow()
			for name, st := range slow {
				w.Status[name] = st
			}
			if len(changes) == 0 && len(slow) == 0 || len(changes) == 0 && len(Plan(w.View)) == 0 && w.current() {
				break
			}
		}
	}
}

// current reports whether all workers serve in the form that is asked for.
func (w *world) current() bool {
	byRole, _ := w.up()
	for _, a := range w.Assignments {
		if a.Restarts != w.Topology.Restarts || a.Engine != w.Topology.Engine {
			return false
		}
	}
	return byRole[cluster.RoleDecode] == w.Topology.Decode && len(w.Assignments) == w.Topology.Decode
}
