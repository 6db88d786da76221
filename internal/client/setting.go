package client

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

// PutSetting changes one run-time setting of the cluster, for example
// "disagg.max_local_prefill_tokens". Workers and frontends apply it at once.
func (c *Cluster) PutSetting(ctx context.Context, name string, value any) error {
	if _, err := store.PutJSON(ctx, c.store, cluster.SettingKey(c.Namespace, name), value); err != nil {
		return fmt.Errorf("set %s: %w", name, err)
	}
	return c.deleteFormer(ctx, name)
}

// DeleteSetting removes a run-time setting. Each node then uses its own configuration
// again.
func (c *Cluster) DeleteSetting(ctx context.Context, name string) error {
	if err := c.store.Delete(ctx, cluster.SettingKey(c.Namespace, name)); err != nil {
		return fmt.Errorf("unset %s: %w", name, err)
	}
	return c.deleteFormer(ctx, name)
}

// deleteFormer removes a setting stored under the names of earlier releases.
func (c *Cluster) deleteFormer(ctx context.Context, name string) error {
	key, err := config.RuntimeKey(name)
	if err != nil {
		return nil // this release does not know it: a newer one may
	}
	for _, former := range key.Former {
		if err := c.store.Delete(ctx, cluster.SettingKey(c.Namespace, former)); err != nil {
			return fmt.Errorf("delete %s, which is called %s now: %w", former, name, err)
		}
	}
	return nil
}

// Settings returns the run-time settings that are set, as JSON, by their current names.
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
	return config.CurrentSettings(out), nil
}
