package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// watches follow what the store says of nodes and workers.
type watches struct {
	cfg         Config
	nodes       *store.Prefix[cluster.Node]
	assignments *store.Prefix[cluster.Assignment]
	status      *store.Prefix[cluster.WorkerStatus]
}

func watch(ctx context.Context, cfg Config) (w watches, err error) {
	w.cfg = cfg
	if w.nodes, err = store.WatchPrefix(ctx, cfg.Store, cluster.NodePrefix, store.DecodeJSON[cluster.Node], cfg.Log); err != nil {
		return w, err
	}
	if w.assignments, err = store.WatchPrefix(ctx, cfg.Store, cluster.AssignmentPrefix(cfg.Namespace), store.DecodeJSON[cluster.Assignment], cfg.Log); err != nil {
		return w, err
	}
	w.status, err = store.WatchPrefix(ctx, cfg.Store, cluster.StatusPrefix(cfg.Namespace), store.DecodeJSON[cluster.WorkerStatus], cfg.Log)
	return w, err
}

func (w watches) close() {
	if w.nodes != nil {
		w.nodes.Close()
	}
	if w.assignments != nil {
		w.assignments.Close()
	}
	if w.status != nil {
		w.status.Close()
	}
}

// view returns what the store says now, by names.
func (w watches) view() View {
	v := View{
		Assignments: byName(w.assignments.Snapshot(), cluster.AssignmentPrefix(w.cfg.Namespace)),
		Status:      byName(w.status.Snapshot(), cluster.StatusPrefix(w.cfg.Namespace)),
		Nodes:       byName(w.nodes.Snapshot(), cluster.NodePrefix),
	}
	for id, n := range v.Nodes {
		if !n.In(w.cfg.Namespace) {
			delete(v.Nodes, id)
		}
	}
	for _, stale := range []func() (time.Time, error, time.Time){w.nodes.Stale, w.assignments.Stale, w.status.Stale} {
		if since, err, _ := stale(); !since.IsZero() {
			v.Stale = fmt.Sprintf("the store has not answered since %s: %v", since.Format(time.TimeOnly), err)
		}
	}
	return v
}

func byName[T any](in map[string]T, prefix string) map[string]T {
	out := make(map[string]T, len(in))
	for key, v := range in {
		out[strings.TrimPrefix(key, prefix)] = v
	}
	return out
}
