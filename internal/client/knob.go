package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// SetKnob changes one run-time setting of the cluster, for example
// "disagg.max_local_prefill_tokens"; workers and frontends take it up at once.
func (c *Cluster) SetKnob(ctx context.Context, name string, value any) error {
	if _, err := store.PutJSON(ctx, c.store, cluster.KnobKey(c.Namespace, name), value); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// UnsetKnob removes a run-time setting: each node's own configuration counts again.
func (c *Cluster) UnsetKnob(ctx context.Context, name string) error {
	if err := c.store.Delete(ctx, cluster.KnobKey(c.Namespace, name)); err != nil {
		return fmt.Errorf("unset %s: %w", name, err)
	}
	return nil
}

// Knobs returns the run-time settings that are set, by name, as they are stored.
func (c *Cluster) Knobs(ctx context.Context) (map[string]json.RawMessage, error) {
	prefix := cluster.KnobPrefix(c.Namespace)
	kvs, _, err := c.store.List(ctx, prefix)
	if err != nil {
		return nil, fmt.Errorf("list run-time settings: %w", err)
	}
	out := map[string]json.RawMessage{}
	for _, kv := range kvs {
		out[strings.TrimPrefix(kv.Key, prefix)] = json.RawMessage(kv.Value)
	}
	return out, nil
}
