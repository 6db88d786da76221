package agent

import (
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/store"
)

// forgetful is a node with a ready worker, a topology of generation 5 and a setting.
func forgetful(t *testing.T) (n *testNode, topology cluster.Topology) {
	t.Helper()
	n = startTestNode(t)
	n.put(cluster.NodeKey(n.nodeID), cluster.Node{ID: n.nodeID})
	topology = cluster.Topology{Model: cluster.ModelSpec{Name: "mock"}, Decode: 1, Generation: 5, UpdatedAt: time.Now()}
	n.put(cluster.TopologyKey(n.cfg.Namespace), topology)
	n.put(cluster.SettingKey(n.cfg.Namespace, "disagg.strategy"), "prefill-first")
	n.assign()
	n.reaches(cluster.StateReady)
	patience.Until(t, "the topology is known", func() bool {
		n.declared.mu.Lock()
		defer n.declared.mu.Unlock()
		return n.declared.topology != nil && len(n.declared.known) == 2
	})
	return n, topology
}

func (n *testNode) put(key string, v any) {
	n.t.Helper()
	if _, err := store.PutJSON(n.t.Context(), n.mem, key, v); err != nil {
		n.t.Fatal(err)
	}
}

// storedTopology returns the topology in the store, or one of generation 0.
func (n *testNode) storedTopology() cluster.Topology {
	t, _, _ := store.GetJSON[cluster.Topology](n.t.Context(), n.mem, cluster.TopologyKey(n.cfg.Namespace))
	return t
}

// A store that has lost everything is told again what was declared, and no worker leaves.
func TestStoreForgetsEverything(t *testing.T) {
	t.Parallel()
	n, topology := forgetful(t)
	instance, loaded := n.running(), n.loads.count()
	if _, err := n.mem.DeletePrefix(t.Context(), "/dynctl/"+n.cfg.Namespace+"/"); err != nil {
		t.Fatal(err)
	}
	key := cluster.AssignmentKey(n.cfg.Namespace, "worker-1")
	patience.Until(t, "the assignment is written again", func() bool { _, err := n.mem.Get(t.Context(), key); return err == nil })
	if got := n.storedTopology(); got.Generation != 0 {
		t.Error("the topology is back before the nodes had time for their assignments")
	}
	patience.Until(t, "the topology is written again", func() bool { return n.storedTopology().Generation == topology.Generation })
	if _, err := n.mem.Get(t.Context(), cluster.SettingKey(n.cfg.Namespace, "disagg.strategy")); err != nil {
		t.Errorf("the setting: %v", err)
	}
	if n.running() != instance || n.loads.count() != loaded {
		t.Error("the worker was started again")
	}
}

// With an old backup of the store, nodes go on with what they know since.
func TestStoreIsRestoredFromABackup(t *testing.T) {
	t.Parallel()
	n, topology := forgetful(t)
	instance := n.running()
	old := topology
	old.Generation, old.UpdatedAt, old.Decode = 3, topology.UpdatedAt.Add(-time.Hour), 0
	n.put(cluster.TopologyKey(n.cfg.Namespace), old)
	n.assign(desire(cluster.DesireRemove))
	patience.Until(t, "the topology is written again", func() bool { return n.storedTopology().Generation == topology.Generation })
	as, _, err := store.GetJSON[cluster.Assignment](t.Context(), n.mem, cluster.AssignmentKey(n.cfg.Namespace, "worker-1"))
	if err != nil || as.Desire != cluster.DesireRun {
		t.Errorf("the assignment: got %v, %v, want it as it was", as.Desire, err)
	}
	if n.running() != instance {
		t.Error("the worker was started again")
	}
}

// What somebody declares after the loss wins, and deletions under it are orders.
func TestDeclaredAfterTheLoss(t *testing.T) {
	t.Parallel()
	n, topology := forgetful(t)
	since := topology
	since.Generation, since.UpdatedAt = 1, topology.UpdatedAt.Add(time.Minute)
	n.put(cluster.TopologyKey(n.cfg.Namespace), since)
	n.unassign("worker-1")
	patience.Until(t, "the worker leaves", func() bool { return n.running() == nil })
	if got := n.storedTopology(); got.Generation != 1 {
		t.Errorf("the topology: got generation %d, want that of who declared since", got.Generation)
	}
}

// What is known and not in the store, once that is as new as it can be, was taken back by an
// order: it is not written again after another loss.
func TestRecoveredDropsWhatWasTakenBack(t *testing.T) {
	t.Parallel()
	n, _ := forgetful(t)
	gone, kept := cluster.SettingKey(n.cfg.Namespace, "router.policy"), cluster.SettingKey(n.cfg.Namespace, "disagg.strategy")
	n.declared.mu.Lock()
	n.declared.known[gone] = store.KV{Key: gone}
	n.declared.mu.Unlock()
	if err := n.declared.recovered(t.Context()); err != nil {
		t.Fatal(err)
	}
	n.declared.mu.Lock()
	defer n.declared.mu.Unlock()
	if _, ok := n.declared.known[gone]; ok {
		t.Error("a setting that was taken back is known still")
	}
	if _, ok := n.declared.known[kept]; !ok {
		t.Error("a setting that there is was forgotten")
	}
}
