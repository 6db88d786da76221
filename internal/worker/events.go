package worker

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/ondemand"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/requestplane"
	"github.com/dynctl/dynctl/internal/worker/role"
)

// kvEvents keeps the newest KV events of the engine until they are published, and then
// for readers that missed some. The engine never waits: a publisher that falls behind
// skips events, which readers notice and ask for.
type kvEvents struct {
	epoch      uint64
	publishing *ondemand.Task

	// Owned by publishing.
	sent uint64    // id of the first event that is not published
	last time.Time // when there were events

	mu   sync.Mutex
	ring []cluster.KVEvent // event n is at n % kvRing; it grows up to that length
	next uint64            // id of the next event
}

// kvRing is the number of events that a worker keeps, as in Dynamo.
const kvRing = 1024

// newKVEvents calls publish when there are events, and for a while after. The caller must
// close publishing.
func newKVEvents(publish func(context.Context)) *kvEvents {
	return &kvEvents{epoch: rand.Uint64(), publishing: ondemand.New(context.Background(), publish)}
}

func (k *kvEvents) put(e cluster.KVEvent) {
	e.Epoch, e.Time = k.epoch, time.Now()
	k.mu.Lock()
	e.EventID = k.next
	if len(k.ring) < kvRing {
		k.ring = append(k.ring, e)
	} else {
		k.ring[k.next%kvRing] = e
	}
	k.next++
	k.mu.Unlock()
	k.publishing.Wake()
}

// Stored implements engine.KVSink.
func (k *kvEvents) Stored(parent *uint64, start int, blocks []cluster.KVStoredBlock) {
	k.put(cluster.KVEvent{Kind: cluster.KVStored, ParentHash: parent, StartPosition: start, Stored: blocks, Count: len(blocks)})
}

// Removed implements engine.KVSink.
func (k *kvEvents) Removed(hashes []uint64, reason string) {
	k.put(cluster.KVEvent{Kind: cluster.KVRemoved, Removed: hashes, Count: len(hashes), Reason: reason})
}

// Cleared implements engine.KVSink.
func (k *kvEvents) Cleared(n int) { k.put(cluster.KVEvent{Kind: cluster.KVCleared, Count: n}) }

// position returns the id of the next event.
func (k *kvEvents) position() uint64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.next
}

// since returns up to n events from an id on; ok is false if the first is not kept any
// more, or is yet to come.
func (k *kvEvents) since(from uint64, n int) (events []cluster.KVEvent, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if from > k.next || k.next-from > kvRing {
		return nil, false
	}
	for ; from < k.next && len(events) < n; from++ {
		events = append(events, k.ring[from%kvRing])
	}
	return events, true
}

// For a second after events, readers are told the position: the loss of the last event shows
// only by it. Later the status tells it.
const (
	positionEvery = 200 * time.Millisecond
	positionFor   = cluster.StatusInterval
)

// publishKVEvents sends the events that wait or, when there are none, the position.
func (w *Worker) publishKVEvents(ctx context.Context) {
	k := w.events
	switch since := time.Since(k.last); {
	case k.sent != k.position():
		k.last = time.Now()
		k.sent = w.publishFrom(ctx, k.sent)
	case since < positionEvery || since >= positionFor:
		return
	default:
		p := cluster.KVPosition{WorkerID: w.term.Load().drt.ID(), Epoch: k.epoch, Next: k.sent}
		_ = w.cfg.Bus.Publish(ctx, w.subject(cluster.TopicKVPositions), p) // the next one may arrive
	}
	k.publishing.WakeIn(positionEvery)
}

// publishBatch is the number of events that are taken from the ring at a time.
const publishBatch = 64

// publishFrom sends the events from an id on and returns the id of the first that is yet
// to come.
func (w *Worker) publishFrom(ctx context.Context, sent uint64) uint64 {
	for {
		batch, ok := w.events.since(sent, publishBatch)
		switch {
		case !ok: // readers see a gap
			sent = w.events.position() - kvRing/2
			continue
		case len(batch) == 0:
			return sent
		}
		id, name := w.term.Load().drt.ID(), w.Name()
		for _, e := range batch {
			e.Worker, e.WorkerID = name, id
			_ = w.cfg.Bus.Publish(ctx, w.subject(cluster.TopicKVEvents), e) // lost events show as gaps
		}
		sent += uint64(len(batch))
	}
}

// Sizes of the pages of an answer.
const (
	eventsPerPage = 128
	blocksPerPage = 1 << 16
)

// serveKVEvents gives a reader the events that it has missed or, if they are not kept any
// more, all blocks of the cache.
func (t *term) serveKVEvents(ctx context.Context, r *requestplane.Request, send func(any) error) error {
	var req protocol.KVEventsRequest
	if err := r.Decode(&req); err != nil {
		return err
	}
	page := protocol.KVEventsPage{Epoch: t.events.epoch}
	if req.Epoch == page.Epoch {
		if missed, ok := t.events.since(req.From, kvRing); ok {
			return sendEvents(page, req.From, missed, send)
		}
	}
	blocks, err := t.core.resident(ctx, func() { page.Next, page.Time = t.events.position(), time.Now() })
	if err != nil {
		return role.RemoteError(err)
	}
	page.All = true
	for {
		page.Blocks = blocks[:min(len(blocks), blocksPerPage)]
		blocks = blocks[len(page.Blocks):]
		if err := send(page); err != nil || len(blocks) == 0 {
			return err
		}
	}
}

func sendEvents(page protocol.KVEventsPage, from uint64, events []cluster.KVEvent, send func(any) error) error {
	page.Next = from + uint64(len(events))
	for {
		page.Events = events[:min(len(events), eventsPerPage)]
		events = events[len(page.Events):]
		if err := send(page); err != nil || len(events) == 0 {
			return err
		}
	}
}
