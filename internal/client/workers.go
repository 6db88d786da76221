package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Workers returns the workers of a view with current load figures and leases. The status
// in the store can be some seconds old, so it asks the workers themselves. A worker that
// does not answer within a second keeps the figures of the view.
func (c *Cluster) Workers(ctx context.Context, v View) []cluster.Worker {
	fresh, mute := c.askStats(ctx, v)
	l := leases{}
	l.refresh(ctx, c.store, v)

	now := time.Now()
	workers := v.Workers()
	for i := range workers {
		w := &workers[i]
		if st, ok := fresh[w.InstanceID]; ok && st.Name == w.Name && st.UpdatedAt.After(w.UpdatedAt) {
			w.WorkerStatus = st
		}
		w.Stale = mute[w.InstanceID]
		if left, ok := l.left(w.InstanceID, now); ok && w.InstanceID != 0 {
			w.Lease = &left
		}
		if !w.StartedAt.IsZero() && w.InstanceID != 0 {
			up := max(now.Sub(w.StartedAt), 0)
			w.Uptime = &up
		}
		w.Node = v.NodeName(w.Node)
	}
	return workers
}

// askStats asks every worker for its current status. mute has those that did not answer.
func (c *Cluster) askStats(ctx context.Context, v View) (out map[cluster.InstanceID]cluster.WorkerStatus, mute map[cluster.InstanceID]bool) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	out, mute = map[cluster.InstanceID]cluster.WorkerStatus{}, map[cluster.InstanceID]bool{}
	var mu sync.Mutex
	askWorkers(v, func(inst cluster.Instance) {
		st, err := c.ask(ctx, inst)
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			mute[inst.InstanceID] = true
			return
		}
		out[inst.InstanceID] = st
	})
	return out, mute
}

// askWorkers calls ask for every worker that has a stats endpoint, at most 16 at a time.
func askWorkers(v View, ask func(cluster.Instance)) {
	var wg sync.WaitGroup
	sem := make(chan struct{}, 16)
	for _, inst := range v.Instances {
		if inst.Endpoint != cluster.EndpointStats || inst.Transport.Address() == "" {
			continue
		}
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			ask(inst)
		})
	}
	wg.Wait()
}

// Forget revokes the leases of a node that is known to be dead, and of its workers, so
// that the cluster does not wait for them to expire.
func (c *Cluster) Forget(ctx context.Context, v View, n cluster.Node) error {
	ids := []cluster.InstanceID{}
	for _, st := range v.Status {
		if st.Node == n.ID && st.InstanceID != 0 && st.InstanceID != n.InstanceID {
			ids = append(ids, st.InstanceID)
		}
	}
	for _, id := range append(ids, n.InstanceID) { // workers first: their statuses must go before the node does
		if err := c.store.RevokeLease(ctx, id); err != nil && !errors.Is(err, store.ErrLeaseNotFound) {
			return fmt.Errorf("forget node %s: %w", n.Name, err)
		}
	}
	return nil
}
