package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// PutSetting changes one run-time setting of the cluster, for example
// "disagg.max_local_prefill_tokens"; workers and frontends take it up at once.
func (c *Cluster) PutSetting(ctx context.Context, name string, value any) error {
	if _, err := store.PutJSON(ctx, c.store, cluster.SettingKey(c.Namespace, name), value); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return nil
}

// DeleteSetting removes a run-time setting: each node's own configuration counts again.
func (c *Cluster) DeleteSetting(ctx context.Context, name string) error {
	if err := c.store.Delete(ctx, cluster.SettingKey(c.Namespace, name)); err != nil {
		return fmt.Errorf("unset %s: %w", name, err)
	}
	return nil
}

// Settings returns the run-time settings that are set, by name, as they are stored.
func (c *Cluster) Settings(ctx context.Context) (map[string]json.RawMessage, error) {
	prefix := cluster.SettingPrefix(c.Namespace)
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
