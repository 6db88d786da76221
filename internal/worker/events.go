package worker

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// kvEvents takes KV events from the engine and publishes them. The engine never
// waits: when the channel is full an event is lost, but its id is spent, so every
// reader sees the gap.
type kvEvents struct {
	ch   chan cluster.KVEvent
	next atomic.Uint64
}

func newKVEvents() *kvEvents { return &kvEvents{ch: make(chan cluster.KVEvent, 4096)} }

func (k *kvEvents) put(e cluster.KVEvent) {
	e.EventID = k.next.Add(1) - 1
	e.Time = time.Now()
	select {
	case k.ch <- e:
	default:
	}
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

// publishKVEvents sends events until ctx ends.
func (w *Worker) publishKVEvents(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-w.events.ch:
			e.Worker = w.Name()
			e.WorkerID = w.term.Load().drt.ID()
			_ = w.cfg.Bus.Publish(ctx, w.subject(cluster.TopicKVEvents), e) // lost events show as gaps
		}
	}
}
