package store

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// observedGap is the longest pause between two reads of a log that counts as time in which
// its leases were observed, unless the store says otherwise.
const observedGap = time.Second

// replica is the state of a store that is kept as a log, as one process has read it. All
// processes apply the same changes in the same order. The owner's mutex guards it.
//
// A lease ends when its beats stand still for its TTL. Clocks of machines are never compared:
// each process counts the time since it saw the last beat, and only the time in which it
// read the log. After an outage, or when the process itself stood still, every lease
// therefore has nearly all of its TTL again.
type replica struct {
	rev      Revision
	data     map[string]KV
	leases   map[cluster.InstanceID]*heldLease
	watchers map[*Watcher]string // prefix of each

	gap    time.Duration // of [replica.observe]
	clock  time.Duration // time observed
	readAt time.Time     // of the last read; zero before the first
}

// heldLease is a lease of a replica.
type heldLease struct {
	ttl   time.Duration
	beats uint64
	seen  time.Duration // on the replica's clock, when the beats changed
	keys  map[string]struct{}
}

func newReplica() replica {
	return replica{gap: observedGap, data: map[string]KV{}, leases: map[cluster.InstanceID]*heldLease{}, watchers: map[*Watcher]string{}}
}

// observe notes that the whole log has been read.
func (r *replica) observe(now time.Time) {
	if !r.readAt.IsZero() {
		r.clock += min(max(now.Sub(r.readAt), 0), r.gap)
	}
	r.readAt = now
}

// overdue returns the leases whose beats stood still for their TTL, ascending.
func (r *replica) overdue() []cluster.InstanceID {
	var ids []cluster.InstanceID
	for id, lease := range r.leases {
		if r.clock-lease.seen >= lease.ttl {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// renewAll gives all leases their TTL again, after an outage in which nobody could renew them.
func (r *replica) renewAll() {
	for _, lease := range r.leases {
		lease.seen = r.clock
	}
}

// left returns how long a lease has left.
func (r *replica) left(lease *heldLease) time.Duration {
	return min(max(lease.ttl-(r.clock-lease.seen), 0), lease.ttl)
}

func (r *replica) lease(id cluster.InstanceID) (*heldLease, error) {
	lease, ok := r.leases[id]
	if !ok {
		return nil, fmt.Errorf("lease %s: %w", id, ErrLeaseNotFound)
	}
	return lease, nil
}

// hold begins a lease or, if its beats have changed, renews it.
func (r *replica) hold(id cluster.InstanceID, ttl time.Duration, beats uint64) {
	lease, ok := r.leases[id]
	switch {
	case !ok:
		r.leases[id] = &heldLease{ttl: ttl, beats: beats, seen: r.clock, keys: map[string]struct{}{}}
	case lease.beats != beats:
		lease.ttl, lease.beats, lease.seen = ttl, beats, r.clock
	}
}

// end ends a lease with its keys at a revision.
func (r *replica) end(id cluster.InstanceID, rev Revision) {
	lease, ok := r.leases[id]
	if !ok {
		return
	}
	delete(r.leases, id)
	r.remove(slices.Sorted(maps.Keys(lease.keys)), rev)
}

// put writes a key at its revision.
func (r *replica) put(kv KV) {
	r.unbind(kv.Key)
	r.bind(kv)
	r.data[kv.Key] = kv
	r.rev = kv.ModRevision
	r.tell(Event{Type: Put, KV: kv, Revision: kv.ModRevision})
}

// remove deletes those of the keys that exist, at a revision.
func (r *replica) remove(keys []string, rev Revision) {
	for _, key := range keys {
		kv, ok := r.data[key]
		if !ok {
			continue
		}
		r.unbind(key)
		delete(r.data, key)
		r.rev = rev
		r.tell(Event{Type: Delete, KV: kv, Revision: rev})
	}
}

func (r *replica) bind(kv KV) {
	if lease, ok := r.leases[kv.Lease]; ok {
		lease.keys[kv.Key] = struct{}{}
	}
}

func (r *replica) unbind(key string) {
	if lease, ok := r.leases[r.data[key].Lease]; ok {
		delete(lease.keys, key)
	}
}

// replace takes over all keys; their leases must have been held before. Watchers get them as
// a Resync.
func (r *replica) replace(all []KV, rev Revision) {
	for _, lease := range r.leases {
		clear(lease.keys)
	}
	r.data = make(map[string]KV, len(all))
	for _, kv := range all {
		r.data[kv.Key] = kv
		r.bind(kv)
	}
	r.rev = rev
	for w, prefix := range r.watchers {
		w.reset(r.list(prefix), rev)
	}
}

// keepLeases forgets all leases but the given ones.
func (r *replica) keepLeases(ids map[cluster.InstanceID]struct{}) {
	for id := range r.leases {
		if _, ok := ids[id]; !ok {
			delete(r.leases, id)
		}
	}
}

func (r *replica) tell(ev Event) {
	for w, prefix := range r.watchers {
		if strings.HasPrefix(ev.KV.Key, prefix) {
			w.push(ev)
		}
	}
}

// list returns the keys under a prefix, sorted.
func (r *replica) list(prefix string) []KV {
	found := map[string]KV{}
	for key, kv := range r.data {
		if strings.HasPrefix(key, prefix) {
			found[key] = kv
		}
	}
	return sortedKVs(found)
}

// newest returns the highest ModRevision under a prefix.
func (r *replica) newest(prefix string) (rev Revision) {
	for key, kv := range r.data {
		if strings.HasPrefix(key, prefix) {
			rev = max(rev, kv.ModRevision)
		}
	}
	return rev
}

// allowed checks the condition of a write, and its lease.
func (r *replica) allowed(key string, c condition, lease cluster.InstanceID) error {
	current, exists := r.data[key]
	switch {
	case c.absent && exists:
		return ErrExists
	case c.swap && current.ModRevision != c.expect: // 0 when absent
		return ErrConflict
	}
	for _, blocker := range c.blockers {
		if r.newest(blocker) != 0 {
			return ErrConflict
		}
	}
	if lease != 0 {
		_, err := r.lease(lease)
		return err
	}
	return nil
}

// condition is what must hold for a write.
type condition struct {
	absent   bool // the key does not exist
	swap     bool // the key is at revision expect
	expect   Revision
	blockers []string // prefixes under which there is no key
}
