package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/config"
	"github.com/dynctl/dynctl/internal/store"
)

// Declare changes the desired state by compare-and-swap and returns the new one. change
// gets the present state and may return an error to refuse. It may run again after a
// concurrent change. Nothing is written when nothing changes.
func (c *Cluster) Declare(ctx context.Context, change func(t *cluster.Topology, exists bool) error) (cluster.Topology, error) {
	r, err := c.Apply(ctx, func(r *cluster.Revision, exists bool) error { return change(&r.Topology, exists) })
	return r.Topology, err
}

// Apply works like [Cluster.Declare], for the topology together with the settings that
// change at run time. It first saves the previous revision in the history. It writes the
// settings after the topology; if that fails, applying the same revision again completes
// it. What [cluster.Topology.Validate] and [Cluster.CheckSight] refuse is not written.
func (c *Cluster) Apply(ctx context.Context, change func(r *cluster.Revision, exists bool) error) (cluster.Revision, error) {
	var before, after cluster.Revision
	_, _, err := store.UpdateJSON(ctx, c.store, cluster.TopologyKey(c.Namespace), func(now cluster.Topology, exists bool) (cluster.Topology, error) {
		settings, err := c.Settings(ctx)
		if err != nil {
			return now, err
		}
		before = cluster.Revision{Topology: now, Settings: settings}
		after = cluster.Revision{Topology: now, Settings: maps.Clone(settings)}
		after.Topology.Reason = "" // change may set a new one; the old one is not about this change
		if err := change(&after, exists); err != nil {
			return now, err
		}
		reason := after.Topology.Reason
		after.Topology.Reason = now.Reason
		if exists && after.Topology.Equal(now) && maps.EqualFunc(after.Settings, settings, sameJSON) {
			return now, errUnchanged
		}
		next := &after.Topology
		if err := next.Validate(); err != nil {
			return now, err
		}
		if err := c.CheckSight(ctx, now, *next); err != nil {
			return now, err
		}
		if exists {
			if err := c.remember(ctx, before); err != nil {
				return now, err
			}
		}
		next.Generation, next.Reason = now.Generation+1, reason
		next.UpdatedAt, next.UpdatedBy = time.Now(), whoAmI()
		return *next, nil
	})
	if errors.Is(err, errUnchanged) {
		return before, nil
	}
	if err != nil {
		return cluster.Revision{}, err
	}
	return after, c.writeSettings(ctx, before.Settings, after.Settings)
}

func sameJSON(a, b json.RawMessage) bool { return bytes.Equal(a, b) }

// writeSettings stores the settings that differ.
func (c *Cluster) writeSettings(ctx context.Context, before, after map[string]json.RawMessage) error {
	before, after = config.CurrentSettings(before), config.CurrentSettings(after)
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if old, ok := before[name]; ok && sameJSON(old, after[name]) {
			continue
		}
		if err := c.PutSetting(ctx, name, after[name]); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if _, ok := after[name]; ok {
			continue
		}
		if err := c.DeleteSetting(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// historyLength is the number of past generations that are kept.
const historyLength = 20

// remember saves a revision in the history before it is replaced. A generation that is
// already in the history is not overwritten.
func (c *Cluster) remember(ctx context.Context, r cluster.Revision) error {
	body, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encode generation %d: %w", r.Topology.Generation, err)
	}
	_, err = c.store.Create(ctx, cluster.HistoryKey(c.Namespace, r.Topology.Generation), body)
	if err != nil && !errors.Is(err, store.ErrExists) {
		return fmt.Errorf("keep generation %d of the topology: %w", r.Topology.Generation, err)
	}
	kvs, _, err := c.store.List(ctx, cluster.HistoryPrefix(c.Namespace))
	if err != nil {
		return fmt.Errorf("list past topologies: %w", err)
	}
	for ; len(kvs) > historyLength; kvs = kvs[1:] {
		if err := c.store.Delete(ctx, kvs[0].Key); err != nil {
			return fmt.Errorf("forget an old topology: %w", err)
		}
	}
	return nil
}

// Revision returns the declared topology and settings. The topology is nil if none was
// ever declared.
func (c *Cluster) Revision(ctx context.Context) (t *cluster.Topology, settings map[string]json.RawMessage, err error) {
	if t, err = c.Topology(ctx); err != nil {
		return nil, nil, err
	}
	settings, err = c.Settings(ctx)
	return t, settings, err
}

// History returns the past generations that are kept, newest first. Their settings are
// those in force when the generation was replaced.
func (c *Cluster) History(ctx context.Context) ([]cluster.Revision, error) {
	kvs, _, err := c.store.List(ctx, cluster.HistoryPrefix(c.Namespace))
	if err != nil {
		return nil, fmt.Errorf("list past topologies: %w", err)
	}
	out := []cluster.Revision{}
	for _, kv := range slices.Backward(kvs) {
		r, err := store.DecodeJSON[cluster.Revision](kv)
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}
