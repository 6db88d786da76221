package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

const ns = "lab"

func TestConverges(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		l.control("node-1", 0)
		l.want("nothing declared")
		l.declare(1, 2)
		l.want("up", "worker-1 prefill node-1", "worker-2 decode node-1", "worker-3 decode node-1")
		l.declare(1, 3)
		l.want("scaled up", "worker-1 prefill node-1", "worker-2 decode node-1", "worker-3 decode node-1", "worker-4 decode node-1")
		l.declare(0, 1)
		l.want("scaled down", "worker-2 decode node-1")
		l.order("worker-2", cluster.DesireDrain)
		l.want("drained", "worker-2 decode node-1 drain")
		l.declare(0, 0)
		l.want("down")
		// Names are used again once they are free.
		l.declare(0, 1)
		l.want("up again", "worker-1 decode node-1")
	})
}

// A new model begins with one new worker; the old ones serve until it does, and then
// follow one after the other.
func TestRollOut(t *testing.T) {
	inLab(t, func(l *lab) {
		f := l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 3)
		l.settle()
		f.become(cluster.StateLoading) // the new model takes long
		bigger := func(t *cluster.Topology) { t.Model.Name = "bigger" }
		l.declare(0, 3, bigger)
		all := []string{"worker-1 decode node-1", "worker-2 decode node-1", "worker-3 decode node-1", "worker-4 decode node-1"}
		l.want("one more", all...)
		if a := l.assignments()["worker-4"]; a.Model.Name != "bigger" || a.Replaces != "worker-1" {
			t.Errorf("the new one: %+v", a)
		}
		f.become(cluster.StateReady)
		l.report(f, "worker-4", cluster.StateReady)
		l.want("all are new", "worker-1 decode node-1", "worker-4 decode node-1", "worker-5 decode node-1")
		for name, a := range l.assignments() {
			if a.Model.Name != "bigger" || a.Replaces != "" {
				t.Errorf("%s: %+v", name, a)
			}
		}
		// Taken back halfway, the old ones stay.
		f.become(cluster.StateLoading)
		l.declare(0, 3, func(t *cluster.Topology) { t.Model.Name = "huge" })
		l.settle()
		l.declare(0, 3, bigger)
		l.want("as before", "worker-1 decode node-1", "worker-4 decode node-1", "worker-5 decode node-1")
	})
}

func TestNodeIsLostAndReturns(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		l.addNode("node-2")
		l.control("node-1", 0)
		l.declare(1, 1)
		l.want("on both", "worker-1 prefill node-1", "worker-2 decode node-2")
		l.lose("node-2")
		l.want("on the one that is left", "worker-1 prefill node-1", "worker-2 decode node-1")
		if g := l.assignments()["worker-2"].Generation; g != 2 {
			t.Errorf("generation %d after the move, want 2", g)
		}
		l.lose("node-1")
		l.want("nowhere", "worker-1 prefill", "worker-2 decode")
		if why := l.assignments()["worker-1"].Unplaced; why == "" {
			t.Error("no reason for being unplaced")
		}
		l.addNode("node-3")
		l.want("on the new one", "worker-1 prefill node-3", "worker-2 decode node-3")
		if why := l.assignments()["worker-1"].Unplaced; why != "" {
			t.Errorf("placed and still %q", why)
		}
	})
}

// A node that was lost and is back gets workers again, one after the other and each with
// a successor first, but not before it has stayed for a while. One that prefers a role
// gets the workers of that role back.
func TestWorkersReturn(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1", func(n *cluster.Node) { n.Roles = []cluster.Role{cluster.RoleDecode} })
		prefill := func(n *cluster.Node) { n.Roles, n.InstanceID = []cluster.Role{cluster.RolePrefill}, n.InstanceID+1 }
		l.addNode("node-2", prefill)
		l.control("node-1", 0)
		l.declare(2, 2)
		l.want("as preferred", "worker-1 prefill node-2", "worker-2 prefill node-2", "worker-3 decode node-1", "worker-4 decode node-1")
		l.lose("node-2")
		l.want("on what is left", "worker-1 prefill node-1", "worker-2 prefill node-1", "worker-3 decode node-1", "worker-4 decode node-1")
		l.addNode("node-2", prefill)
		time.Sleep(settleNode)
		synctest.Wait()
		for name, a := range l.assignments() {
			if a.Role == cluster.RolePrefill && a.Node != "id-node-1" {
				t.Errorf("%s is on %s before that has settled", name, a.Node)
			}
		}
		time.Sleep(2 * settleNode)
		l.want("back", "worker-3 decode node-1", "worker-4 decode node-1", "worker-5 prefill node-2", "worker-6 prefill node-2")
	})
}

// The longer a node is known to come and go, the later anything moves back to it.
func TestSettling(t *testing.T) {
	p, now := newBackoff(), time.Unix(0, 0)
	n := []cluster.Node{{ID: "a", InstanceID: 1}}
	is := func(what string, nodes []cluster.Node, want bool) {
		t.Helper()
		if got := p.settling(nodes, now); got["a"] != want {
			t.Errorf("%s: settling %t, want %t", what, got["a"], want)
		}
	}
	is("new", n, true)
	now = now.Add(settleNode)
	is("settled", n, false)
	is("away", nil, false)
	is("back", n, true)
	now = now.Add(settleNode)
	is("it was lost once", n, true)
	now = now.Add(settleNode)
	is("settled again", n, false)
	n[0].InstanceID = 2
	is("another lease", n, true)
	now = now.Add(3 * settleNode)
	is("lost twice", n, true)
	now = now.Add(settleNode)
	is("settled for the third time", n, false)
	now = now.Add(forgiveAfter)
	is("it stays", n, false)
	is("away again", nil, false)
	is("back again", n, true)
	now = now.Add(2 * settleNode)
	is("the past is forgiven", n, false)
	is("away for good", nil, false)
	now = now.Add(2 * forgiveAfter)
	is("", nil, false)
	if len(p.nodes) != 0 {
		t.Errorf("remembered for ever: %v", p.nodes)
	}
}

// Nodes and elections of other namespaces are none of this controller's business.
func TestNamespaces(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1", func(n *cluster.Node) { n.Namespace = "other" })
		lease, err := l.store.GrantLease(l.ctx, time.Hour)
		if err != nil {
			t.Fatal(err)
		}
		// Another namespace has its leader already.
		if _, err := l.store.Put(l.ctx, cluster.ElectionPrefix("other")+"/1", []byte("node-1")); err != nil {
			t.Fatal(err)
		}
		l.control("node-2", lease.ID)
		l.declare(0, 1)
		l.want("no node of this namespace", "worker-1 decode")
		l.addNode("node-2")
		l.want("placed", "worker-1 decode node-2")
		if who, err := store.Leader(l.ctx, l.store, cluster.ElectionPrefix(ns)); who != "node-2" || err != nil {
			t.Errorf("leader %q %v", who, err)
		}
	})
}

func TestLeadershipMoves(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		leases := map[string]cluster.InstanceID{}
		for _, name := range []string{"a", "b"} {
			lease, err := l.store.GrantLease(l.ctx, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			leases[name] = lease.ID
			l.control(name, lease.ID)
			l.settle()
		}
		leader := func() string {
			who, err := store.Leader(l.ctx, l.store, cluster.ElectionPrefix(ns))
			if err != nil {
				t.Fatal(err)
			}
			return who
		}
		if who := leader(); who != "a" {
			t.Fatalf("%s leads, a came first", who)
		}
		l.declare(0, 1)
		l.want("a leads", "worker-1 decode node-1")
		if err := l.store.RevokeLease(l.ctx, leases["a"]); err != nil {
			t.Fatal(err)
		}
		l.settle()
		if who := leader(); who != "b" {
			t.Fatalf("%s leads after the end of a", who)
		}
		l.declare(0, 2)
		l.want("b leads", "worker-1 decode node-1", "worker-2 decode node-1")
	})
}

// A drain that comes between reading and writing wins; the controller does not
// write over it and does not give up.
func TestConflictIsHarmless(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 3)
		l.settle()
		once := sync.Once{}
		l.store.mu.Lock()
		l.store.before = func(key string) {
			once.Do(func() {
				a, _, err := store.GetJSON[cluster.Assignment](l.ctx, l.store.Store, key)
				if err != nil {
					t.Error(err)
					return
				}
				a.Desire = cluster.DesireDrain
				if _, err := store.PutJSON(l.ctx, l.store.Store, key, a); err != nil {
					t.Error(err)
				}
			})
		}
		l.store.mu.Unlock()
		// The controller is about to write a new generation to worker-1.
		l.declare(0, 3, func(t *cluster.Topology) { t.Restarts++ })
		l.want("the drain stays", "worker-1 decode node-1 drain", "worker-2 decode node-1", "worker-3 decode node-1")
		for name, a := range l.assignments() {
			if a.Restarts != 1 || a.Generation != 2 {
				t.Errorf("%s: %+v, want it restarted", name, a)
			}
		}
		if tried, done := l.store.counts(); tried != done+1 {
			t.Errorf("%d writes tried, %d done, want one conflict", tried, done)
		}
	})
}

// While the store is away nothing is decided on an old view.
func TestStaleViewDoesNothing(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 1)
		l.settle()
		mem := l.store.Store.(*store.Memory)
		tried, _ := l.store.counts()
		mem.SetOutage(true)
		time.Sleep(10 * resyncEvery)
		synctest.Wait()
		if now, _ := l.store.counts(); now != tried {
			t.Errorf("%d writes were tried during the outage", now-tried)
		}
		mem.SetOutage(false)
		l.want("after the outage", "worker-1 decode node-1")
		l.declare(0, 2)
		l.want("and it goes on", "worker-1 decode node-1", "worker-2 decode node-1")
	})
}

func TestStaleWatches(t *testing.T) {
	inLab(t, func(l *lab) {
		mem := store.NewMemory(nil)
		defer mem.Close()
		c := New(Config{Store: mem, Namespace: ns, Log: slog.New(slog.DiscardHandler)})
		w, err := c.watch(l.ctx)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		if since, err := w.stale(); !since.IsZero() || err != nil {
			t.Errorf("fresh: %s %v", since, err)
		}
		mem.SetOutage(true)
		if err := c.lead(l.ctx); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("lead during an outage: %v", err)
		}
		if err := c.reconcile(l.ctx, w, newBackoff()); err == nil || !strings.Contains(err.Error(), "stale") {
			t.Errorf("reconcile during an outage: %v", err)
		}
	})
}

// A topology is not placed on a view that lacks nodes which were there before it.
func TestNodesBeforeTopology(t *testing.T) {
	inLab(t, func(l *lab) {
		c := New(Config{Store: l.store, Namespace: ns, Log: slog.New(slog.DiscardHandler)})
		l.addNode("node-1")
		w, err := c.watch(l.ctx)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		w.nodes.Close() // from here on it lags
		l.addNode("node-2")
		l.declare(0, 2)
		synctest.Wait()
		if err := c.reconcile(l.ctx, w, newBackoff()); !errors.Is(err, store.ErrClosed) {
			t.Errorf("reconcile without node-2: %v", err)
		}
		l.want("nothing is placed")

		fresh, err := c.watch(l.ctx)
		defer fresh.close()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.reconcile(l.ctx, fresh, newBackoff()); err != nil {
			t.Error(err)
		}
		l.want("with both nodes", "worker-1 decode node-1", "worker-2 decode node-2")
	})
}

// lateStore changes something just before it tells what is the newest.
type lateStore struct {
	store.Store
	change func(prefix string)
}

func (s lateStore) Newest(ctx context.Context, prefix string) (store.Revision, error) {
	s.change(prefix)
	return s.Store.Newest(ctx, prefix)
}

// A worker that serves is not taken for one that does not because its status comes late.
func TestStatusBeforeRemoval(t *testing.T) {
	inLab(t, func(l *lab) {
		f := l.addNode("node-1")
		serves := false
		c := New(Config{Store: lateStore{l.store, func(prefix string) {
			if prefix == cluster.StatusPrefix(ns) {
				l.report(f, "worker-1", cluster.StateReady)
				serves = true
			}
		}}, Namespace: ns, Log: slog.New(slog.DiscardHandler)})
		w, err := c.watch(l.ctx)
		defer w.close()
		if err != nil {
			t.Fatal(err)
		}
		reconcile := func() {
			t.Helper()
			synctest.Wait()
			if err := c.reconcile(l.ctx, w, newBackoff()); err != nil {
				t.Error(err)
			}
		}
		f.become(cluster.StateLoading)
		l.declare(0, 1)
		reconcile()
		if _, _, err := store.UpdateJSON(l.ctx, l.store, cluster.AssignmentKey(ns, "worker-1"), func(a cluster.Assignment, _ bool) (cluster.Assignment, error) {
			a.Replace = true
			return a, nil
		}); err != nil {
			t.Fatal(err)
		}
		reconcile()
		if !serves {
			t.Error("nobody asked how new the statuses are")
		}
		l.want("a successor starts first", "worker-1 decode node-1", "worker-2 decode node-1")
	})
}

// What others put into the store, by hand say, neither stops the controller nor
// makes it write for ever.
func TestGarbageInTheStore(t *testing.T) {
	inLab(t, func(l *lab) {
		for key, value := range map[string]string{
			cluster.AssignmentKey(ns, "worker-9"): "{", cluster.AssignmentKey(ns, "worker-8"): `{"desire":"remove"}`,
			cluster.AssignmentKey(ns, "worker-7"): `{"name":"worker-6","desire":"remove"}`,
			cluster.NodeKey("x"):                  "[]", cluster.StatusKey(ns, "worker-1"): "null", cluster.TopologyKey(ns) + "2": "x",
		} {
			if _, err := l.store.Put(l.ctx, key, []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 1)
		l.settle()
		tried, _ := l.store.counts()
		l.settle()
		if now, _ := l.store.counts(); now != tried || tried != 1 {
			t.Errorf("%d writes, %d later, want 1 for worker-1", tried, now)
		}
		kv, err := l.store.Get(l.ctx, cluster.AssignmentKey(ns, "worker-1"))
		if err != nil || !strings.Contains(string(kv.Value), "id-node-1") {
			t.Errorf("worker-1: %s %v", kv.Value, err)
		}
	})
}

func TestNotify(t *testing.T) {
	inLab(t, func(l *lab) {
		l.addNode("node-1")
		l.control("node-1", 0)
		l.declare(0, 1)
		l.settle()
		l.declare(0, 0)
		l.settle()
		l.mu.Lock()
		defer l.mu.Unlock()
		want := []string{"node-1 leads the controllers", "worker-1 decode: scale up: on node-1 cpu:0", "worker-1 decode: scale down", "worker-1 decode: removed"}
		if !slices.Equal(l.events, want) {
			t.Errorf("got %q, want %q", l.events, want)
		}
	})
}

// scenario is a busy day; it returns how many writes took effect.
func scenario(l *lab) int {
	steps := []func(){
		func() { l.declare(2, 4) },
		func() { l.addNode("node-3") },
		func() { l.lose("node-2") },
		func() { l.declare(1, 6) },
		func() { l.order("worker-3", cluster.DesireDrain) },
		func() { l.declare(1, 6, func(t *cluster.Topology) { t.Engine.MaxSeqs = 9 }) },
		func() { l.addNode("node-4") },
		func() { l.declare(0, 2) },
	}
	l.addNode("node-1")
	l.addNode("node-2")
	for i, step := range steps {
		step()
		l.settle()
		_, before := l.store.counts()
		l.settle()
		if _, after := l.store.counts(); after != before {
			l.t.Errorf("step %d: %d writes after everything had settled", i, after-before)
		}
	}
	_, done := l.store.counts()
	return done
}

// Two that both believe to lead, as after a paused process, do no more than one.
func TestTwoControllersDoNotFight(t *testing.T) {
	writes := map[int]int{}
	var states [3]map[string]cluster.Assignment
	for n := 1; n <= 2; n++ {
		inLab(t, func(l *lab) {
			for i := range n {
				l.control(fmt.Sprint("node-", i), 0)
			}
			writes[n] = scenario(l)
			states[n] = l.assignments()
		})
	}
	t.Logf("writes: one controller %d, two %d", writes[1], writes[2])
	// Each plans on what the other one has written so far, so that now and then another worker
	// is replaced first, and a few are replaced twice.
	if writes[2] > writes[1]+writes[1]/4 {
		t.Errorf("two controllers wrote %d times, one %d times", writes[2], writes[1])
	}
	for n, all := range states {
		if len(all) != min(2*n, 2) {
			t.Errorf("%d controllers end with %v, want two workers", n, all)
		}
		for _, as := range all {
			if as.Role != cluster.RoleDecode || as.Desire != cluster.DesireRun || as.Replaces != "" {
				t.Errorf("%d controllers end with %+v, want a decode worker that serves", n, as)
			}
		}
	}
}
