package client

import (
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// expected holds the next event id of a worker, the time of its last event and how many
// came since the last snapshot.
type expected struct {
	id    uint64
	at    time.Time
	count int
	rate  float64 // per second, between the last two snapshots
}

func (t *tally) kvEvent(e events.Event) {
	var ev cluster.KVEvent
	if e.Decode(&ev) != nil {
		return
	}
	lag := max(time.Since(ev.Time), 0)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kvCount++
	next, seen := t.nextKV[ev.WorkerID]
	if seen && ev.EventID > next.id {
		t.kvGaps += ev.EventID - next.id
	}
	next.id, next.at = max(next.id, ev.EventID+1), time.Now()
	next.count++
	t.nextKV[ev.WorkerID] = next
	t.kvLag = &lag
	t.kv.add(ev)
}

// fillEvents copies the KV events and their figures into a snapshot. The caller holds mu.
func (t *tally) fillEvents(s *cluster.Snapshot, now time.Time) {
	s.Events = t.kv.newestFirst()
	s.KVEventGaps, s.KVEventLag = t.kvGaps, t.kvLag
	if dt := now.Sub(t.lastFill).Seconds(); !t.lastFill.IsZero() && dt > 0 {
		rate := float64(t.kvCount-t.lastKV) / dt
		s.KVEventRate = &rate
		for id, of := range t.nextKV {
			of.rate, of.count = float64(of.count)/dt, 0
			t.nextKV[id] = of
		}
	}
	t.rated = !t.lastFill.IsZero()
	t.lastKV = t.kvCount
}

// kvEventsOf returns how many KV events a worker sent per second between the last two
// snapshots, and when the last one came; zero if none has. rate is nil before two snapshots.
func (t *tally) kvEventsOf(id cluster.InstanceID) (rate *float64, at time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.nextKV[id]
	if t.rated {
		rate = &of.rate
	}
	return rate, of.at
}
