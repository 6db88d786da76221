package kvfeed

import (
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/kvindex"
	"github.com/dynctl/dynctl/internal/protocol"
)

const (
	// heldMost bounds the events of a worker that wait for the answer to a question, as
	// in Dynamo. More are dropped, which shows as a gap after the answer.
	heldMost = 1024
	// behindFor is how long a position may be ahead of the events: the two come in
	// different queues.
	behindFor = 200 * time.Millisecond
	// untrueFor is how long the blocks of a worker that is known to be out of date stay.
	untrueFor = time.Second
	// silentFor is how long a worker may be silent before it is asked. A worker tells its
	// position every second. unheardFor takes its place while no worker can be heard.
	silentFor  = cluster.StatusInterval * 5 / 4
	unheardFor = 400 * time.Millisecond
	// retryAfter is the wait after a question without an answer, as in Dynamo.
	retryAfter = 200 * time.Millisecond
)

// tracker follows the events of one worker. It decides; it asks and waits for nothing.
type tracker struct {
	id    cluster.InstanceID
	name  string
	index *kvindex.Index

	known bool   // an answer has told epoch and next
	epoch uint64 // of the blocks in the index
	next  uint64 // id of the first event that is not applied
	last  time.Time
	heard time.Time // when the worker was heard last

	told    uint64    // the newest position of this epoch
	behind  time.Time // when a position was first ahead; zero if none is
	missing time.Time // when events were first known to be missing; zero if none are
	asking  bool
	retry   time.Time         // not before this
	held    []cluster.KVEvent // while events are missing

	gaps, answers, dumps, resets uint64
}

// event applies an event, or holds it while others are missing before it.
func (t *tracker) event(e cluster.KVEvent, now time.Time) {
	t.heard = now
	switch {
	case !t.known || !t.missing.IsZero():
		t.hold(e)
	case e.Epoch == t.epoch && e.EventID == t.next:
		t.apply(e)
	case e.Epoch == t.epoch && e.EventID > t.next:
		t.gaps += e.EventID - t.next
		t.miss(now)
		t.hold(e)
	case !e.Time.After(t.last):
		// An answer that overtook this event has told it.
	default: // another cache, or the same numbers again: what it had is gone
		t.reset(e.Epoch)
		if e.EventID == 0 {
			t.apply(e)
			return
		}
		t.gaps += e.EventID
		t.miss(now)
		t.hold(e)
	}
}

func (t *tracker) hold(e cluster.KVEvent) {
	if len(t.held) < heldMost {
		t.held = append(t.held, e)
	}
}

// miss notes that events are missing.
func (t *tracker) miss(now time.Time) {
	if t.missing.IsZero() {
		t.missing = now
	}
}

// reset forgets all blocks of the worker.
func (t *tracker) reset(epoch uint64) {
	t.resets++
	t.index.Clear(t.id)
	t.epoch, t.next, t.told, t.behind = epoch, 0, 0, time.Time{}
}

func (t *tracker) apply(e cluster.KVEvent) {
	tier := tierOf(e.Tier)
	switch e.Kind {
	case cluster.KVStored:
		hashes := make([]uint64, len(e.Stored))
		for i, b := range e.Stored {
			hashes[i] = b.BlockHash
		}
		t.index.Store(t.id, tier, hashes)
	case cluster.KVRemoved:
		t.index.Remove(t.id, tier, e.Removed)
	case cluster.KVCleared:
		t.index.Clear(t.id)
	}
	t.next, t.last = e.EventID+1, e.Time
	if t.next >= t.told {
		t.behind = time.Time{}
	}
}

// tierOf reads the tier of an event; one that is not known here counts as the slowest.
func tierOf(s string) kvindex.Tier {
	switch s {
	case "", "device":
		return kvindex.Device
	case "host_pinned":
		return kvindex.Host
	}
	return kvindex.Disk
}

// position compares what the worker has published with what was applied.
func (t *tracker) position(epoch, next uint64, now time.Time) {
	t.heard = now
	if !t.known || epoch == t.epoch && next <= t.next {
		return
	}
	if t.told = next; epoch != t.epoch {
		t.told = math.MaxUint64 // the events of this epoch do not get there
	}
	if t.behind.IsZero() {
		t.behind = now
	}
}

// due reports whether the worker must be asked now; silent is how long it may be silent.
// It is called many times a second. It forgets what has been out of date for too long.
func (t *tracker) due(now time.Time, silent time.Duration) bool {
	if !t.behind.IsZero() && now.Sub(t.behind) >= behindFor {
		t.miss(t.behind)
	}
	if now.Sub(t.heard) >= silent {
		t.miss(t.heard.Add(silent))
	}
	if t.known && !t.missing.IsZero() && now.Sub(t.missing) >= untrueFor {
		t.reset(t.epoch)
		t.known = false
	}
	return !t.asking && !now.Before(t.retry) && (!t.known || !t.missing.IsZero())
}

// ask returns what to ask the worker for.
func (t *tracker) ask() protocol.KVEventsRequest {
	t.asking = true
	if !t.known {
		return protocol.KVEventsRequest{}
	}
	return protocol.KVEventsRequest{Epoch: t.epoch, From: t.next}
}

// failed notes that a question got no answer.
func (t *tracker) failed(now time.Time) { t.asking, t.retry = false, now.Add(retryAfter) }

// answer takes the pages that the worker sent. at is the worker's clock.
func (t *tracker) answer(pages []protocol.KVEventsPage, now time.Time) {
	t.asking, t.heard = false, now
	if len(pages) == 0 {
		return
	}
	t.answers++
	if first := pages[0]; first.All {
		t.dumps++
		t.replace(pages)
		t.epoch, t.next, t.last = first.Epoch, first.Next, first.Time
	} else {
		for _, p := range pages {
			for _, e := range p.Events {
				if e.EventID == t.next {
					t.apply(e)
				}
			}
		}
		if t.next != first.Next { // not what was asked for: all again
			t.known = false
			return
		}
	}
	t.known, t.missing, t.behind, t.told = true, time.Time{}, time.Time{}, 0
	held := t.held
	t.held = nil
	for _, e := range held {
		t.event(e, now)
	}
}

// replace makes the index hold the blocks of the pages and no others of the worker.
// Blocks that stay are found at all times.
func (t *tracker) replace(pages []protocol.KVEventsPage) {
	have := map[uint64]bool{}
	for _, p := range pages {
		for _, h := range p.Blocks {
			have[h] = true
		}
	}
	for tier := kvindex.Device; tier <= kvindex.Disk; tier++ {
		var gone []uint64
		for _, h := range t.index.Snapshot(t.id, tier) {
			if tier != kvindex.Device || !have[h] {
				gone = append(gone, h)
			}
		}
		t.index.Remove(t.id, tier, gone)
	}
	for _, p := range pages {
		t.index.Store(t.id, kvindex.Device, p.Blocks)
	}
}
