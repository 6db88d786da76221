package store

import (
	"encoding/json"
	"maps"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// tomb is a subject whose messages say nothing any more.
type tomb struct {
	seq  Revision      // of its last message
	seen time.Duration // on the replica's clock
}

// apply takes over one message. A key is there if the last message of its subject has a value,
// and the lease that it names is held. So the last messages of all subjects say the same as
// the whole stream. The caller holds the mutex.
func (n *NATS) apply(c natsChange) {
	n.applied = natsPlace{c.seq, c.at}
	switch c.kind {
	case natsKeys:
		if c.gone || c.lease != 0 && n.state.leases[c.lease] == nil {
			n.state.remove([]string{c.key}, c.seq)
			n.bury(c.subject, c.seq)
			return
		}
		delete(n.dead, c.subject)
		n.state.put(KV{Key: c.key, Value: c.value, ModRevision: c.seq, Lease: c.lease})
	case natsLeases:
		if !c.gone {
			n.state.hold(c.id, c.ttl, uint64(c.seq))
			n.grants[c.id] = c.seq
			return
		}
		n.bury(c.subject, c.seq)
		if lease := n.state.leases[c.id]; lease != nil {
			if beat := Revision(lease.beats); beat > n.grants[c.id] {
				n.bury(natsBeats+c.id.String(), beat)
			}
			for key := range lease.keys {
				n.bury(natsKeys+natsEscape(key), n.state.data[key].ModRevision)
			}
		}
		n.state.end(c.id, c.seq)
		delete(n.grants, c.id)
		delete(n.held, c.id)
	case natsBeats:
		lease := n.state.leases[c.id]
		if lease == nil {
			n.bury(c.subject, c.seq)
			return
		}
		n.state.hold(c.id, lease.ttl, uint64(c.seq))
	case natsPurge:
		n.purged = n.state.clock
		var subjects map[string]Revision
		_ = json.Unmarshal(c.value, &subjects) // of others: then they stay until somebody reads anew
		maps.DeleteFunc(n.dead, func(subject string, t tomb) bool { return subjects[subject] == t.seq })
	}
}

func (n *NATS) bury(subject string, seq Revision) { n.dead[subject] = tomb{seq, n.state.clock} }

// natsSnapshot collects the last message of each subject.
type natsSnapshot struct{ changes []natsChange }

func (s *natsSnapshot) add(c natsChange) { s.changes = append(s.changes, c) }

// adopt replaces the state by the last messages of all subjects of a stream that went up to
// last, and gives watchers a Resync. The caller holds the mutex.
func (n *NATS) adopt(s *natsSnapshot, last Revision) {
	n.applied = natsPlace{seq: last}
	clear(n.dead)
	clear(n.grants)
	held := map[cluster.InstanceID]struct{}{}
	beats := map[cluster.InstanceID]natsChange{}
	ttls := map[cluster.InstanceID]time.Duration{}
	keys := map[string]natsChange{}
	for _, c := range s.changes { // a subject that is written meanwhile comes again
		n.applied = natsPlace{c.seq, c.at}
		switch c.kind {
		case natsKeys:
			keys[c.key] = c
		case natsLeases:
			delete(held, c.id)
			n.bury(c.subject, c.seq)
			if !c.gone {
				held[c.id], ttls[c.id], n.grants[c.id] = struct{}{}, c.ttl, c.seq
				delete(n.dead, c.subject)
			}
		case natsBeats:
			beats[c.id] = c
		}
	}
	if n.applied.seq < last {
		n.applied = natsPlace{seq: last}
	}
	for id, c := range beats {
		if _, ok := held[id]; !ok {
			n.bury(c.subject, c.seq)
		}
	}
	n.state.keepLeases(held)
	maps.DeleteFunc(n.held, func(id cluster.InstanceID, _ time.Time) bool { _, ok := held[id]; return !ok })
	for id := range held {
		n.state.hold(id, ttls[id], uint64(max(n.grants[id], beats[id].seq)))
	}
	var all []KV
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		c := keys[key]
		if _, ok := held[c.lease]; c.gone || c.lease != 0 && !ok {
			n.bury(c.subject, c.seq)
			continue
		}
		all = append(all, KV{Key: c.key, Value: c.value, ModRevision: c.seq, Lease: c.lease})
	}
	n.state.replace(all, n.applied.seq)
}
