package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// leases caches the remaining time of each lease, as of the last query.
type leases map[cluster.InstanceID]leaseSample

type leaseSample struct {
	left, ttl time.Duration
	at        time.Time
	gone      bool
}

// leaseBudget is the maximum number of leases that one snapshot queries. In a larger
// cluster, the others are estimated from their last answer.
const leaseBudget = 128

// refresh queries the leases of workers and nodes, those with the oldest answers first.
func (l leases) refresh(ctx context.Context, s store.Leaser, view View) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	owners := leaseOwners(view)
	for id := range l {
		if _, ok := owners[id]; !ok {
			delete(l, id)
		}
	}
	ids := make([]cluster.InstanceID, 0, len(owners))
	for id := range owners {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b cluster.InstanceID) int { return l[a].at.Compare(l[b].at) })
	ids = ids[:min(len(ids), leaseBudget)]

	sem := make(chan struct{}, 16)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, id := range ids {
		wg.Go(func() {
			sem <- struct{}{}
			defer func() { <-sem }()
			left, ttl, err := s.LeaseTTL(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				l[id] = leaseSample{left: left, ttl: ttl, at: time.Now()}
			case errors.Is(err, store.ErrLeaseNotFound):
				l[id] = leaseSample{at: time.Now(), gone: true}
			}
		})
	}
	wg.Wait()
}

// left estimates the remaining time of a lease; ok is false when it is unknown.
func (l leases) left(id cluster.InstanceID, now time.Time) (time.Duration, bool) {
	s, ok := l[id]
	if !ok {
		return 0, false
	}
	if s.gone {
		return 0, true
	}
	return max(s.left-now.Sub(s.at), 0), true
}

// list returns all known leases, the soonest to end first.
func (l leases) list(view View, now time.Time) []cluster.Lease {
	out := []cluster.Lease{}
	endpoints := map[cluster.InstanceID][]string{}
	for _, inst := range view.Instances {
		endpoints[inst.InstanceID] = append(endpoints[inst.InstanceID], inst.Component+"/"+inst.Endpoint)
	}
	for id, owner := range leaseOwners(view) {
		s, ok := l[id]
		if !ok || s.gone {
			continue
		}
		left, _ := l.left(id, now)
		slices.Sort(endpoints[id])
		lease := cluster.Lease{ID: id, Owner: owner, TTL: s.ttl, Left: left, Renewed: s.ttl - left, Endpoints: endpoints[id]}
		if p := slices.IndexFunc(view.Programs, func(p cluster.Program) bool { return p.InstanceID == id }); p >= 0 {
			lease.Program = &view.Programs[p]
		}
		out = append(out, lease)
	}
	slices.SortFunc(out, func(a, b cluster.Lease) int {
		if a.Left != b.Left {
			return int(a.Left - b.Left)
		}
		return cluster.CompareNames(a.Owner, b.Owner)
	})
	return out
}

func leaseOwners(view View) map[cluster.InstanceID]string {
	owners := map[cluster.InstanceID]string{}
	for _, st := range view.Status {
		if st.InstanceID != 0 {
			owners[st.InstanceID] = st.Name
		}
	}
	for _, n := range view.Nodes {
		if n.InstanceID != 0 {
			owners[n.InstanceID] = n.Name
		}
	}
	for _, p := range view.Programs {
		owners[p.InstanceID] = p.Name
	}
	return owners
}

// Leases queries the leases of the workers, nodes and programs of a view. list is sorted by owner.
// silent names the owners whose lease has ended or did not answer in time.
func (c *Cluster) Leases(ctx context.Context, v View) (list []cluster.Lease, silent []string) {
	l := leases{}
	owners := leaseOwners(v)
	for n := 0; n < len(owners) && ctx.Err() == nil; n += leaseBudget {
		l.refresh(ctx, c.store, v)
	}
	list = l.list(v, time.Now())
	slices.SortFunc(list, func(a, b cluster.Lease) int { return cluster.CompareNames(a.Owner, b.Owner) })
	for id, owner := range owners {
		if s, ok := l[id]; !ok || s.gone {
			silent = append(silent, owner)
		}
	}
	slices.SortFunc(silent, cluster.CompareNames)
	return list, silent
}
