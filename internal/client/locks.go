package client

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/store"
)

// Locks returns the claims on locks and elections, by lock, and the writers that wait and
// the candidates in their order. The view knows whose the leases are.
func (c *Cluster) Locks(ctx context.Context, v View) ([]cluster.Lock, error) {
	held, _, err := c.store.List(ctx, cluster.LockPrefix)
	if err != nil {
		return nil, err
	}
	elections, _, err := c.store.List(ctx, cluster.LeaderPrefix+"/")
	if err != nil {
		return nil, err
	}
	locks := append(heldLocks(held), candidates(elections)...)
	owners := leaseOwners(v)
	left := map[cluster.InstanceID]*time.Duration{}
	for i := range locks {
		l := &locks[i]
		l.Owner = cmp.Or(owners[l.Lease], l.Owner)
		if _, asked := left[l.Lease]; !asked && len(left) < leaseBudget {
			left[l.Lease] = nil
			if d, _, err := c.store.LeaseTTL(ctx, l.Lease); err == nil {
				left[l.Lease] = &d
			}
		}
		l.Left = left[l.Lease]
	}
	slices.SortStableFunc(locks, cluster.CompareLocks)
	return locks, nil
}

func byAge(kvs []store.KV) {
	slices.SortFunc(kvs, func(a, b store.KV) int { return cmp.Compare(a.ModRevision, b.ModRevision) })
}

// heldLocks returns the claims that keys stand for. The writer that has a lock has its place
// among those that wait, too, which is left out.
func heldLocks(kvs []store.KV) (locks []cluster.Lock) {
	byAge(kvs)
	writes := map[string]cluster.InstanceID{}
	for _, kv := range kvs {
		if name, claim, _, _ := cluster.ParseLockKey(kv.Key); claim == cluster.Writing {
			writes[name] = kv.Lease
		}
	}
	for _, kv := range kvs {
		name, claim, reader, ok := cluster.ParseLockKey(kv.Key)
		if !ok || claim == cluster.Waiting && writes[name] == kv.Lease {
			continue
		}
		locks = append(locks, cluster.Lock{Name: name, Claim: claim, Owner: reader, Lease: kv.Lease})
	}
	return locks
}

// candidates returns the claims of elections. Who came first leads.
func candidates(kvs []store.KV) (locks []cluster.Lock) {
	byAge(kvs)
	led := map[string]bool{}
	for _, kv := range kvs {
		at := strings.LastIndex(kv.Key, "/")
		name := strings.TrimPrefix(kv.Key[:at], cluster.ControlPrefix)
		claim := cluster.Leading
		if led[name] {
			claim = cluster.Candidate
		}
		led[name] = true
		locks = append(locks, cluster.Lock{Name: name, Claim: claim, Owner: string(kv.Value), Lease: kv.Lease})
	}
	return locks
}
