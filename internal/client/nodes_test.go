package client

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/requestplane"
)

// withGPU adds a node with a GPU whose present use is told by h.
func withGPU(t *testing.T, c *Cluster, node string, h requestplane.Handler) {
	t.Helper()
	lease := grant(t, c, time.Minute)
	put(t, c, cluster.NodeKey(node), cluster.Node{ID: node, Name: node, Namespace: c.Namespace, GPU: &cluster.GPUReport{Driver: "580.65.06", GPUs: []cluster.GPU{{Name: "H200"}}}}, lease)
	plane(t, c, cluster.ComponentAgent, cluster.EndpointNodeStats, node, "", lease, h)
}

func stats(node string, use float64) cluster.NodeStats {
	return cluster.NodeStats{NodeID: node, GPU: cluster.GPUReport{At: time.Now(), GPUs: []cluster.GPU{{Name: "H200", Utilization: &use}}}}
}

func use(s []cluster.Node, id string) *float64 {
	for _, n := range s {
		if n.ID == id && n.GPU != nil {
			return n.GPU.GPUs[0].Utilization
		}
	}
	return nil
}

func TestNodesAreAskedThemselves(t *testing.T) {
	c := lab(t)
	withGPU(t, c, "n1", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		return send(stats("n1", 0.5))
	})
	withGPU(t, c, "n2", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		return send(stats("n9", 0.5))
	}) // another one by now
	withGPU(t, c, "n3", func(ctx context.Context, _ *requestplane.Request, _ func(any) error) error { // frozen
		<-ctx.Done()
		return ctx.Err()
	})
	v := view(t, c)
	nodes := c.Nodes(t.Context(), v)
	if len(nodes) != 3 {
		t.Fatalf("%d nodes", len(nodes))
	}
	if u := use(nodes, "n1"); u == nil || *u != 0.5 {
		t.Errorf("the node that answers: %+v", nodes[0].GPU)
	}
	for _, id := range []string{"n2", "n3"} {
		if use(nodes, id) != nil {
			t.Errorf("%s has figures that it did not tell", id)
		}
	}
	for _, n := range append(nodes[1:], v.Nodes...) { // of the view, nothing has changed
		if n.GPU == nil || n.GPU.Driver != "580.65.06" || n.GPU.GPUs[0].Utilization != nil {
			t.Errorf("%s: %+v", n.ID, n.GPU)
		}
	}
}

// A live source takes figures from events, and asks nodes while there are none.
func TestFiguresOfGPUsAreLive(t *testing.T) {
	s := startServers(t)
	c := s.connect()
	var asked atomic.Int64
	withGPU(t, c, "n1", func(_ context.Context, _ *requestplane.Request, send func(any) error) error {
		asked.Add(1)
		return send(stats("n1", 0.25))
	})
	bus, err := c.Bus()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = bus.Close() })
	l := live(t, c, LiveOptions{})
	until(t, l, "the node is there", func(s cluster.Snapshot) bool { return s.Fresh.NATSOK && len(s.Nodes) == 1 })
	subject := events.Subject(c.Namespace, cluster.ComponentAgent, cluster.TopicNodeStats)
	until(t, l, "the figures of an event", func(s cluster.Snapshot) bool {
		if err := bus.Publish(t.Context(), subject, stats("n1", 0.75)); err != nil {
			t.Fatal(err)
		}
		u := use(s.Nodes, "n1")
		return u != nil && *u == 0.75
	})
	s.stopNATS()
	until(t, l, "the figures that the node tells", func(s cluster.Snapshot) bool {
		u := use(s.Nodes, "n1")
		return u != nil && *u == 0.25
	})
	if asked.Load() == 0 {
		t.Error("the node was not asked")
	}
}

// Figures that are too old are not shown as present ones.
func TestOldFiguresAreForgotten(t *testing.T) {
	now := time.Now()
	f := nodeFigures{"n1": {stats("n1", 0.5).GPU, now.Add(-cluster.SilentAfter - 1)}, "n2": {stats("n2", 0.5).GPU, now.Add(-cluster.SilentAfter)}}
	got := f.fresh(now)
	if _, ok := got["n2"]; !ok || len(got) != 1 || len(f) != 1 {
		t.Errorf("fresh() = %v of %v", got, f)
	}
}
