package settle

import (
	"testing"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// judge must not take old or foreign news for what is wanted.
func TestJudge(t *testing.T) {
	topo := cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Prefill: 1, Decode: 2, Generation: 3}
	assign := func(n int, role cluster.Role, desire cluster.Desire) cluster.Assignment {
		return cluster.Assignment{Name: cluster.WorkerName(n), Role: role, Model: topo.Model, Node: "n1", Device: "cpu:0", Desire: desire, Generation: 2}
	}
	status := func(n int, role cluster.Role, s cluster.State) cluster.WorkerStatus {
		return cluster.WorkerStatus{Name: cluster.WorkerName(n), Role: role, Node: "n1", State: s, InstanceID: 7, Generation: 2}
	}
	view := func() client.View {
		v := client.View{Topology: &topo, Nodes: []cluster.Node{{ID: "n1"}}, Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
		for n, role := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode, cluster.RoleDecode} {
			v.Assignments[cluster.WorkerName(n+1)] = assign(n+1, role, cluster.DesireRun)
			v.Status[cluster.WorkerName(n+1)] = status(n+1, role, cluster.StateReady)
		}
		return v
	}
	for _, tc := range []struct {
		name             string
		change           func(v *client.View)
		trust            func(string) bool
		ready, want      int
		serving, settled bool
	}{
		{"all ready", func(*client.View) {}, nil, 3, 3, true, true},
		{"one loads", func(v *client.View) {
			v.Status["worker-2"] = status(2, cluster.RoleDecode, cluster.StateLoading)
		}, nil, 2, 3, false, false},
		{"one is degraded", func(v *client.View) {
			v.Status["worker-2"] = status(2, cluster.RoleDecode, cluster.StateDegraded)
		}, nil, 3, 3, true, true},
		{"one is of an older generation", func(v *client.View) {
			a := v.Assignments["worker-2"]
			a.Generation = 3
			v.Assignments["worker-2"] = a
		}, nil, 2, 3, false, false},
		{"one has the old engine", func(v *client.View) {
			a := v.Assignments["worker-1"]
			a.Engine.KVBlocks = 5
			v.Assignments["worker-1"] = a
		}, nil, 2, 3, false, false},
		{"none was assigned", func(v *client.View) { clear(v.Assignments) }, nil, 0, 3, false, false},
		{"the node is dead", func(*client.View) {}, func(string) bool { return false }, 0, 3, false, false},
		{"one too many", func(v *client.View) {
			v.Assignments["worker-4"] = assign(4, cluster.RoleDecode, cluster.DesireRun)
		}, nil, 3, 3, true, false},
		{"one leaves", func(v *client.View) {
			v.Assignments["worker-4"] = assign(4, cluster.RoleDecode, cluster.DesireRemove)
		}, nil, 3, 3, true, false},
		{"one was drained on purpose", func(v *client.View) {
			v.Assignments["worker-3"] = assign(3, cluster.RoleDecode, cluster.DesireDrain)
			v.Status["worker-3"] = status(3, cluster.RoleDecode, cluster.StateDrained)
		}, nil, 2, 2, true, true},
		{"a status without an assignment", func(v *client.View) {
			v.Status["worker-9"] = status(9, cluster.RoleDecode, cluster.StateReady)
		}, nil, 3, 3, true, false},
		{"a worker of a pool that is gone", func(v *client.View) {
			a := assign(4, cluster.RoleDecode, cluster.DesireRun)
			a.Pool = "old"
			v.Assignments["worker-4"], v.Status["worker-4"] = a, status(4, cluster.RoleDecode, cluster.StateReady)
		}, nil, 3, 3, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := view()
			tc.change(&v)
			s := Goal{Topo: topo, Trust: tc.trust}.Judge(v)
			if s.Ready != tc.ready || s.Want != tc.want || s.Serving() != tc.serving || s.Settled() != tc.settled {
				t.Errorf("%d of %d, serving %t, settled %t; want %d of %d, %t, %t", s.Ready, s.Want, s.Serving(), s.Settled(), tc.ready, tc.want, tc.serving, tc.settled)
			}
		})
	}
}

// Each pool and each attached server has workers of its own, which stand for no others.
func TestJudgePools(t *testing.T) {
	topo := cluster.Topology{Model: cluster.ModelSpec{Name: "m"}, Decode: 1}
	topo.Put("small", cluster.Topology{Model: cluster.ModelSpec{Name: "s"}, Decode: 1})
	topo.Attached = []cluster.Attached{{Model: cluster.ModelSpec{Name: "m"}, Role: cluster.RoleDecode, Engine: cluster.EngineSpec{Backend: cluster.BackendOpenAI, Server: cluster.External{URL: "http://a:1"}}}}
	for _, tc := range []struct {
		pools           []string
		ready           int
		serves, settled bool
	}{
		{[]string{"", "small", "http://a:1"}, 3, true, true},
		{[]string{"", "", "small"}, 2, false, false},
		{[]string{"small", "small", "small"}, 1, false, false},
		{[]string{"", "small", "http://a:1", "gone"}, 3, true, false},
	} {
		v := client.View{Topology: &topo, Nodes: []cluster.Node{{ID: "n1"}}, Assignments: map[string]cluster.Assignment{}, Status: map[string]cluster.WorkerStatus{}}
		for i, pool := range tc.pools {
			name := cluster.WorkerName(i + 1)
			model, engine := topo.In(pool).Specs(cluster.RoleDecode)
			v.Assignments[name] = cluster.Assignment{Name: name, Pool: pool, Role: cluster.RoleDecode, Model: model, Engine: engine, Node: "n1", Desire: cluster.DesireRun}
			v.Status[name] = cluster.WorkerStatus{Name: name, Role: cluster.RoleDecode, State: cluster.StateReady, InstanceID: 7}
		}
		if s := (Goal{Topo: topo}).Judge(v); s.Want != 3 || s.Ready != tc.ready || s.Serving() != tc.serves || s.Settled() != tc.settled {
			t.Errorf("%q: %d of %d, serving %t, settled %t", tc.pools, s.Ready, s.Want, s.Serving(), s.Settled())
		}
	}
}
