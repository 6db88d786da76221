package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Config configures a controller. All fields but Rollout and
// Notify are required.
type Config struct {
	Store     store.Store
	Namespace string
	// Node is the name with which this controller campaigns.
	Node string
	// Elect runs lead whenever this node is elected at prefix, until ctx ends. Callers
	// pass runtime.DistributedRuntime.Elect.
	Elect func(ctx context.Context, prefix, value string, lead func(context.Context) error) error
	// Rollout returns the present limits of rollouts; nil means the default ones.
	Rollout func() cluster.Rollout
	// Notify receives the controller's changes. It must not block, and may be nil.
	Notify func(cluster.TopologyEvent)
	Log    *slog.Logger
}

// Controller reconciles the assignments of one namespace while it leads.
type Controller struct {
	cfg   Config
	log   *slog.Logger
	plans atomic.Int64 // made so far
}

// New returns a controller.
func New(cfg Config) *Controller {
	return &Controller{cfg: cfg, log: cfg.Log}
}

// Run campaigns for leadership and reconciles while it leads, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	return c.cfg.Elect(ctx, cluster.ElectionPrefix(c.cfg.Namespace), c.cfg.Node, c.lead)
}

const (
	// resyncEvery is the longest time that a missed change can go unnoticed.
	resyncEvery = 5 * time.Second
	// settleFor collects the changes of a burst into one plan, for example when six
	// workers report ready. After a plan that took longer it is as long as that.
	settleFor = 5 * time.Millisecond
	// settleMax limits the time that a plan makes the next one wait.
	settleMax = 50 * time.Millisecond
	// seeWithin limits the wait for a watch that lags behind the store.
	seeWithin = 2 * time.Second
)

// versioned is an assignment with the revision it was read at.
type versioned struct {
	cluster.Assignment
	rev store.Revision
}

// watches holds the prefixes that a plan depends on.
type watches struct {
	topology    *store.Prefix[cluster.Topology]
	nodes       *store.Prefix[cluster.Node]
	assignments *store.Prefix[versioned]
	status      *store.Prefix[cluster.WorkerStatus]
	cordons     *store.Prefix[cluster.Cordon]
}

func (c *Controller) watch(ctx context.Context) (w watches, err error) {
	s, ns := c.cfg.Store, c.cfg.Namespace
	if w.topology, err = store.WatchPrefix(ctx, s, cluster.TopologyKey(ns), store.DecodeJSON[cluster.Topology], c.log); err != nil {
		return w, err
	}
	if w.nodes, err = store.WatchPrefix(ctx, s, cluster.NodePrefix, store.DecodeJSON[cluster.Node], c.log); err != nil {
		return w, err
	}
	if w.assignments, err = store.WatchPrefix(ctx, s, cluster.AssignmentPrefix(ns), decodeAssignment, c.log); err != nil {
		return w, err
	}
	if w.status, err = store.WatchPrefix(ctx, s, cluster.StatusPrefix(ns), store.DecodeJSON[cluster.WorkerStatus], c.log, store.Same(sameReport)); err != nil {
		return w, err
	}
	w.cordons, err = store.WatchPrefix(ctx, s, cluster.CordonPrefix(ns), store.DecodeJSON[cluster.Cordon], c.log)
	return w, err
}

func (w watches) close() {
	if w.topology != nil {
		w.topology.Close()
	}
	if w.nodes != nil {
		w.nodes.Close()
	}
	if w.assignments != nil {
		w.assignments.Close()
	}
	if w.status != nil {
		w.status.Close()
	}
	if w.cordons != nil {
		w.cordons.Close()
	}
}

// stale reports since when some part of the view is out of date; zero while all are
// current.
func (w watches) stale() (since time.Time, err error) {
	for _, stale := range []func() (time.Time, error, time.Time){w.topology.Stale, w.nodes.Stale, w.assignments.Stale, w.status.Stale, w.cordons.Stale} {
		if since, err, _ := stale(); !since.IsZero() {
			return since, err
		}
	}
	return time.Time{}, nil
}

// decodeAssignment rejects an assignment that is stored under another key than its own.
// The controller would write its changes to the other key, again and again.
func decodeAssignment(kv store.KV) (versioned, error) {
	a, err := store.DecodeJSON[cluster.Assignment](kv)
	if err == nil && !strings.HasSuffix(kv.Key, "/"+a.Name) {
		err = fmt.Errorf("decode %s: it is the assignment of %q", kv.Key, a.Name)
	}
	return versioned{a, kv.ModRevision}, err
}

// lead reconciles until ctx ends.
func (c *Controller) lead(ctx context.Context) error {
	c.log.Info("leading", "namespace", c.cfg.Namespace)
	defer c.log.Info("no longer leading")
	w, err := c.watch(ctx)
	defer w.close()
	if err != nil {
		return err
	}
	c.notify(cluster.TopologyEvent{Action: cluster.ActionLead, Reason: "elected", Message: c.cfg.Node + " leads the controllers"})
	tick := time.NewTicker(resyncEvery)
	defer tick.Stop()
	backoff, strays := newBackoff(), newStrays()
	for {
		began := time.Now()
		if err := c.reconcile(ctx, w, backoff); err != nil && ctx.Err() == nil {
			c.log.Warn("reconcile failed, will try again", "error", err)
		}
		if err := c.clean(ctx, w, strays); err != nil && ctx.Err() == nil {
			c.log.Warn("cannot delete keys without an owner, will try again", "error", err)
		}
		took := time.Since(began)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-w.topology.Changed():
		case <-w.nodes.Changed():
		case <-w.assignments.Changed():
		case <-w.status.Changed():
		case <-w.cordons.Changed():
		case <-tick.C:
		}
		settle := time.NewTimer(min(max(took, settleFor), settleMax))
		select {
		case <-settle.C:
		case <-ctx.Done():
			settle.Stop()
		}
	}
}

// reconcile plans once, from the current state of the watches. While the store is
// unreachable it does nothing, because an outdated view must not move workers.
func (c *Controller) reconcile(ctx context.Context, w watches, backoff *backoff) error {
	if since, err := w.stale(); !since.IsZero() {
		return fmt.Errorf("the view of the cluster is stale since %s: %w", since.Format(time.TimeOnly), err)
	}
	seen, cancel := context.WithTimeout(ctx, seeWithin)
	defer cancel()
	if rev := w.topology.Revision(); rev != backoff.declared {
		// A topology must be placed on all nodes that existed when it was declared.
		if _, err := w.nodes.CatchUp(seen); err != nil {
			return err
		}
		backoff.declared = rev
		declared, ever := w.topology.Get(cluster.TopologyKey(c.cfg.Namespace))
		if err := declared.Validate(); ever && err != nil {
			c.log.Error("the declared topology is invalid, workers stay as they are", "error", err, "by", declared.UpdatedBy)
			c.notify(cluster.TopologyEvent{Action: cluster.ActionRefuse, Reason: err.Error(), Message: "the declared topology is invalid, workers stay as they are: " + err.Error()})
		}
	}
	view, revs := c.view(w, backoff)
	changes := Plan(view)
	if slices.ContainsFunc(changes, Change.stops) {
		// The worker may serve already, although its status is not in this view yet.
		behind, err := w.status.CatchUp(seen)
		if err != nil {
			return err
		}
		if behind {
			view, revs = c.view(w, backoff)
			changes = Plan(view)
		}
	}
	c.plans.Add(1)
	// One after the other: a second leader, after a pause of its process, sees the
	// beginning of this plan and makes the same rest of it.
	var errs error
	for _, ch := range changes {
		err := c.apply(ctx, ch, revs[ch.Assignment.Name])
		switch {
		case err == nil:
			c.log.Info("assignment changed", "worker", ch.Assignment.Name, "why", ch.Why)
			c.notify(cluster.TopologyEvent{
				Worker: ch.Assignment.Name, Action: ch.Action, Reason: ch.Why,
				Message: ch.Assignment.Name + " " + string(ch.Assignment.Role) + ": " + ch.Why,
			})
		case errors.Is(err, store.ErrConflict):
			// Another client, for example a drain, wrote the assignment. The watch will
			// deliver it.
		default:
			errs = errors.Join(errs, fmt.Errorf("write assignment of %s: %w", ch.Assignment.Name, err))
		}
	}
	return errs
}

// view returns the current state of the watches, and the revisions of the assignments.
func (c *Controller) view(w watches, backoff *backoff) (View, map[string]store.Revision) {
	v := View{Status: map[string]cluster.WorkerStatus{}, Cordons: map[string]cluster.Cordon{}}
	if declared, ever := w.topology.Get(cluster.TopologyKey(c.cfg.Namespace)); ever {
		v.Topology = &declared
	}
	for _, n := range w.nodes.Snapshot() {
		if n.In(c.cfg.Namespace) {
			v.Nodes = append(v.Nodes, n)
		}
	}
	if c.cfg.Rollout != nil {
		v.Rollout = c.cfg.Rollout()
	}
	v.Settling = backoff.settling(v.Nodes, time.Now())
	for _, k := range w.cordons.Snapshot() {
		v.Cordons[k.Node] = k
	}
	revs := map[string]store.Revision{}
	for _, a := range w.assignments.Snapshot() {
		v.Assignments = append(v.Assignments, a.Assignment)
		revs[a.Name] = a.rev
	}
	for _, st := range w.status.Snapshot() {
		v.Status[st.Name] = st
	}
	return v, revs
}

func (c *Controller) apply(ctx context.Context, ch Change, rev store.Revision) error {
	key := cluster.AssignmentKey(c.cfg.Namespace, ch.Assignment.Name)
	body, err := json.Marshal(ch.Assignment)
	if err != nil {
		return err
	}
	if ch.Delete && !ch.Assignment.Replace {
		return c.cfg.Store.Delete(ctx, key)
	}
	// A worker that was to leave may have been resumed meanwhile.
	if _, err = c.cfg.Store.CompareAndSwap(ctx, key, rev, body); err == nil && ch.Delete {
		return c.cfg.Store.Delete(ctx, key)
	}
	return err
}

func (c *Controller) notify(e cluster.TopologyEvent) {
	if c.cfg.Notify != nil {
		e.Time = time.Now()
		c.cfg.Notify(e)
	}
}
