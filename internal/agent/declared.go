package agent

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/store"
)

const (
	// forgottenAfter is the time in which nodes write the assignments of their workers
	// again, before the topology is written. A controller that finds a topology without
	// assignments would start other workers.
	forgottenAfter = 2 * time.Second
	// forgottenFollow is the additional wait of nodes that are not the leader.
	forgottenFollow = 3 * time.Second
	// forgottenRetry is the pause between attempts to restore lost data.
	forgottenRetry = 500 * time.Millisecond
)

// declared remembers the declared state of the cluster: topology, settings and cordons.
// When the store has lost that state, or has an older one, the node writes it again.
//
// Topologies are never deleted: an empty cluster has one without workers. So a store
// without its topology, or with an earlier one, has lost data. Nothing that is missing in
// it then was deleted on purpose.
type declared struct {
	a        *Agent
	watchers []*store.Watcher // topology, settings, cordons

	mu       sync.Mutex
	topology *cluster.Topology // the newest one seen; nil if none was
	known    map[string]store.KV
	lost     time.Time // when the node noticed that the store had lost its data; zero if it has not
}

func watchDeclared(ctx context.Context, a *Agent) (*declared, error) {
	d := &declared{a: a, known: map[string]store.KV{}}
	ns := a.cfg.Namespace
	for _, prefix := range []string{cluster.TopologyKey(ns), cluster.SettingPrefix(ns), cluster.CordonPrefix(ns)} {
		w, err := a.stores.store.Watch(context.WithoutCancel(ctx), prefix)
		if err != nil {
			d.close()
			return nil, fmt.Errorf("watch what is declared: %w", err)
		}
		d.watchers = append(d.watchers, w)
	}
	return d, nil
}

func (d *declared) close() {
	for _, w := range d.watchers {
		w.Close()
	}
}

// forgotten asks the store whether it has lost the declared state.
func (d *declared) forgotten(ctx context.Context) (bool, error) {
	forgotten, _, err := d.look(ctx)
	return forgotten, err
}

// look compares the store's topology with the newest one seen. It returns the revision of
// the store's topology, or 0 if there is none.
func (d *declared) look(ctx context.Context) (forgotten bool, rev store.Revision, err error) {
	d.mu.Lock()
	newest := d.topology
	d.mu.Unlock()
	if newest == nil {
		return false, 0, nil
	}
	now, rev, err := store.GetJSON[cluster.Topology](ctx, d.a.stores.store, cluster.TopologyKey(d.a.cfg.Namespace))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return true, 0, nil
	case err != nil:
		return false, 0, err
	}
	return olderThan(now, *newest), rev, nil
}

// olderThan reports whether t was declared before known. Generation and time must both be
// older: a recreated cluster counts generations from one again, and the clocks of clients
// may differ.
func olderThan(t, known cluster.Topology) bool {
	return t.Generation < known.Generation && t.UpdatedAt.Before(known.UpdatedAt)
}

// run follows the declared state until ctx ends, and restores it when it is lost.
func (d *declared) run(ctx context.Context) error {
	retry := time.NewTimer(time.Hour)
	defer retry.Stop()
	for {
		var ev store.Event
		var ok, missing bool
		select {
		case <-ctx.Done():
			return nil
		case ev, ok = <-d.watchers[0].Events():
			missing = ok && d.take(ctx, ev)
		case ev, ok = <-d.watchers[1].Events():
			missing = ok && d.take(ctx, ev)
		case ev, ok = <-d.watchers[2].Events():
			missing = ok && d.take(ctx, ev)
		case <-retry.C:
			ok = true
		}
		if !ok { // the store is closed
			<-ctx.Done()
			return nil
		}
		if missing || d.isLost() {
			if err := d.restore(ctx); err != nil && ctx.Err() == nil {
				d.a.log.Warn("cannot write the lost topology to the store again yet", "error", err)
			}
		}
		if d.isLost() {
			retry.Reset(forgottenRetry)
		}
	}
}

func (d *declared) isLost() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.lost.IsZero()
}

// take processes a change and reports whether a known value is missing.
func (d *declared) take(ctx context.Context, ev store.Event) (missing bool) {
	switch ev.Type {
	case store.Put:
		return d.see(ev.KV)
	case store.Delete:
		if ev.KV.Key == cluster.TopologyKey(d.a.cfg.Namespace) {
			return true
		}
		if forgotten, err := d.forgotten(ctx); err != nil || forgotten {
			return true
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.known, ev.KV.Key)
	case store.Resync:
		there := map[string]bool{}
		for _, kv := range ev.All {
			there[kv.Key] = true
			missing = d.see(kv) || missing
		}
		d.mu.Lock()
		for key := range d.known {
			missing = missing || !there[key]
		}
		d.mu.Unlock()
	}
	return missing
}

// see records a value and reports whether it is older than the known one.
func (d *declared) see(kv store.KV) (older bool) {
	if kv.Key != cluster.TopologyKey(d.a.cfg.Namespace) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.known[kv.Key] = kv
		return false
	}
	t, err := store.DecodeJSON[cluster.Topology](kv)
	if err != nil {
		d.a.log.Warn("topology does not decode", "error", err)
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.topology != nil && olderThan(t, *d.topology) {
		return true
	}
	d.topology, d.known[kv.Key] = &t, kv
	return false
}

// restore writes lost data again: first settings and cordons, then, when the nodes have
// had time for their assignments, the topology. Values in the store win over known ones,
// except an older topology.
func (d *declared) restore(ctx context.Context) error {
	forgotten, rev, err := d.look(ctx)
	if err != nil {
		return err
	}
	if !forgotten {
		return d.recovered(ctx)
	}
	d.mu.Lock()
	if d.lost.IsZero() {
		d.lost = time.Now()
		d.a.alarms.raise(alarmForgot, fmt.Sprintf("the store lost the topology of generation %d; workers keep running, and this node writes it again", d.topology.Generation))
	}
	since := d.lost
	known := make(map[string]store.KV, len(d.known))
	for key, kv := range d.known {
		known[key] = kv
	}
	d.mu.Unlock()

	key := cluster.TopologyKey(d.a.cfg.Namespace)
	for k, kv := range known {
		if k == key {
			continue
		}
		if _, err := d.a.stores.store.Create(ctx, k, kv.Value); err != nil && !errors.Is(err, store.ErrExists) {
			return err
		}
	}
	wait := forgottenAfter
	if leader, err := store.Leader(ctx, d.a.stores.store, cluster.ElectionPrefix(d.a.cfg.Namespace)); err != nil || leader != d.a.cfg.Node.Name {
		wait += forgottenFollow
	}
	if time.Since(since) < wait {
		return nil
	}
	switch _, err := d.a.stores.store.CompareAndSwap(ctx, key, rev, known[key].Value); {
	case errors.Is(err, store.ErrConflict): // another node was faster
	case err != nil:
		return err
	default:
		d.tell(ctx)
	}
	return d.recovered(ctx)
}

// tell logs and publishes that this node has restored the topology.
func (d *declared) tell(ctx context.Context) {
	d.mu.Lock()
	generation := d.topology.Generation
	d.mu.Unlock()
	text := fmt.Sprintf("%s wrote the topology of generation %d again: the store had lost it", d.a.cfg.Node.Name, generation)
	d.a.log.Warn("wrote the topology again, which the store had lost", "generation", generation)
	subject := events.Subject(d.a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicTopology)
	_ = d.a.stores.bus.Publish(ctx, subject, cluster.TopologyEvent{Time: time.Now(), Action: cluster.ActionRestore, Reason: "the store had lost its data", Message: text})
}

// recovered forgets known values that are not in the store. The store's topology is up to
// date, so they were deleted on purpose.
func (d *declared) recovered(ctx context.Context) error {
	d.mu.Lock()
	d.lost = time.Time{}
	d.mu.Unlock()
	d.a.alarms.clear(alarmForgot)
	there := map[string]bool{cluster.TopologyKey(d.a.cfg.Namespace): true}
	for _, prefix := range []string{cluster.SettingPrefix(d.a.cfg.Namespace), cluster.CordonPrefix(d.a.cfg.Namespace)} {
		kvs, _, err := d.a.stores.store.List(ctx, prefix)
		if err != nil {
			return err
		}
		for _, kv := range kvs {
			there[kv.Key] = true
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for key := range d.known {
		if !there[key] {
			delete(d.known, key)
		}
	}
	return nil
}
