package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Namespace is one of the deployments that share the cluster's stores.
type Namespace struct {
	Name      string            `json:"name"`
	Topology  *cluster.Topology `json:"topology"` // null when nothing was ever declared
	Workers   int               `json:"workers"`  // all workers, in whatever state
	Ready     int               `json:"ready"`    // those that are ready
	Nodes     []string          `json:"nodes"`    // names of the nodes that take its workers
	Frontends []string          `json:"frontends"`
}

// Namespaces returns the namespaces that have a topology, workers or nodes, sorted by
// name. Entries that cannot be decoded are ignored.
func (c *Cluster) Namespaces(ctx context.Context) ([]Namespace, error) {
	kvs, _, err := c.store.List(ctx, cluster.ControlPrefix)
	if err != nil {
		return nil, fmt.Errorf("list namespaces: %w", err)
	}
	found := map[string]*Namespace{}
	of := func(name string) *Namespace {
		if found[name] == nil {
			found[name] = &Namespace{Name: name, Nodes: []string{}, Frontends: []string{}}
		}
		return found[name]
	}
	var nodes []cluster.Node
	for _, kv := range kvs {
		ns, rest, ok := cluster.SplitKey(kv.Key)
		switch {
		case strings.HasPrefix(kv.Key, cluster.NodePrefix):
			if n, err := store.DecodeJSON[cluster.Node](kv); err == nil {
				nodes = append(nodes, n)
			}
		case !ok:
		case rest == "topology":
			if t, err := store.DecodeJSON[cluster.Topology](kv); err == nil {
				of(ns).Topology = &t
			}
		case strings.HasPrefix(rest, "workers/"):
			of(ns).Workers++
		case strings.HasPrefix(rest, "status/"):
			if st, err := store.DecodeJSON[cluster.WorkerStatus](kv); err == nil && st.State.Serving() {
				of(ns).Ready++
			}
		}
	}
	for _, n := range nodes {
		if n.Namespace != "" {
			of(n.Namespace)
		}
	}
	out := []Namespace{}
	for _, ns := range found {
		for _, n := range nodes {
			if !n.In(ns.Name) {
				continue
			}
			ns.Nodes = append(ns.Nodes, n.Name)
			if n.FrontendURL != "" {
				ns.Frontends = append(ns.Frontends, n.FrontendURL)
			}
		}
		slices.SortFunc(ns.Nodes, compareNodes)
		slices.Sort(ns.Frontends)
		out = append(out, *ns)
	}
	slices.SortFunc(out, func(a, b Namespace) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}
