package live

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kube"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/store"
)

// claimPods claims the objects that have the pods of the workers, once.
func (a *actor) claimPods(ctx context.Context, t Targets) (err error) {
	if a.pods != nil && a.targets == t {
		return nil
	}
	if a.client == nil {
		if a.client, err = a.cfg.Kubernetes(); err != nil {
			return err
		}
	}
	a.targets = t
	a.pods, err = claimPods(ctx, a.cfg, a.client, t, a.leads)
	return err
}

// close lets go of connections.
func (a *actor) close() {
	if a.client != nil {
		a.client.HTTP.CloseIdleConnections()
	}
}

// look adds what is known of the pods to the observation of the pool that changed last: the objects are of all pools.
func (a *actor) look(ctx context.Context, now time.Time, v View, p *pool) {
	if a.pods == nil {
		return
	}
	a.pods.look(ctx, now)
	if a.pods.unread == "" && v.Declared != nil {
		pending, waits := a.pods.pending(now, started(v.Declared.whole))
		p.seen.Pending, p.seen.Waits = append(p.seen.Pending, pending...), waits
	}
}

// follow has Kubernetes run the pods of the workers that are declared, whoever declared them.
func (a *actor) follow(ctx context.Context, now time.Time, v View, cfg planner.Config) {
	p := a.pods
	if p == nil {
		return
	}
	p.waits = ""
	switch {
	case a.claimed != ConnectorKubernetes, v.Declared == nil, v.Declared.Revision < a.fence:
		return
	case v.Stale != "", p.unread != "", time.Since(now) > cfg.StaleAfter, p.left(now, cfg.CoolDown) > 0:
		return
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	plan := started(v.Declared.whole)
	err := a.cordon(ctx, v, p.objects, plan)
	if err == nil {
		err = p.follow(ctx, v, plan, cfg.Devices)
	}
	if err != nil && !kube.IsConflict(err) && ctx.Err() == nil { // an object that changed is read again before the next try
		a.cfg.Log.Warn("the planner could not scale the pods, will try again", "error", err)
	}
}

// release lets go of the objects where something else carries decisions out, and of the nodes that would have gone.
func (a *actor) release(ctx context.Context, v View) {
	if a.pods != nil {
		a.claimed, a.pods = "", nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeWithin)
	defer cancel()
	if err := a.cordon(ctx, v, nil, planner.Plan{}); err != nil && ctx.Err() == nil {
		a.cfg.Log.Warn("nodes that the planner drained stay so, will try again", "error", err)
	}
}

// cordon has the nodes in pods that go with a plan take no workers, so that those on them move before, and
// takes back what planners ordered so and is not needed. Nobody else's orders are touched.
func (a *actor) cordon(ctx context.Context, v View, objects []*scaled, plan planner.Plan) error {
	goes := func(n cluster.Node) bool {
		return slices.ContainsFunc(objects, func(o *scaled) bool { return o.goes(n, o.wants(plan)) })
	}
	var writes []func() error
	for _, id := range sortedNames(v.Nodes) {
		if _, ever := v.Cordons[id]; !ever && goes(v.Nodes[id]) {
			writes = append(writes, func() error {
				body, err := json.Marshal(cluster.Cordon{Node: id, At: time.Now(), By: byPlanner + a.cfg.Node})
				if err != nil {
					return err
				}
				if _, err = a.cfg.Store.Create(ctx, cluster.CordonKey(a.cfg.Namespace, id), body); errors.Is(err, store.ErrExists) {
					return nil
				}
				return err
			})
		}
	}
	for _, id := range sortedNames(v.Cordons) {
		if n, there := v.Nodes[id]; strings.HasPrefix(v.Cordons[id].By, byPlanner) && (!there || !goes(n)) {
			writes = append(writes, func() error {
				now, _, err := store.GetJSON[cluster.Cordon](ctx, a.cfg.Store, cluster.CordonKey(a.cfg.Namespace, id))
				if err == nil && strings.HasPrefix(now.By, byPlanner) {
					err = a.cfg.Store.Delete(ctx, cluster.CordonKey(a.cfg.Namespace, id))
				}
				if errors.Is(err, store.ErrNotFound) {
					return nil
				}
				return err
			})
		}
	}
	if len(writes) == 0 {
		return nil
	}
	err := a.leads(ctx)
	for _, write := range writes {
		if err == nil {
			err = write()
		}
	}
	return err
}
