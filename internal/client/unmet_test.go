package client

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestImpossible(t *testing.T) {
	tiny := cluster.ModelSpec{Name: "tiny"}
	v := View{
		Nodes: []cluster.Node{{ID: "a", Devices: []cluster.Device{{ID: "cpu:0", MemoryBytes: 4 << 30}, {ID: "cpu:1", MemoryBytes: 4 << 30}}}},
		Assignments: map[string]cluster.Assignment{
			"worker-1": {Name: "worker-1", Role: cluster.RoleDecode, Model: tiny, Node: "a", Device: "cpu:0", Desire: cluster.DesireRun},
		},
		Status: map[string]cluster.WorkerStatus{"worker-1": {Name: "worker-1", BlockBytes: 1 << 20, Stats: cluster.WorkerStats{BlockSize: 64}}},
	}
	for name, tc := range map[string]struct {
		change func(*cluster.Topology)
		want   string
	}{
		"as it is":                  {func(*cluster.Topology) {}, ""},
		"all memory of the node":    {func(t *cluster.Topology) { t.Engine.KVBlocks = 8 << 10 }, ""},
		"more than that":            {func(t *cluster.Topology) { t.Engine.KVBlocks = 8<<10 + 1 }, "decode workers: 8193 KV blocks need 8.0 GiB, no device has more than 8.0 GiB"},
		"beyond all numbers":        {func(t *cluster.Topology) { t.Engine.KVBlocks = 1 << 62 }, "GiB, no device has more than 8.0 GiB"},
		"larger blocks":             {func(t *cluster.Topology) { t.Engine.KVBlocks, t.Engine.BlockSize = 8<<10, 128 }, "need 16.0 GiB"},
		"another type: unknown":     {func(t *cluster.Topology) { t.Engine.KVBlocks, t.Engine.KVDType = 1<<20, "int8" }, ""},
		"a device that is nowhere":  {func(t *cluster.Topology) { t.Engine.Device = "cpu:7" }, "decode workers: no node has a device cpu:7"},
		"of a role without workers": {func(t *cluster.Topology) { t.PrefillSpec.Engine.Device = "gpu:9" }, ""},
		"a backend":                 {func(t *cluster.Topology) { t.Engine.Backend = cluster.BackendCUDA }, "no node has a device that cuda computes on"},
	} {
		topo := cluster.Topology{Model: tiny, Decode: 1}
		tc.change(&topo)
		got := v.Impossible(topo)
		if (tc.want == "") != (len(got) == 0) || !strings.Contains(strings.Join(got, "; "), tc.want) {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}

// A cluster that is not as declared says why, as long as that is wanted.
func TestUnmet(t *testing.T) {
	tiny := cluster.ModelSpec{Name: "tiny"}
	other := cluster.EngineSpec{MaxSeqs: 7}
	topo := cluster.Topology{Model: tiny, Engine: other, Decode: 2}
	as := func(name string, change func(*cluster.Assignment)) cluster.Assignment {
		a := cluster.Assignment{Name: name, Role: cluster.RoleDecode, Model: tiny, Node: "a", Desire: cluster.DesireRun}
		change(&a)
		return a
	}
	v := View{
		Topology: &topo,
		Nodes:    []cluster.Node{{ID: "a"}},
		Assignments: map[string]cluster.Assignment{
			"worker-1": as("worker-1", func(a *cluster.Assignment) {
				a.Refused = cluster.Refusal{Form: cluster.Form{Role: a.Role, Model: tiny, Engine: other}, Why: "no memory"}
			}),
			"worker-2": as("worker-2", func(a *cluster.Assignment) { a.Node, a.Unplaced = "", "no node has a device gpu" }),
			"worker-3": as("worker-3", func(*cluster.Assignment) {}),
			"worker-4": as("worker-4", func(a *cluster.Assignment) { a.Node, a.Unplaced, a.Desire = "", "drained", cluster.DesireDrain }),
		},
		Status: map[string]cluster.WorkerStatus{
			"worker-1": {State: cluster.StateReady}, "worker-3": {State: cluster.StateFailed, Reason: "no such file"},
		},
	}
	want := []string{"worker-1 keeps its configuration: no memory", "worker-2 pending: no node has a device gpu", "worker-3 failed: no such file"}
	if got := v.Unmet(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if w := v.Worker("worker-1"); w.Reason != "keeps its configuration: no memory" || w.State != cluster.StateReady {
		t.Errorf("%+v", w)
	}
	topo.Engine.MaxSeqs = 0 // taken back
	if got := v.Unmet(); !slices.Equal(got, want[1:]) {
		t.Errorf("got %q, want %q", got, want[1:])
	}
	topo.Decode = -1
	if got := v.Unmet(); len(got) != 3 || !strings.HasPrefix(got[0], "the declared topology is invalid, workers stay as they are: decode: -1") {
		t.Errorf("%q", got)
	}
}
