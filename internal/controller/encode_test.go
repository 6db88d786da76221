package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

// Encode workers are placed, scaled, replaced and drained as all others, but none changes
// its role: one leaves, another one comes, and the plan says why.
func TestPlanEncode(t *testing.T) {
	why := func(changes []Change) (lines []string) {
		for _, ch := range changes {
			lines = append(lines, fmt.Sprintf("%s %s %s: %s", ch.Assignment.Name, ch.Assignment.Role, ch.Action, ch.Why))
		}
		return lines
	}
	t.Run("on the node that prefers them", func(t *testing.T) {
		w := newWorld(t, 1, 1, prefers(node("a", 2), cluster.RoleEncode), prefers(node("b", 2), cluster.RolePrefill, cluster.RoleDecode))
		w.Topology.Encode = 2
		w.converge()
		w.want("worker-1 prefill b/cpu:0", "worker-2 decode b/cpu:0", "worker-3 encode a/cpu:0", "worker-4 encode a/cpu:0")
		if a := w.assignment("worker-3"); a.Model != tiny || a.Engine != (cluster.EngineSpec{}) {
			t.Errorf("%+v", a)
		}
		w.Topology.Encode = 1
		w.apply(Plan(w.View))
		w.want("worker-1 prefill b/cpu:0", "worker-2 decode b/cpu:0", "worker-3 encode a/cpu:0", "worker-4 encode a/cpu:0 remove")
	})
	t.Run("beside the others on a device of CPUs", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 4))
		w.Topology.Encode = 1
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 encode a/cpu:0")
	})
	t.Run("on devices of their own", func(t *testing.T) {
		n := node("a", 4, 4)
		n.Devices = append(n.Devices, cluster.Device{ID: "gpu:0"})
		w := newWorld(t, 0, 1, n)
		w.Topology.Encode, w.Topology.EncodeSpec.Engine.Device = 1, "cpu:1"
		w.converge()
		w.want("worker-1 decode a/gpu:0", "worker-2 encode a/cpu:1")
	})
	t.Run("no decode worker becomes one", func(t *testing.T) {
		w := newWorld(t, 1, 3, node("a", 4))
		w.converge()
		w.Topology.Decode, w.Topology.Encode = 2, 1
		apart := "decode workers cannot become encode workers, which have only the vision tower"
		if got, want := why(Plan(w.View)), []string{"worker-4 decode remove: scale down: " + apart, "worker-5 encode start: scale up: " + apart + ": on a cpu:0"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-5 encode a/cpu:0")
	})
	t.Run("none becomes another one, even if it is named", func(t *testing.T) {
		w := newWorld(t, 1, 1, node("a", 4))
		w.Topology.Encode = 2
		w.converge()
		w.Topology.Decode, w.Topology.Encode, w.Topology.Flip = 2, 1, cluster.Flip{Worker: "worker-3", Role: cluster.RoleDecode}
		apart := "encode workers have only the vision tower and cannot become decode workers"
		if got, want := why(Plan(w.View)), []string{"worker-4 encode remove: scale down: " + apart, "worker-5 decode start: scale up: " + apart + ": on a cpu:0"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
	t.Run("prefill and decode flip beside them", func(t *testing.T) {
		w := newWorld(t, 1, 3, node("a", 4))
		w.Topology.Encode = 1
		w.converge()
		w.Topology.Prefill, w.Topology.Decode = 2, 2
		w.wantRounds("worker-4 change", "worker-4 change")
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 decode a/cpu:0", "worker-4 prefill a/cpu:0", "worker-5 encode a/cpu:0")
	})
	t.Run("a change of the KV cache leaves them alone", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 4))
		w.Topology.Encode = 1
		w.converge()
		w.Topology.Engine.KVBlocks = 77
		w.converge()
		if a := w.assignment("worker-2"); a.Role != cluster.RoleEncode || a.Generation != 1 || a.Engine.KVBlocks != 0 {
			t.Errorf("%+v", a)
		}
		if w.assignment("worker-3").Engine.KVBlocks != 77 {
			t.Error("the decode worker has no successor with other blocks")
		}
	})
	t.Run("a successor for another model and for a drained node", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 4), node("b", 4))
		w.Topology.Encode = 1
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 encode b/cpu:0")
		w.Cordons = map[string]cluster.Cordon{"id-b": {Node: "id-b"}}
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 encode b/cpu:0", "worker-3 encode a/cpu:0")
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-3 encode a/cpu:0")
		w.Topology.Model = cluster.ModelSpec{Name: "other", Path: "/models/other"}
		w.converge()
		for _, a := range w.Assignments {
			if a.Model.Name != "other" {
				t.Errorf("%+v", a)
			}
		}
	})
	t.Run("their memory says nothing about the others'", func(t *testing.T) {
		n := node("a", 4)
		n.Devices[0].MemoryBytes = 10 << 30
		w := newWorld(t, 0, 1, n)
		w.Topology.Encode = 1
		w.converge()
		w.say("worker-1", func(st *cluster.WorkerStatus) { st.MemoryBytes, st.BlockBytes, st.Stats.BlockSize = 6<<30, 1<<20, 16 })
		w.say("worker-2", func(st *cluster.WorkerStatus) { st.MemoryBytes = 1 << 30 })
		w.Topology.Encode, w.Topology.Decode = 3, 2
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 encode a/cpu:0", "worker-3 decode (no device has 6.0 GiB free)", "worker-4 encode a/cpu:0", "worker-5 encode a/cpu:0")
	})
}

// No plan has a worker become an encode worker, or an encode worker another one, whatever
// happens, and the numbers are reached all the same.
func TestPlanNeverFlipsEncode(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(60) {
		c := newChaos(t, 2000+seed)
		c.encode = true
		for step := range 40 {
			c.happen()
			for _, ch := range Plan(c.snapshot()) {
				for _, old := range c.Assignments {
					if old.Name == ch.Assignment.Name && old.Role != ch.Assignment.Role && (old.Role == cluster.RoleEncode || ch.Assignment.Role == cluster.RoleEncode) {
						t.Fatalf("seed %d step %d: %s turns from %s to %s: %s", seed, step, old.Name, old.Role, ch.Assignment.Role, ch.Why)
					}
				}
			}
			c.live(seed)
		}
	}
}
