package client

import (
	"context"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

func decodeInstance(kv store.KV) (cluster.Instance, error) {
	return cluster.ReadInstance(kv.Key, kv.Value)
}

// followInstances follows the instances that were asked for, in all layouts.
func (w *Watch) followInstances(ctx context.Context, c *Cluster) error {
	for i, prefix := range w.of.Prefixes() {
		p, err := followAs(ctx, w, c, prefix, decodeInstance)
		switch {
		case err == nil:
			w.instances = append(w.instances, p)
		case i == 0 || ctx.Err() != nil:
			return err
		default: // a login may be limited to the keys that are in use
			c.log.Debug("instances of other releases are not shown", "error", err)
		}
	}
	return nil
}

// registered returns the instances that were asked for. One that is registered in several
// layouts comes once.
func (w *Watch) registered() []cluster.Instance {
	all := slices.Collect(maps.Values(w.instances[0].Snapshot()))
	known := map[string]bool{}
	for _, p := range w.instances[1:] {
		found := p.Snapshot()
		if len(found) > 0 && len(known) == 0 {
			for _, i := range all {
				known[i.Key()] = true
			}
		}
		for _, i := range found {
			if w.of.Matches(i) && !known[i.Key()] {
				known[i.Key()] = true
				all = append(all, i)
			}
		}
	}
	return all
}

// Serves returns the full names of the endpoints that are registered under a lease, sorted.
func (v View) Serves(id cluster.InstanceID) []string {
	var names []string
	for _, i := range v.Instances {
		if i.InstanceID == id {
			names = append(names, i.Of().String())
		}
	}
	slices.Sort(names)
	return names
}
