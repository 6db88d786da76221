package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

const (
	// cleanEvery is the interval at which the leader looks for keys without an owner.
	cleanEvery = 30 * time.Second
	// strayFor is the time a key must have been without an owner before it is deleted. An
	// owner may be about to appear.
	strayFor = time.Minute
)

// strays holds the keys without an owner, and since when.
type strays struct {
	last  time.Time
	since map[string]time.Time
}

func newStrays() *strays { return &strays{since: map[string]time.Time{}} }

// clean deletes keys that have been without an owner for a while: statuses without an
// assignment, keys that lack the lease that they should have, and assignments of
// namespaces without a topology and without nodes. No other part of the system would
// delete them. It does nothing between intervals.
func (c *Controller) clean(ctx context.Context, w watches, s *strays) error {
	now := time.Now()
	if since, _ := w.stale(); !since.IsZero() || now.Sub(s.last) < cleanEvery {
		return nil
	}
	s.last = now
	found, err := c.strays(ctx, w)
	if err != nil {
		return err
	}
	for key := range s.since {
		if _, still := found[key]; !still {
			delete(s.since, key)
		}
	}
	for key, f := range found {
		if _, known := s.since[key]; !known {
			s.since[key] = now
		}
		if now.Sub(s.since[key]) < strayFor {
			continue
		}
		if err := c.cfg.Store.Delete(ctx, key); err != nil {
			return fmt.Errorf("delete %s: %w", key, err)
		}
		delete(s.since, key)
		c.log.Warn("deleted a key without an owner", "key", key, "why", f.why)
		c.notify(cluster.TopologyEvent{Worker: f.worker, Action: cluster.ActionClean, Reason: f.why, Message: "deleted " + key + ": " + f.why})
	}
	return nil
}

// stray is the reason why a key has no owner.
type stray struct{ worker, why string }

func (c *Controller) strays(ctx context.Context, w watches) (map[string]stray, error) {
	found := map[string]stray{}
	ns := c.cfg.Namespace
	for _, st := range w.status.Snapshot() {
		if _, ok := w.assignments.Get(cluster.AssignmentKey(ns, st.Name)); !ok && st.Name != "" {
			found[cluster.StatusKey(ns, st.Name)] = stray{st.Name, "the status of a worker that is not assigned"}
		}
	}
	for _, prefix := range []string{cluster.InstancePrefix(ns, "", ""), cluster.CardPrefix(ns), cluster.StatusPrefix(ns), cluster.NIXLMetadataPrefix(ns)} {
		kvs, _, err := c.cfg.Store.List(ctx, prefix)
		if err != nil {
			return nil, fmt.Errorf("list %s: %w", prefix, err)
		}
		for _, kv := range kvs {
			if kv.Lease == 0 {
				found[kv.Key] = stray{why: "it has no lease, so no process owns it"}
			}
		}
	}
	return found, c.abandoned(ctx, w, found)
}

// abandoned finds the assignments of other namespaces that have neither a topology nor a
// node that takes their workers.
func (c *Controller) abandoned(ctx context.Context, w watches, found map[string]stray) error {
	const root, workers = "/dynctl/", "/workers/"
	kvs, _, err := c.cfg.Store.List(ctx, root)
	if err != nil {
		return fmt.Errorf("list %s: %w", root, err)
	}
	declared := map[string]bool{c.cfg.Namespace: true}
	for _, kv := range kvs {
		if ns, ok := strings.CutSuffix(strings.TrimPrefix(kv.Key, root), "/topology"); ok {
			declared[ns] = true
		}
	}
	nodes := w.nodes.Snapshot()
	for _, kv := range kvs {
		ns, name, ok := strings.Cut(strings.TrimPrefix(kv.Key, root), workers)
		if !ok || declared[ns] || cluster.AssignmentKey(ns, name) != kv.Key || cluster.ValidateNamespace(ns) != nil {
			continue
		}
		inUse := false
		for _, n := range nodes {
			inUse = inUse || n.In(ns)
		}
		var a cluster.Assignment
		if !inUse && json.Unmarshal(kv.Value, &a) == nil && a.Name == name {
			found[kv.Key] = stray{why: "the namespace " + ns + " has neither a topology nor a node"}
		}
	}
	return nil
}
