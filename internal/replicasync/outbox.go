package replicasync

import (
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/metrics"
)

// queueMost bounds the changes that wait to be published.
const queueMost = 8192

// outbox numbers the changes of the own flights, keeps them until they are published, and
// knows the flights that are open.
type outbox struct {
	lost metrics.Counter // changes that were not published
	wake chan struct{}   // holds a value while there is something to publish

	mu    sync.Mutex
	epoch uint64 // rises with each loss, and from one start of a frontend to the next
	first uint64 // number of the first change in the queue
	queue []cluster.FlightChange
	open  map[flight]*openFlight
}

// openFlight is how a flight began, and how far it is.
type openFlight struct {
	began  cluster.FlightChange
	filled bool // its prompt is computed
	blocks int  // of its output
}

type flight struct {
	phase  cluster.Role
	number uint64
}

func newOutbox(lost metrics.Counter, now time.Time) *outbox {
	return &outbox{lost: lost, wake: make(chan struct{}, 1), epoch: uint64(now.UnixNano()), open: map[flight]*openFlight{}}
}

// put takes a change of a flight.
func (o *outbox) put(c cluster.FlightChange) {
	o.mu.Lock()
	defer o.mu.Unlock()
	id := flight{c.Phase, c.Flight}
	switch c.Kind {
	case cluster.FlightBegin:
		c.Hashes = c.Hashes[:min(len(c.Hashes), hashesMost)]
		c.Uncached = min(c.Uncached, uncachedMost)
		o.open[id] = &openFlight{began: c}
	case cluster.FlightPrefilled:
		if f := o.open[id]; f != nil {
			f.filled = true
		}
	case cluster.FlightGrown:
		if f := o.open[id]; f != nil {
			f.blocks = c.Blocks
		}
	case cluster.FlightEnd:
		delete(o.open, id)
	}
	if len(o.queue) == queueMost {
		o.restart(queueMost + 1)
		return
	}
	o.queue = append(o.queue, c)
	o.rouse()
}

// restart begins an epoch after changes were lost. Those that wait are part of what readers
// will ask for.
func (o *outbox) restart(lost int) {
	o.lost.Add(float64(lost))
	o.epoch, o.first, o.queue = o.epoch+1, 0, nil
	o.rouse()
}

func (o *outbox) rouse() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

// take returns the next message, and whether more wait. It has no changes if none wait.
func (o *outbox) take() (m cluster.FlightEvents, more bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := batch(o.queue)
	m = cluster.FlightEvents{Epoch: o.epoch, First: o.first, Changes: o.queue[:n:n]}
	o.first += uint64(n)
	if o.queue = o.queue[n:]; len(o.queue) == 0 {
		o.queue = nil // its hashes are needed no more
	}
	return m, len(o.queue) > 0
}

// unpublished notes that a message was not published.
func (o *outbox) unpublished(m cluster.FlightEvents) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if m.Epoch == o.epoch && len(m.Changes) > 0 {
		o.restart(len(m.Changes) + len(o.queue))
	}
}

// snapshot returns changes that give the open flights, as many as readers count, and their
// position.
func (o *outbox) snapshot() (changes []cluster.FlightChange, epoch, next uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	hashes, flights := answerHashes, 0
	for id, f := range o.open {
		if flights++; flights > flightsMost {
			break
		}
		c := f.began
		c.Hashes = c.Hashes[:min(len(c.Hashes), hashes)]
		hashes -= len(c.Hashes)
		changes = append(changes, c)
		if f.filled {
			changes = append(changes, cluster.FlightChange{Kind: cluster.FlightPrefilled, Phase: id.phase, Flight: id.number})
		}
		if f.blocks > 0 {
			changes = append(changes, cluster.FlightChange{Kind: cluster.FlightGrown, Phase: id.phase, Flight: id.number, Blocks: f.blocks})
		}
	}
	return changes, o.epoch, o.first + uint64(len(o.queue))
}
