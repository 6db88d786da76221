package client

import (
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestNamespaces(t *testing.T) {
	c, ctx := lab(t), t.Context()
	other := c.Namespace + ".other"
	put(t, c, cluster.TopologyKey(c.Namespace), cluster.Topology{Model: tiny, Decode: 2, Generation: 3}, 0)
	for _, name := range []string{"worker-1", "worker-2"} {
		put(t, c, cluster.AssignmentKey(c.Namespace, name), cluster.Assignment{Name: name}, 0)
	}
	put(t, c, cluster.StatusKey(c.Namespace, "worker-1"), cluster.WorkerStatus{State: cluster.StateReady}, 0)
	put(t, c, cluster.StatusKey(c.Namespace, "worker-2"), cluster.WorkerStatus{State: cluster.StateLoading}, 0)
	put(t, c, cluster.NodeKey(c.Namespace+"-1"), cluster.Node{Name: "node-1", Namespace: c.Namespace, FrontendURL: "http://x"}, 0)
	put(t, c, cluster.NodeKey(c.Namespace+"-2"), cluster.Node{Name: "other-node-1", Namespace: other}, 0)
	put(t, c, cluster.TopologyKey(c.Namespace+".broken"), "no topology", 0)
	all, err := c.Namespaces(ctx)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]Namespace{}
	for i, n := range all {
		found[n.Name] = n
		if i > 0 && all[i-1].Name >= n.Name {
			t.Errorf("%s stands before %s", all[i-1].Name, n.Name)
		}
	}
	if n := found[c.Namespace]; n.Topology == nil || n.Topology.Decode != 2 || n.Workers != 2 || n.Ready != 1 || len(n.Nodes) != 1 || n.Nodes[0] != "node-1" || len(n.Frontends) != 1 {
		t.Errorf("%+v", n)
	}
	if n, ok := found[other]; !ok || n.Topology != nil || n.Workers != 0 || len(n.Nodes) != 1 || n.Nodes[0] != "other-node-1" {
		t.Errorf("%+v", n)
	}
	if _, ok := found[c.Namespace+".broken"]; ok {
		t.Error("what cannot be read is a namespace")
	}
}
