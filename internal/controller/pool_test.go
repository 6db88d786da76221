package controller

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
)

func attached(url string, role cluster.Role, node string) cluster.Attached {
	return cluster.Attached{
		Model: cluster.ModelSpec{Name: "big"}, Role: role, Node: node,
		Engine: cluster.EngineSpec{Backend: cluster.BackendVLLM, Server: cluster.External{URL: url}},
	}
}

// put sets the workers of a pool.
func (w *world) put(name string, prefill, decode int) {
	pool := w.Topology.In(name)
	pool.Model = cluster.ModelSpec{Name: name, Path: "/models/" + name}
	pool.Prefill, pool.Decode = prefill, decode
	w.Topology.Put(name, pool)
}

func TestPlanPools(t *testing.T) {
	t.Run("each has its numbers, on shared devices", func(t *testing.T) {
		w := newWorld(t, 1, 1, node("a", 4), node("b", 4))
		w.put("small", 0, 2)
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode b/cpu:0")
		for name, want := range map[string]string{"worker-2": "tiny", "worker-3": "small", "worker-4": "small"} {
			if got := w.assignment(name).Model.Name; got != want {
				t.Errorf("%s serves %s, want %s", name, got, want)
			}
		}
		w.put("small", 0, 1)
		w.converge()
		w.want("worker-1 prefill a/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode a/cpu:0")
	})
	t.Run("no worker becomes one of another pool", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 4))
		w.put("small", 0, 1)
		w.converge()
		w.Topology.Decode = 1
		w.put("small", 1, 1) // one decode worker too many here, one prefill worker missing there
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0 remove", "worker-3 decode a/cpu:0", "worker-4 prefill a/cpu:0")
		if a := w.assignment("worker-4"); a.Pool != "small" || a.Model.Name != "small" {
			t.Errorf("%+v", a)
		}
	})
	t.Run("roles flip within a pool", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 4))
		w.put("small", 0, 2)
		w.converge()
		w.put("small", 1, 1)
		w.wantRounds("worker-3 change", "worker-3 change")
		w.want("worker-1 decode a/cpu:0", "worker-2 decode a/cpu:0", "worker-3 prefill a/cpu:0")
	})
	t.Run("another engine for one pool", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 4))
		w.put("small", 0, 2)
		w.converge()
		pool := w.Topology.In("small")
		pool.Engine.KVBlocks = 9
		w.Topology.Put("small", pool)
		w.apply(Plan(w.View))
		begun := 0
		for _, a := range w.Assignments {
			if a.Replaces != "" {
				begun++
			}
		}
		if begun != 1 {
			t.Errorf("%d workers have successors at first, want 1", begun)
		}
		w.follow()
		w.converge()
		for _, a := range w.Assignments {
			if (a.Engine.KVBlocks == 9) != (a.Pool == "small") {
				t.Errorf("%+v", a)
			}
		}
		if len(w.Assignments) != 4 || w.assignment("worker-1").Generation != 1 {
			t.Error(w.picture())
		}
	})
	t.Run("a pool that is gone leaves no worker", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 4))
		w.put("small", 1, 2)
		w.converge()
		w.Topology.Pools = nil
		w.converge()
		w.want("worker-1 decode a/cpu:0")
	})
	t.Run("a restart of all", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 4))
		w.put("small", 0, 2)
		w.Topology.Attached = []cluster.Attached{attached("http://gpu-1:8000", cluster.RoleDecode, "")}
		w.converge()
		w.Topology.Restarts++
		w.converge()
		for _, a := range w.Assignments {
			if a.Restarts != 1 {
				t.Errorf("%+v", a)
			}
		}
	})
	t.Run("one pool packs, one spreads", func(t *testing.T) {
		w := newWorld(t, 0, 2, node("a", 4), node("b", 4))
		pool := cluster.Topology{Model: tiny, Decode: 3, Placement: cluster.PlacementPack}
		w.Topology.Put("packed", pool)
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 decode b/cpu:0", "worker-3 decode a/cpu:0", "worker-4 decode a/cpu:0", "worker-5 decode a/cpu:0")
	})
}

func TestPlanAttached(t *testing.T) {
	at := func(i string, role cluster.Role, node string) cluster.Attached {
		return attached("http://gpu-"+i+":8000", role, node)
	}
	t.Run("one worker for each server, without a device", func(t *testing.T) {
		full := node("a", 4)
		full.Devices[0].MemoryBytes = 1
		w := newWorld(t, 0, 1, full, node("b"))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RolePrefill, ""), at("2", cluster.RoleDecode, ""), at("3", cluster.RoleDecode, "a")}
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 prefill a/", "worker-3 decode b/", "worker-4 decode a/")
		if a := w.assignment("worker-2"); a.Engine.Server.URL != "http://gpu-1:8000" || a.Pool != "http://gpu-1:8000" || a.Model.Name != "big" {
			t.Errorf("%+v", a)
		}
		w.Topology.Decode = 3 // what is attached counts for nothing
		w.converge()
		w.want("worker-1 decode a/cpu:0", "worker-2 prefill a/", "worker-3 decode b/", "worker-4 decode a/", "worker-5 decode a/cpu:0", "worker-6 decode a/cpu:0")
	})
	t.Run("it stays where it is until its node goes", func(t *testing.T) {
		w := newWorld(t, 0, 0, node("a", 4), node("b", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, ""), at("2", cluster.RoleDecode, "")}
		w.converge()
		w.want("worker-1 decode a/", "worker-2 decode b/")
		w.Nodes = append(w.Nodes, node("c", 4))
		w.converge()
		w.want("worker-1 decode a/", "worker-2 decode b/")
		w.Nodes = w.Nodes[1:]
		w.converge()
		w.want("worker-1 decode c/", "worker-2 decode b/")
		w.Cordons = map[string]cluster.Cordon{"id-b": {Node: "id-b"}}
		w.converge()
		w.want("worker-1 decode c/", "worker-3 decode c/")
	})
	t.Run("a node of its own", func(t *testing.T) {
		w := newWorld(t, 0, 0, node("a", 4), node("b", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, "b")}
		w.converge()
		w.want("worker-1 decode b/")
		w.Nodes = w.Nodes[:1]
		w.converge()
		w.want("worker-1 decode (the node b is not up, or is drained)")
		w.Nodes = append(w.Nodes, node("b", 4))
		w.converge()
		w.want("worker-1 decode b/")
		w.Topology.Attached[0].Node = "a"
		w.converge()
		w.want("worker-2 decode a/")
	})
	t.Run("detached it drains and goes", func(t *testing.T) {
		w := newWorld(t, 0, 0, node("a", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, ""), at("2", cluster.RoleDecode, "")}
		w.converge()
		w.Topology.Attached = w.Topology.Attached[1:]
		w.apply(Plan(w.View))
		w.want("worker-1 decode a/ remove", "worker-2 decode a/")
		w.follow()
		w.converge()
		w.want("worker-2 decode a/")
	})
	t.Run("another role and another engine", func(t *testing.T) {
		w := newWorld(t, 0, 0, node("a", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, "")}
		w.converge()
		next := at("1", cluster.RolePrefill, "")
		next.Engine.Server.Events = "tcp://gpu-1:5557"
		w.Topology.Attached = []cluster.Attached{next}
		w.converge()
		if i := slices.IndexFunc(w.Assignments, func(a cluster.Assignment) bool { return a.Engine == next.Engine && a.Role == cluster.RolePrefill }); i < 0 || len(w.Assignments) != 1 {
			t.Error(w.picture())
		}
	})
	t.Run("a drained one stays drained", func(t *testing.T) {
		w := newWorld(t, 0, 0, node("a", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, "")}
		w.converge()
		w.Assignments[0].Desire = cluster.DesireDrain
		w.follow()
		w.converge()
		w.want("worker-1 decode a/ drain")
		w.Nodes = []cluster.Node{node("b", 4)}
		w.converge()
		w.want("worker-1 decode (drained; its node is gone) drain")
	})
	t.Run("one that sleeps is attended by another node", func(t *testing.T) {
		w := newWorld(t, 0, 1, node("a", 4))
		w.Topology.Attached = []cluster.Attached{at("1", cluster.RoleDecode, ""), at("2", cluster.RoleDecode, "a")}
		w.converge()
		for i := range w.Assignments {
			w.Assignments[i].Desire, w.Assignments[i].Sleep, w.Assignments[i].Asleep = cluster.DesireDrain, cluster.SleepLight, cluster.SleepLight
		}
		w.follow()
		w.converge()
		w.want("worker-1 decode a/cpu:0 drain", "worker-2 decode a/ drain", "worker-3 decode a/ drain")
		w.Nodes = []cluster.Node{node("b", 4)}
		w.converge()
		w.want("worker-1 decode (drained; its node is gone) drain", "worker-2 decode b/ drain", "worker-3 decode (the node a is not up, or is drained) drain")
		w.Nodes = append(w.Nodes, node("a", 4))
		w.converge()
		w.want("worker-1 decode (drained; its node is gone) drain", "worker-2 decode b/ drain", "worker-3 decode a/ drain")
		for _, a := range w.Assignments {
			if a.Asleep != cluster.SleepLight {
				t.Errorf("%s sleeps at level %d", a.Name, a.Asleep)
			}
		}
	})
}

// Whatever happens, each pool and each server has its workers in the end, and no worker
// changes its pool.
func TestPlanKeepsPoolsApart(t *testing.T) {
	patience.OneGoroutine(t)
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { keepsPoolsApart(t, seed) })
	}
}

func keepsPoolsApart(t *testing.T, seed uint64) {
	c := newChaos(t, 3000+seed)
	c.pools = true
	for step := range 40 {
		c.happen()
		for _, ch := range Plan(c.snapshot()) {
			for _, old := range c.Assignments {
				if old.Name == ch.Assignment.Name && old.Pool != ch.Assignment.Pool {
					t.Fatalf("seed %d step %d: %s moves from pool %q to %q", seed, step, old.Name, old.Pool, ch.Assignment.Pool)
				}
			}
		}
		c.live(seed)
	}
	c.Cordons, c.Settling = nil, nil
	for i := range c.Assignments {
		a := &c.Assignments[i]
		a.Replace, a.Refused, a.Last = false, cluster.Refusal{}, cluster.Form{}
		if a.Desire == cluster.DesireDrain {
			a.Desire = cluster.DesireRun
		}
	}
	if c.Topology.Validate() != nil {
		return
	}
	c.follow()
	for range 200 {
		c.apply(Plan(c.View))
		c.follow()
	}
	if changes := Plan(c.View); len(changes) > 0 {
		t.Fatalf("seed %d: no rest: %+v", seed, changes)
	}
	have := map[group]int{}
	for _, a := range c.Assignments {
		if a.Desire == cluster.DesireRun && a.Replaces == "" {
			have[group{a.Pool, a.Role}]++
		}
	}
	for _, pool := range c.Topology.PoolNames() {
		for _, role := range cluster.Roles {
			if got, want := have[group{pool, role}], c.Topology.In(pool).Count(role); got != want {
				t.Errorf("seed %d: pool %q has %d %s workers, want %d\n%s", seed, pool, got, role, want, c.picture())
			}
			delete(have, group{pool, role})
		}
	}
	if len(have) > 0 {
		t.Errorf("seed %d: workers of no pool: %v", seed, have)
	}
}
