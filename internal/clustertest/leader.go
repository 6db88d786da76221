package clustertest

import (
	"context"
	"errors"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Lead has the controller of node i lead, by deposing others, and waits until it does.
func (c *Cluster) Lead(i int) {
	c.t.Helper()
	s, err := store.NewEtcd(store.EtcdConfig{Endpoints: []string{c.EtcdAddr}}, c.log)
	if err != nil {
		c.t.Fatal(err)
	}
	defer s.Close()
	ctx, cancel := context.WithTimeout(c.t.Context(), c.opts.Timeout)
	defer cancel()
	prefix := cluster.ElectionPrefix(cluster.DefaultNamespace)
	for ; ; time.Sleep(20 * time.Millisecond) {
		leader, err := store.Leader(ctx, s, prefix)
		switch {
		case err == nil && leader == c.Nodes[i].Name:
			return
		case ctx.Err() != nil:
			c.t.Fatalf("%s never leads: %q does, %v", c.Nodes[i].Name, leader, err)
		case err != nil && !errors.Is(err, store.ErrNotFound):
			c.t.Fatal(err)
		}
		candidates, _, err := s.List(ctx, prefix+"/")
		if err != nil {
			c.t.Fatal(err)
		}
		for _, kv := range candidates {
			if string(kv.Value) == leader && len(candidates) > 1 {
				if err := s.Delete(ctx, kv.Key); err != nil {
					c.t.Fatal(err)
				}
			}
		}
	}
}
