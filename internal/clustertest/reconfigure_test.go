package clustertest_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/clustertest"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/model/modeltest"
)

// askers are clients that never stop asking, each for one long answer after the other.
type askers struct {
	t    *testing.T
	n    atomic.Int64 // answers so far
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// startAskers has each client compare every answer with what an undisturbed cluster says.
func startAskers(t *testing.T, c *clustertest.Cluster, prompts []string, tokens int) *askers {
	t.Helper()
	want := burst(t, c, prompts, tokens)
	s := &askers{t: t}
	ctx, stop := context.WithCancel(t.Context())
	s.stop = stop
	t.Cleanup(s.end)
	for i, p := range prompts {
		s.wg.Go(func() {
			for ctx.Err() == nil {
				a, err := c.Complete(t.Context(), clustertest.Body{"prompt": p, "max_tokens": tokens, "temperature": 0, "ignore_eos": true})
				if err != nil || a.Text != want[i].Text || a.Usage != want[i].Usage {
					t.Errorf("stream %d failed: %v, got %+v, want %+v", i, err, a, want[i])
					return
				}
				s.n.Add(1)
			}
		})
	}
	return s
}

func (s *askers) end() {
	s.stop()
	s.wg.Wait()
}

// answered waits for so many more answers.
func (s *askers) answered(c *clustertest.Cluster, what string, n int64) {
	s.t.Helper()
	until := s.n.Load() + n
	c.WaitView(fmt.Sprintf("%d more answers %s", n, what), func(client.View) bool { return s.n.Load() >= until || s.t.Failed() })
}

// settled waits until the cluster is as declared: everybody serves as assigned, in the
// right numbers, and nobody leaves.
func settled(t *testing.T, c *clustertest.Cluster, what string, prefill, decode int, cond func(client.View) bool) client.View {
	t.Helper()
	var at client.View
	c.WaitView(what, func(v client.View) bool {
		n := map[cluster.Role]int{}
		for _, w := range v.Workers() {
			a := v.Assignments[w.Name]
			if a.Desire != cluster.DesireRun || a.Replaces != "" || !w.State.Serving() || w.Generation != a.Generation || w.Role != a.Role {
				return false
			}
			n[w.Role]++
		}
		at = v
		return n[cluster.RolePrefill] == prefill && n[cluster.RoleDecode] == decode && (cond == nil || cond(v))
	})
	return at
}

func names(v client.View) (out []string) {
	for _, w := range v.Workers() {
		out = append(out, w.Name)
	}
	return out
}

// One cluster under continuous streams goes through every reconfiguration: no request
// fails, and no answer changes.
func TestReconfigureUnderLoad(t *testing.T) {
	t.Parallel()
	dir := mediumModel(t)
	c := clustertest.Start(t, clustertest.Options{
		Model: dir, Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Config: func(cfg *config.Dynamod) { cfg.Router.Policy = "round-robin" },
	})
	c.WaitRemotePrefill()
	before := settledCounts(t, c)
	s := startAskers(t, c, texts(6, 60), 120)
	step := func(name string, do func()) {
		t.Helper()
		begin := time.Now()
		s.answered(c, "before "+name, 2)
		do()
		s.answered(c, "after "+name, 6)
		t.Logf("%s: %s", name, time.Since(begin).Round(time.Millisecond))
	}

	step("scale up and down", func() {
		c.Declare(2, 3)
		settled(t, c, "2 and 3", 2, 3, nil)
		c.Declare(1, 2)
		settled(t, c, "1 and 2 again", 1, 2, nil)
	})
	step("role flips", func() {
		started := c.Watch.View().Worker("worker-3").StartedAt
		for _, role := range []cluster.Role{cluster.RolePrefill, cluster.RoleDecode} {
			if _, err := c.Client.SetRole(t.Context(), "worker-3", role); err != nil {
				t.Fatal(err)
			}
			prefill, decode := 1, 2
			if role == cluster.RolePrefill {
				prefill, decode = 2, 1
			}
			v := settled(t, c, "worker-3 is a "+string(role)+" worker", prefill, decode, func(v client.View) bool { return v.Worker("worker-3").Role == role })
			if w := v.Worker("worker-3"); !w.StartedAt.Equal(started) {
				t.Errorf("it was started again: %s, before %s", w.StartedAt, started)
			}
			s.answered(c, "with worker-3 as "+string(role), 3)
		}
		c.WaitServed(2)
	})
	step("a rolling restart", func() {
		old := map[string]time.Time{}
		for _, w := range c.Watch.View().Workers() {
			old[w.Name] = w.StartedAt
		}
		topo, err := c.Client.Declare(t.Context(), func(t *cluster.Topology, _ bool) error { t.Restarts++; return nil })
		if err != nil {
			t.Fatal(err)
		}
		v := settled(t, c, "all are restarted", 1, 2, func(v client.View) bool {
			for _, a := range v.Assignments {
				if a.Restarts != topo.Restarts { // what is seen here may be older
					return false
				}
			}
			return true
		})
		for _, w := range v.Workers() {
			if w.StartedAt.Equal(old[w.Name]) {
				t.Errorf("%s was not restarted", w.Name)
			}
		}
		if got := names(v); !slices.Contains(got, "worker-2") || !slices.Contains(got, "worker-3") {
			t.Errorf("decode workers lost their names: %v", got)
		}
	})
	step("a drain with a successor", func() {
		if err := c.Client.Replace(t.Context(), "worker-2", time.Now().Add(time.Minute), false); err != nil {
			t.Fatal(err)
		}
		settled(t, c, "worker-2 is replaced", 1, 2, func(v client.View) bool { return v.Assignments["worker-2"].Name == "" })
	})
	step("other engines", func() {
		c.WaitServed(2)
		if _, err := c.Client.Declare(t.Context(), func(t *cluster.Topology, _ bool) error { t.Engine.MaxSeqs = 33; return nil }); err != nil {
			t.Fatal(err)
		}
		settled(t, c, "all have the new engine", 1, 2, func(v client.View) bool {
			for _, a := range v.Assignments {
				if a.Engine.MaxSeqs != 33 {
					return false
				}
			}
			return true
		})
	})
	s.end()
	counted(t, c, before, int(s.n.Load())+6)
	c.WaitServed(2)
	c.WaitRest()

	// A new model: whoever asks for the old name is served until the last of its workers
	// has gone, and the new name is served all the time from its first worker on.
	t.Run("model", func(t *testing.T) { changeModel(t, c) })
}

// changeModel rolls the cluster over to another model under load.
func changeModel(t *testing.T, c *clustertest.Cluster) {
	const next = "next-model"
	story := texts(1, 40)[0]
	var asked, old, fresh atomic.Int64
	ask := func(model string) error { // no two prompts begin alike: all go to a prefill worker
		prompt := fmt.Sprintf("%d %s %s", asked.Add(1), model, story)
		_, err := c.Ask(t.Context(), model, clustertest.Body{"prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": true})
		return err
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	oldServed := func() bool {
		for _, a := range c.Watch.View().Assignments {
			if a.Role == cluster.RoleDecode && a.Model.Name == c.Model && a.Desire == cluster.DesireRun {
				return true
			}
		}
		return false
	}
	for range 4 {
		wg.Go(func() {
			for ctx.Err() == nil && oldServed() {
				if err := ask(c.Model); err != nil && oldServed() {
					t.Errorf("%s: %v", c.Model, err)
					return
				}
				old.Add(1)
			}
		})
	}
	dir := modeltest.Generate(t, modeltest.Spec{Layers: 2, Hidden: 64, Heads: 4, KVHeads: 2, ContextLen: 8192, Seed: 8})
	_, err := c.Client.Declare(t.Context(), func(t *cluster.Topology, _ bool) error { t.Model.Name, t.Model.Path = next, dir; return nil })
	if err != nil {
		t.Fatal(err)
	}
	c.WaitView("the new name is served", func(client.View) bool { return ask(next) == nil })
	if !oldServed() {
		t.Log("the old model had gone by then")
	}
	for range 2 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := ask(next); err != nil {
					t.Errorf("%s: %v", next, err)
					return
				}
				fresh.Add(1)
			}
		})
	}
	settled(t, c, "all serve the new model", 1, 2, func(v client.View) bool {
		for _, a := range v.Assignments {
			if a.Model.Name != next {
				return false
			}
		}
		return true
	})
	until := fresh.Load() + 5
	c.WaitView("the new model goes on", func(client.View) bool { return fresh.Load() >= until || t.Failed() })
	stop()
	wg.Wait()
	t.Logf("%d answers of the old model, %d of the new one", old.Load(), fresh.Load())
	if old.Load() == 0 {
		t.Error("nobody asked for the old model meanwhile")
	}
	err = ask(c.Model)
	if err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the old name at last: %v", err)
	}
	// Workers of two models pulled from one queue.
	q := restingQueue(t, c)
	if *q.DeadLettered != 0 {
		t.Errorf("%d dead letters after the change: %+v", *q.DeadLettered, q)
	}
}

// restingQueue is the prefill queue once it is empty. An operator asks again while NATS is too
// busy to answer in time.
func restingQueue(t *testing.T, c *clustertest.Cluster) (q client.Queue) {
	t.Helper()
	qs, err := c.Client.Queues()
	if err != nil {
		t.Fatal(err)
	}
	defer qs.Close()
	c.WaitView("the queue is empty", func(v client.View) bool {
		list, err := qs.List(t.Context(), v)
		if err != nil || len(list) == 0 || list[0].Name != client.PrefillQueue {
			t.Logf("queues %+v, %v", list, err)
			return false
		}
		q = list[0]
		return q.Waiting+q.InWork == 0
	})
	return q
}

// The leader is killed while workers come and go, its workers with it; the next one
// finishes the work. When the killed node is back, it gets workers of the role that it
// prefers again. A node that is drained gives them away. No request fails.
func TestLeaderIsKilledMidScale(t *testing.T) {
	t.Parallel()
	c := clustertest.Start(t, clustertest.Options{
		Model: mediumModel(t), Prefill: 1, Decode: 2, Engine: cluster.EngineSpec{BlockSize: 16, KVBlocks: 1024},
		Nodes:    []clustertest.Node{{Roles: []string{"decode"}}, {Roles: []string{"prefill"}, Process: true}},
		LeaseTTL: faultTTL,
	})
	c.WaitRemotePrefill()
	c.Lead(1)
	s := startAskers(t, c, texts(4, 60), 60)
	s.answered(c, "before", 2)
	on := func(v client.View, role cluster.Role) (nodes []string) {
		for _, a := range v.Assignments {
			if a.Role == role {
				nodes = append(nodes, v.NodeName(a.Node))
			}
		}
		slices.Sort(nodes)
		return nodes
	}

	c.Declare(2, 3)
	c.WaitView("the leader has begun", func(v client.View) bool { return len(v.Assignments) > 3 })
	c.Nodes[1].Kill()
	settled(t, c, "the other one has finished", 2, 3, func(v client.View) bool { return len(v.Nodes) == 1 })
	c.Lead(0)
	s.answered(c, "after the kill", 4)

	c.Nodes[1].Restart()
	v := settled(t, c, "prefill workers are back where they belong", 2, 3, func(v client.View) bool {
		return slices.Equal(on(v, cluster.RolePrefill), []string{"node-2", "node-2"})
	})
	if got := on(v, cluster.RoleDecode); !slices.Equal(got, []string{"node-1", "node-1", "node-1"}) {
		t.Errorf("decode workers on %v", got)
	}
	s.answered(c, "after the return", 4)

	if err := c.Client.Cordon(t.Context(), c.Nodes[1].ID, time.Now().Add(time.Minute), false); err != nil {
		t.Fatal(err)
	}
	settled(t, c, "the drained node is empty", 2, 3, func(v client.View) bool {
		return !slices.ContainsFunc(v.Workers(), func(w cluster.Worker) bool { return w.Node == c.Nodes[1].ID })
	})
	s.answered(c, "after the drain", 4)
	s.end()
}
