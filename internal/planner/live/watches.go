package live

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/store"
)

// watches follow what the store says of nodes and workers.
type watches struct {
	cfg         Config
	nodes       *store.Prefix[cluster.Node]
	assignments *store.Prefix[cluster.Assignment]
	status      *store.Prefix[cluster.WorkerStatus]
	declared    *store.Prefix[Declared]
	local       *store.Prefix[store.Revision]
	virtual     *store.Prefix[number]
	cordons     *store.Prefix[cluster.Cordon]
	measured    *store.Prefix[profile.Taught]
}

func watch(ctx context.Context, cfg Config) (w watches, err error) {
	w.cfg = cfg
	if w.nodes, err = store.WatchPrefix(ctx, cfg.Store, cluster.NodePrefix, store.DecodeJSON[cluster.Node], cfg.Log); err != nil {
		return w, err
	}
	if w.assignments, err = store.WatchPrefix(ctx, cfg.Store, cluster.AssignmentPrefix(cfg.Namespace), store.DecodeJSON[cluster.Assignment], cfg.Log); err != nil {
		return w, err
	}
	if w.status, err = store.WatchPrefix(ctx, cfg.Store, cluster.StatusPrefix(cfg.Namespace), store.DecodeJSON[cluster.WorkerStatus], cfg.Log); err != nil {
		return w, err
	}
	if w.declared, err = store.WatchPrefix(ctx, cfg.Store, cluster.TopologyKey(cfg.Namespace), decodeDeclared, cfg.Log); err != nil {
		return w, err
	}
	if w.local, err = store.WatchPrefix(ctx, cfg.Store, cluster.SettingKey(cfg.Namespace, settingMaxLocal), decodeRevision, cfg.Log); err != nil {
		return w, err
	}
	if w.virtual, err = store.WatchPrefix(ctx, cfg.Store, cluster.VirtualPlannerPrefix(cfg.Namespace), decodeNumber, cfg.Log); err != nil {
		return w, err
	}
	if w.cordons, err = store.WatchPrefix(ctx, cfg.Store, cluster.CordonPrefix(cfg.Namespace), store.DecodeJSON[cluster.Cordon], cfg.Log); err != nil {
		return w, err
	}
	w.measured, err = store.WatchPrefix(ctx, cfg.Store, cluster.MeasuredPrefix(cfg.Namespace), decodeMeasured, cfg.Log)
	return w, err
}

func decodeMeasured(kv store.KV) (profile.Taught, error) { return profile.DecodeTaught(kv.Value) }

func decodeRevision(kv store.KV) (store.Revision, error) { return kv.ModRevision, nil }

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
	if w.declared != nil {
		w.declared.Close()
	}
	if w.local != nil {
		w.local.Close()
	}
	if w.virtual != nil {
		w.virtual.Close()
	}
	if w.cordons != nil {
		w.cordons.Close()
	}
	if w.measured != nil {
		w.measured.Close()
	}
}

// view returns what the store says now, by names.
func (w watches) view() View {
	v := View{
		Assignments: byName(w.assignments.Snapshot(), cluster.AssignmentPrefix(w.cfg.Namespace)),
		Status:      byName(w.status.Snapshot(), cluster.StatusPrefix(w.cfg.Namespace)),
		Nodes:       byName(w.nodes.Snapshot(), cluster.NodePrefix),
		Virtual:     byName(w.virtual.Snapshot(), cluster.VirtualPlannerPrefix(w.cfg.Namespace)),
		Cordons:     byName(w.cordons.Snapshot(), cluster.CordonPrefix(w.cfg.Namespace)),
		Measured:    byName(w.measured.Snapshot(), cluster.MeasuredPrefix(w.cfg.Namespace)),
	}
	if d, ever := w.declared.Get(cluster.TopologyKey(w.cfg.Namespace)); ever {
		v.Declared = &d
	}
	v.MaxLocalRevision, _ = w.local.Get(cluster.SettingKey(w.cfg.Namespace, settingMaxLocal)) // 0 if it is not set
	for id, n := range v.Nodes {
		if !n.In(w.cfg.Namespace) {
			delete(v.Nodes, id)
		}
	}
	for _, stale := range []func() (time.Time, error, time.Time){w.nodes.Stale, w.assignments.Stale, w.status.Stale, w.declared.Stale, w.local.Stale, w.virtual.Stale, w.cordons.Stale, w.measured.Stale} {
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
