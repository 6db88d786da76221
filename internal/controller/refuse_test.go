package controller

import (
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// obey lets workers follow as agents do, but those of a form that bad names: such a
// successor fails, and so does a worker that becomes it.
func (w *world) obey(bad func(cluster.Assignment) (reason string)) {
	for _, a := range w.Assignments {
		reason := bad(a)
		if reason == "" || a.Node == "" || a.Desire != cluster.DesireRun {
			continue
		}
		w.say(a.Name, func(st *cluster.WorkerStatus) {
			*st = cluster.WorkerStatus{Name: a.Name, Generation: a.Generation, State: cluster.StateFailed, Reason: reason}
		})
	}
}

// run plans and obeys for a while, and fails when a role has fewer workers that serve than
// before at any step.
func (w *world) run(bad func(cluster.Assignment) string) {
	w.t.Helper()
	least := w.servingNow()
	for range 20 {
		w.apply(Plan(w.View))
		old := map[string]cluster.WorkerStatus{}
		for name, st := range w.Status {
			old[name] = st
		}
		w.follow()
		for name, st := range w.Status { // what follow does not know of stays
			st.MemoryBytes, st.BlockBytes, st.Stats = old[name].MemoryBytes, old[name].BlockBytes, old[name].Stats
			w.Status[name] = st
		}
		w.obey(bad)
		for role, n := range least {
			if now := w.servingNow()[role]; now < n {
				w.t.Fatalf("%d %s workers serve, before the order %d:\n%s", now, role, n, w.picture())
			}
		}
	}
	if again := Plan(w.View); len(again) > 0 {
		w.t.Errorf("no rest: %+v", again)
	}
}

func (w *world) servingNow() map[cluster.Role]int {
	n := map[cluster.Role]int{}
	for _, a := range w.Assignments {
		if st := w.Status[a.Name]; st.State.Serving() {
			n[a.Role]++
		}
	}
	return n
}

// measured has all workers say how large their pools and blocks are.
func (w *world) measured(pool, block int64) {
	for _, a := range w.Assignments {
		w.say(a.Name, func(st *cluster.WorkerStatus) { st.MemoryBytes, st.BlockBytes, st.Stats.BlockSize = pool, block, 64 })
	}
}

// Orders that cannot be carried out leave every worker as it is, and say why.
func TestPlanKeepsWhatServes(t *testing.T) {
	fails := func(what string, is func(cluster.Assignment) bool) func(cluster.Assignment) string {
		return func(a cluster.Assignment) string {
			if is(a) {
				return what
			}
			return ""
		}
	}
	never := func(cluster.Assignment) string { return "" }
	for _, tc := range []struct {
		name  string
		order func(*cluster.Topology)
		bad   func(cluster.Assignment) string
		why   string // of an unplaced successor or a failed one; empty: no successor
	}{
		{"more blocks than any memory", func(t *cluster.Topology) { t.Engine.KVBlocks = 1_000_000_000 }, never, "no device has 3814.7 GiB free"},
		{"a device that is nowhere", func(t *cluster.Topology) { t.Engine.Device = "gpu:9" }, never, "no node has a device gpu:9"},
		{"a backend that is nowhere", func(t *cluster.Topology) { t.Engine.Backend = cluster.BackendCUDA }, never, "no node has a device that cuda computes on"},
		{"a broken model", func(t *cluster.Topology) { t.Model.Path = "/broken" }, fails("no such file", func(a cluster.Assignment) bool { return a.Model.Path == "/broken" }), "no such file"},
		{"an engine of one role", func(t *cluster.Topology) { t.DecodeSpec.Engine.TensorParallel = 3 }, fails("3 ranks", func(a cluster.Assignment) bool { return a.Engine.TensorParallel == 3 }), "3 ranks"},
		{"an invalid topology", func(t *cluster.Topology) { t.Decode = 0 }, never, ""},
		{"an unknown block size", func(t *cluster.Topology) { t.Engine.BlockSize = 17 }, never, ""},
		{"more workers than fit", func(t *cluster.Topology) { t.Decode = 9 }, never, "no device has 1.0 GiB free"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			n := node("a", 2)
			n.Devices[0].MemoryBytes = 8 << 30
			w := newWorld(t, 1, 1, n)
			w.converge()
			w.measured(1<<30, 1<<12)
			before := [2]cluster.Assignment{*w.assignment("worker-1"), *w.assignment("worker-2")}
			good := *w.Topology
			tc.order(w.Topology)
			w.run(tc.bad)
			if after := [2]cluster.Assignment{*w.assignment("worker-1"), *w.assignment("worker-2")}; after != before {
				t.Errorf("workers were changed:\n%+v\n%+v", before, after)
			}
			why := ""
			for _, a := range w.Assignments[2:] {
				why += a.Unplaced + w.Status[a.Name].Reason
			}
			if !strings.Contains(why, tc.why) || (tc.why == "") != (len(w.Assignments) == 2) {
				t.Errorf("the reason is %q, want %q:\n%s", why, tc.why, w.picture())
			}
			*w.Topology = good
			w.converge()
			w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0")
		})
	}
}

// Without room for two a worker changes in its place, and is what it was if it cannot.
func TestPlanTakesAChangeBack(t *testing.T) {
	tight := func(t *testing.T) *world {
		w := newWorld(t, 0, 1, node("a", 2))
		w.converge()
		w.Topology.Engine.MaxSeqs = 7
		w.apply(Plan(w.View))
		return w
	}
	refuse := func(w *world, alone bool) {
		name := ""
		for _, a := range w.Assignments {
			if a.Replaces == "worker-1" && a.Desire == cluster.DesireRun {
				name = a.Name
			}
		}
		w.say(name, func(st *cluster.WorkerStatus) {
			*st = cluster.WorkerStatus{Name: name, Generation: w.assignment(name).Generation, State: cluster.StateFailed, Reason: "no memory", NoMemory: true, FitsAlone: alone}
		})
		w.apply(Plan(w.View))
	}
	t.Run("it would not fit alone", func(t *testing.T) {
		w := tight(t)
		refuse(w, false)
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0")
		if a := w.assignment("worker-1"); a.Engine.MaxSeqs != 0 || a.Generation != 1 {
			t.Errorf("the worker was changed: %+v", a)
		}
	})
	for name, fail := range map[string]func(st *cluster.WorkerStatus, generation int64){
		"it fails": func(st *cluster.WorkerStatus, g int64) {
			st.State, st.Generation, st.Reason = cluster.StateFailed, g, "no luck"
		},
		"it declines": func(st *cluster.WorkerStatus, g int64) { st.Declined = cluster.Declined{Generation: g, Why: "no luck"} },
	} {
		t.Run(name, func(t *testing.T) {
			w := tight(t)
			refuse(w, true)
			a := w.assignment("worker-1")
			if a.Engine.MaxSeqs != 7 || a.Last.Engine.MaxSeqs != 0 || a.Last.Role != cluster.RoleDecode || a.Generation != 2 {
				t.Fatalf("not changed in its place: %+v", a)
			}
			w.say("worker-1", func(st *cluster.WorkerStatus) { fail(st, 2) })
			delete(w.Status, "worker-2")
			w.say("worker-2", func(st *cluster.WorkerStatus) {
				st.State, st.Generation = cluster.StateStopped, w.assignment("worker-2").Generation
			})
			w.apply(Plan(w.View))
			a = w.assignment("worker-1")
			if a.Engine.MaxSeqs != 0 || a.Generation != 3 || a.Refused.Why != "no luck" || a.Refused.Form.Engine.MaxSeqs != 7 || a.Last != (cluster.Form{}) {
				t.Fatalf("not taken back: %+v", a)
			}
			// It goes on as it was; the same is not tried in its place again.
			w.say("worker-1", func(st *cluster.WorkerStatus) { st.State, st.Generation = cluster.StateReady, 3 })
			w.apply(Plan(w.View))
			for range 5 {
				refuse(w, true)
			}
			if a := w.assignment("worker-1"); a.Generation != 3 {
				t.Errorf("changed again: %+v", a)
			}
			w.Topology.Engine.MaxSeqs = 8 // another order is
			w.follow()
			w.converge()
			for _, a := range w.Assignments {
				if a.Engine.MaxSeqs != 8 || a.Refused.Why != "" {
					t.Errorf("the next order was not followed: %+v", a)
				}
			}
		})
	}
	t.Run("it serves as changed", func(t *testing.T) {
		w := tight(t)
		refuse(w, true)
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0")
		if a := w.assignment("worker-1"); a.Engine.MaxSeqs != 7 || a.Last != (cluster.Form{}) {
			t.Errorf("%+v", a)
		}
	})
	t.Run("its place is asked when another one has no memory", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 2), node("b", 2))
		w.converge()
		w.Topology.Engine.MaxSeqs = 7
		w.apply(Plan(w.View))
		if a := w.assignment("worker-2"); a.Node != "id-b" {
			t.Fatalf("the successor is on %s", a.Node)
		}
		refuse(w, false)
		if a := w.assignment("worker-2"); a.Node != "id-a" || a.Generation != 2 {
			t.Errorf("the successor is not where the worker is: %+v", a)
		}
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0")
		refuse(w, true)
		if a := w.assignment("worker-1"); a.Engine.MaxSeqs != 7 {
			t.Errorf("not changed in its place: %+v", a)
		}
	})
}

// A worker that fails while its successor fails, too, goes on trying.
func TestPlanKeepsOneThatCrashes(t *testing.T) {
	w := newWorld(t, 0, 1, node("a", 2))
	w.converge()
	w.Topology.Model.Path = "/broken"
	w.apply(Plan(w.View))
	w.say("worker-2", func(st *cluster.WorkerStatus) { st.State, st.Generation = cluster.StateFailed, 1 })
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.State = cluster.StateFailed })
	if changes := Plan(w.View); len(changes) > 0 {
		t.Errorf("%+v", changes)
	}
}

// A restart that a worker declines is over; a rolling one goes on with a successor.
func TestPlanEndsARestart(t *testing.T) {
	w := newWorld(t, 0, 2, node("a", 2))
	w.converge()
	a := w.assignment("worker-1")
	a.Last = a.Form()
	a.Starts++
	a.Generation++
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.Declined = cluster.Declined{Generation: 2, Why: "no model"} })
	w.apply(Plan(w.View))
	if a := w.assignment("worker-1"); a.Starts != 0 || a.Generation != 3 || a.Refused.Form.Starts != 1 || a.Refused.Why != "no model" {
		t.Errorf("%+v", a)
	}
	w.follow()
	if more := Plan(w.View); len(more) > 0 {
		t.Errorf("%+v", more)
	}
	w.Topology.Restarts++
	w.apply(Plan(w.View))
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.Declined = cluster.Declined{Generation: 4, Why: "no model"} })
	w.apply(Plan(w.View))
	w.say("worker-1", func(st *cluster.WorkerStatus) { st.Generation = 5 })
	w.apply(Plan(w.View))
	w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
	if s := w.assignment("worker-3"); s.Replaces != "worker-1" {
		t.Errorf("%+v", s)
	}
}

// A worker that cannot take a role stays in its own, though there is one too many of it.
func TestPlanTakesAFlipBack(t *testing.T) {
	n := node("a", 2)
	n.Devices[0].MemoryBytes = 3 << 30
	w := newWorld(t, 1, 2, n)
	w.Topology.PrefillSpec.Engine.MaxSeqs = 3
	w.converge()
	w.measured(1<<30, 1<<12)
	w.Topology.Prefill, w.Topology.Decode, w.Topology.Flip = 2, 1, cluster.Flip{Worker: "worker-3", Role: cluster.RolePrefill}
	w.apply(Plan(w.View))
	if a := w.assignment("worker-3"); a.Role != cluster.RolePrefill || a.Last.Role != cluster.RoleDecode {
		t.Fatalf("%+v", a)
	}
	w.say("worker-3", func(st *cluster.WorkerStatus) { st.State, st.Generation, st.Reason = cluster.StateFailed, 2, "no luck" })
	for range 5 {
		w.apply(Plan(w.View))
		if a := w.assignment("worker-3"); a.Role == cluster.RoleDecode {
			w.say("worker-3", func(st *cluster.WorkerStatus) { st.State, st.Generation = cluster.StateReady, a.Generation })
		}
	}
	w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 prefill (no device has 1.0 GiB free)")
	w.Topology.Prefill, w.Topology.Decode = 1, 2
	w.converge()
	w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0")
}
