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
	// forgottenAfter is how long nodes have to write the assignments of their workers again
	// before the topology is: a controller that finds a topology and no assignments would
	// start other workers.
	forgottenAfter = 2 * time.Second
	// forgottenFollow is how much longer nodes wait that do not lead.
	forgottenFollow = 3 * time.Second
	// forgottenRetry is the pause between attempts to write again what is lost.
	forgottenRetry = 500 * time.Millisecond
)

// declared remembers what was declared for the cluster: topology, settings and cordons. When
// the store has lost that, or has an older state of it, the node writes it again.
//
// Nobody ever deletes a topology: an empty cluster has one with no workers. A store without
// the topology that it had, or with an earlier one, has therefore forgotten, and nothing that
// is not in it any more was deleted by an order.
type declared struct {
	a        *Agent
	watchers []*store.Watcher // topology, settings, cordons

	mu       sync.Mutex
	topology *cluster.Topology // the newest that was seen; nil if none was
	known    map[string]store.KV
	lost     time.Time // since when the store is known to have forgotten; zero if it has not
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

// forgotten reports whether the store has lost what was declared. It asks the store.
func (d *declared) forgotten(ctx context.Context) (bool, error) {
	forgotten, _, err := d.look(ctx)
	return forgotten, err
}

// look compares the store's topology with the newest one that was seen, and returns the
// revision of the store's, 0 if it has none.
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

// olderThan reports whether t was declared before known. A new history counts generations
// from one, and the clocks of those who declare may differ: both must say so.
func olderThan(t, known cluster.Topology) bool {
	return t.Generation < known.Generation && t.UpdatedAt.Before(known.UpdatedAt)
}

// run follows what is declared until ctx ends, and writes it again when it is lost.
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
				d.a.log.Warn("what the store has lost is not written again yet", "error", err)
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

// take takes in a change and reports whether something that was known is no more.
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

// see takes in a value and reports whether it is older than what is known.
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

// restore writes again what is lost: first settings and cordons, then, when the nodes have
// had time for their assignments, the topology. Whatever is there wins over what is known,
// unless it is an older topology.
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
		d.a.alarms.raise(alarmForgot, fmt.Sprintf("the store has lost what was declared, of generation %d; what runs goes on, and it is written again", d.topology.Generation))
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
	case errors.Is(err, store.ErrConflict): // somebody was faster
	case err != nil:
		return err
	default:
		d.tell(ctx)
	}
	return d.recovered(ctx)
}

// tell says that this node has written the topology again.
func (d *declared) tell(ctx context.Context) {
	d.mu.Lock()
	generation := d.topology.Generation
	d.mu.Unlock()
	text := fmt.Sprintf("%s wrote the topology of generation %d again: the store had lost it", d.a.cfg.Node.Name, generation)
	d.a.log.Warn("wrote the topology again, which the store had lost", "generation", generation)
	subject := events.Subject(d.a.cfg.Namespace, cluster.ComponentAgent, cluster.TopicTopology)
	_ = d.a.stores.bus.Publish(ctx, subject, cluster.TopologyEvent{Time: time.Now(), Action: cluster.ActionRestore, Reason: "the store had lost its data", Message: text})
}

// recovered drops what is known and yet not in the store, whose topology is as new as it can
// be: it was deleted by an order.
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
