package clustertest

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/external/externaltest"
)

// sleeps waits until the worker of a server sleeps at a level, as another instance than before.
func (c *Cluster) sleeps(s *simulator, level int, before cluster.InstanceID) cluster.WorkerStatus {
	c.t.Helper()
	name := c.workerOf(s)
	c.WaitView(name+" sleeps", func(v client.View) bool {
		st := v.Status[name]
		return st.State == cluster.StateSleeping && st.Sleep == level && st.InstanceID != before && v.Assignments[name].Asleep == level
	})
	return c.Watch.View().Status[name]
}

// Servers sleep and wake as ordered, keep sleeping while their node restarts, and get no requests
// meanwhile. One that somebody else puts to sleep gets none either.
func TestServersSleep(t *testing.T) {
	t.Setenv("VLLM_SERVER_DEV_MODE", "1")
	c := Start(t, Options{Model: builtinFolder(t), LeaseTTL: 3 * time.Second, Nodes: []Node{{}, {Process: true}}})
	fabric := externaltest.NewFabric()
	a := attachSimulator(t, c, cluster.RoleDecode, "--enable-sleep-mode")
	double, b := attachedDouble(t, c, externaltest.Options{Backend: cluster.BackendSGLang, Role: cluster.RoleDecode, Connector: "none", Fabric: fabric, NoBackup: true})
	for _, s := range []*simulator{a, b} {
		s.spec.Node = c.Nodes[1].Name
	}
	c.attach(a, b)
	c.WaitReady(0, 2)
	ask := func() {
		t.Helper()
		for range 4 {
			if _, err := c.Complete(t.Context(), Body{"prompt": "words", "max_tokens": 4}); err != nil {
				t.Fatal(err)
			}
		}
	}
	requests := func(s *simulator) uint64 { return c.Watch.View().Status[c.workerOf(s)].Stats.RequestsTotal }
	ask()

	c.Insist(func(ctx context.Context) error { return c.Client.Sleep(ctx, c.workerOf(a), 1, time.Time{}) })
	c.sleeps(a, 1, 0)
	before := requests(a)
	ask()
	if n := requests(a); n != before {
		t.Errorf("the server that sleeps got %d requests", n-before)
	}
	c.Insist(func(ctx context.Context) error { return c.Client.Sleep(ctx, c.workerOf(b), 2, time.Time{}) })
	ids := map[*simulator]cluster.InstanceID{a: c.sleeps(a, 1, 0).InstanceID, b: c.sleeps(b, 2, 0).InstanceID}
	for _, late := range []bool{false, true} {
		c.Nodes[1].Kill()
		if late {
			c.WaitView("the lease of the node has ended", func(v client.View) bool {
				return v.Assignments[c.workerOf(a)].Node == "" && v.Assignments[c.workerOf(b)].Node == ""
			})
		}
		c.Nodes[1].Restart()
		for s, level := range map[*simulator]int{a: 1, b: 2} {
			ids[s] = c.sleeps(s, level, ids[s]).InstanceID
		}
	}
	if !double.Asleep() {
		t.Error("the server woke with its node")
	}
	for _, s := range []*simulator{a, b} {
		c.Insist(func(ctx context.Context) error { return c.Client.Wake(ctx, c.workerOf(s)) })
		c.serves(s, true)
	}
	ask()
	if wrong := fabric.Wrong(); len(wrong) > 0 {
		t.Error(wrong)
	}

	resp, err := http.Post(a.URL+"/sleep?level=1", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	c.serves(a, false)
	ask()
	c.WaitView("nobody says at which level it sleeps", func(v client.View) bool {
		st := v.Status[c.workerOf(a)]
		return st.State == cluster.StateSleeping && st.Sleep == 0
	})
}
