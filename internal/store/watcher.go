package store

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// watchQueue is the number of single changes that wait for a slow reader. Any more are
// folded into one Resync, so that a late reader never misses the final state.
const watchQueue = 1024

// Watcher delivers the history of one prefix. It survives lost connections,
// lost leaders and compaction; it ends only when its context ends, it is
// closed, or the store is.
type Watcher struct {
	cancel context.CancelCauseFunc
	events chan Event
	wake   chan struct{} // capacity 1: something is queued
	done   chan struct{} // closed after the last goroutine left
	// storeTrouble, if not nil, reports trouble that all watchers of the store share.
	storeTrouble func() (since time.Time, err error, next time.Time)

	mu     sync.Mutex
	state  map[string]KV // what the prefix holds now
	rev    Revision      // of state
	base   Revision      // of the last reset; older changes are in it already
	queue  []Event       // changes not delivered yet
	resync bool          // deliver state as a whole; queue is empty
	own    trouble
}

// trouble is a period without an answer from the store; a zero since means that there is
// none.
type trouble struct {
	since time.Time
	err   error
	next  time.Time
}

// newWatcher starts delivering. source runs on its own goroutine and feeds the
// watcher through push and reset until ctx ends.
func newWatcher(ctx context.Context, life *lifetime, all []KV, rev Revision,
	storeTrouble func() (time.Time, error, time.Time), source func(context.Context, *Watcher),
) (*Watcher, error) {
	finished, err := life.begin()
	if err != nil {
		return nil, err
	}
	w := &Watcher{
		events:       make(chan Event),
		wake:         make(chan struct{}, 1),
		done:         make(chan struct{}),
		storeTrouble: storeTrouble,
	}
	ctx, w.cancel = life.join(ctx)
	w.reset(all, rev)

	var wg sync.WaitGroup
	wg.Go(func() { w.deliver(ctx) })
	wg.Go(func() { source(ctx, w) })
	go func() {
		wg.Wait()
		w.cancel(nil)
		close(w.done)
		finished()
	}()
	return w, nil
}

// Events returns the channel of events. It is closed when the watch ends,
// which happens only through its context, Close, or the store's Close.
func (w *Watcher) Events() <-chan Event { return w.events }

// Close ends the watch and waits for its goroutines. Closing twice is fine.
func (w *Watcher) Close() {
	w.cancel(ErrClosed)
	<-w.done
}

// Stale reports since when events may be missing because the store cannot be reached,
// why, and when the next attempt is due. A zero since means that the watch is current.
//
//nolint:revive,staticcheck // the order is that of the question: since when, why, until when
func (w *Watcher) Stale() (since time.Time, err error, next time.Time) {
	w.mu.Lock()
	t := w.own
	w.mu.Unlock()
	if t.since.IsZero() && w.storeTrouble != nil {
		return w.storeTrouble()
	}
	return t.since, t.err, t.next
}

// push records one change. It never blocks.
func (w *Watcher) push(ev Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ev.Revision <= w.base {
		return
	}
	switch ev.Type {
	case Put:
		w.state[ev.KV.Key] = ev.KV
	case Delete:
		previous, known := w.state[ev.KV.Key]
		if !known {
			return
		}
		ev.KV = previous
		delete(w.state, ev.KV.Key)
	}
	w.rev = ev.Revision
	switch {
	case w.resync: // the state to be delivered includes the change
	case len(w.queue) >= watchQueue:
		w.queue, w.resync = nil, true
	default:
		w.queue = append(w.queue, ev)
	}
	w.signal()
}

// reset replaces the whole state; the reader gets it as one Resync.
func (w *Watcher) reset(all []KV, rev Revision) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = make(map[string]KV, len(all))
	for _, kv := range all {
		w.state[kv.Key] = kv
	}
	w.rev, w.base = rev, rev
	w.queue, w.resync = nil, true
	w.own = trouble{}
	w.signal()
}

// failing records that the source cannot read the store now.
func (w *Watcher) failing(err error, next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.own.since.IsZero() {
		w.own.since = time.Now()
	}
	w.own.err, w.own.next = err, next
}

func (w *Watcher) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *Watcher) deliver(ctx context.Context) {
	defer close(w.events)
	for {
		ev, ok := w.take()
		if !ok {
			select {
			case <-w.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		select {
		case w.events <- ev:
		case <-ctx.Done():
			return
		}
	}
}

// take removes the next event to deliver.
func (w *Watcher) take() (Event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.resync {
		w.resync = false
		return Event{Type: Resync, All: sortedKVs(w.state), Revision: w.rev}, true
	}
	if len(w.queue) == 0 {
		return Event{}, false
	}
	ev := w.queue[0]
	w.queue[0] = Event{} // release the value for the garbage collector
	w.queue = w.queue[1:]
	return ev, true
}

func sortedKVs(m map[string]KV) []KV {
	return slices.SortedFunc(maps.Values(m), func(a, b KV) int { return cmp.Compare(a.Key, b.Key) })
}
