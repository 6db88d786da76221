package events

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// MemoryQueue is a [WorkQueue] inside one process, with the same rules as the one in
// JetStream. [NewMemoryQueue] makes the first user of a queue; users made by Join share
// it.
type MemoryQueue struct {
	*memoryQueue
	log *slog.Logger

	// Guarded by the queue's mutex.
	killed  bool
	enqueue map[string]*memoryItem // by id: messages that this user has enqueued, for Remove
}

var _ WorkQueue = (*MemoryQueue)(nil)

// memoryQueue is the shared state.
type memoryQueue struct {
	cfg QueueConfig

	mu      sync.Mutex
	seq     uint64
	pending []*memoryItem // oldest first
	inWork  map[*memoryItem]struct{}
	ids     map[string]time.Time // when each id was last accepted
	dead    int
	changed chan struct{} // closed and replaced when a message becomes pending
}

// memoryItem is one message.
type memoryItem struct {
	seq      uint64
	id       string
	body     []byte
	at       time.Time
	attempts int
	expiry   *time.Timer // of the acknowledgement, while in work
	gone     bool        // done, dead-lettered or removed
}

// NewMemoryQueue returns an empty queue.
func NewMemoryQueue(cfg QueueConfig) *MemoryQueue {
	return (&MemoryQueue{memoryQueue: &memoryQueue{
		cfg:     cfg.withDefaults(),
		inWork:  make(map[*memoryItem]struct{}),
		ids:     make(map[string]time.Time),
		changed: make(chan struct{}),
	}}).Join()
}

// Join returns another user of the same queue, as if in another process.
func (q *MemoryQueue) Join() *MemoryQueue {
	return &MemoryQueue{
		memoryQueue: q.memoryQueue,
		log:         slog.New(slog.DiscardHandler),
		enqueue:     make(map[string]*memoryItem),
	}
}

// Kill cuts this user off, as if its process had died. Nothing it does reaches the queue
// any more. Its messages in work go to other users after the AckWait.
func (q *MemoryQueue) Kill() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.killed = true
}

// Enqueue implements [WorkQueue].
func (q *MemoryQueue) Enqueue(ctx context.Context, id string, body []byte) error {
	if id == "" {
		return fmt.Errorf("enqueue: message without id")
	}
	if ctx.Err() != nil {
		return fmt.Errorf("enqueue: %w", context.Cause(ctx))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.killed {
		return fmt.Errorf("enqueue: %w", ErrUnavailable)
	}
	now := time.Now()
	q.expireLocked(now)
	if _, ok := q.ids[id]; ok {
		return nil
	}
	if len(q.pending)+len(q.inWork) >= q.cfg.MaxMessages {
		return fmt.Errorf("enqueue: %w", ErrFull)
	}
	q.seq++
	it := &memoryItem{seq: q.seq, id: id, body: slices.Clone(body), at: now}
	q.ids[id] = now
	q.enqueue[id] = it
	q.pushLocked(it)
	return nil
}

// expireLocked forgets old ids and deletes old messages.
func (q *MemoryQueue) expireLocked(now time.Time) {
	for id, at := range q.ids {
		if now.Sub(at) > q.cfg.DedupWindow {
			delete(q.ids, id)
		}
	}
	for id, it := range q.enqueue {
		if it.gone || now.Sub(it.at) > q.cfg.MaxAge {
			delete(q.enqueue, id)
		}
	}
	q.pending = slices.DeleteFunc(q.pending, func(it *memoryItem) bool { return now.Sub(it.at) > q.cfg.MaxAge })
}

// pushLocked makes a message pending, sorted by age.
func (q *memoryQueue) pushLocked(it *memoryItem) {
	i, _ := slices.BinarySearchFunc(q.pending, it.seq, func(p *memoryItem, seq uint64) int {
		return int(int64(p.seq) - int64(seq))
	})
	q.pending = slices.Insert(q.pending, i, it)
	close(q.changed)
	q.changed = make(chan struct{})
}

// pull waits for a message and takes it into work. It returns nil when ctx ends.
func (q *MemoryQueue) pull(ctx context.Context) *memoryWork {
	for ctx.Err() == nil {
		q.mu.Lock()
		q.expireLocked(time.Now())
		if len(q.pending) > 0 && !q.killed {
			it := q.pending[0]
			q.pending = q.pending[1:]
			it.attempts++
			q.inWork[it] = struct{}{}
			w := &memoryWork{q: q, it: it, attempt: it.attempts}
			it.expiry = time.AfterFunc(q.cfg.AckWait, func() { q.expired(it, w.attempt) })
			q.mu.Unlock()
			return w
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
		}
	}
	return nil
}

// expired gives a message to another worker because its worker was silent.
func (q *memoryQueue) expired(it *memoryItem, attempt int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if _, ok := q.inWork[it]; ok && it.attempts == attempt {
		delete(q.inWork, it)
		q.pushLocked(it)
	}
}

// Consume implements [WorkQueue].
func (q *MemoryQueue) Consume(ctx context.Context, concurrency int, h func(context.Context, *Delivery)) error {
	var slots sync.WaitGroup
	for range max(concurrency, 1) {
		slots.Go(func() {
			for w := q.pull(ctx); w != nil; w = q.pull(ctx) {
				if w.attempt > q.cfg.MaxDeliver {
					_ = w.term("not acknowledged") // fails when the queue is closed; so does the next pull
					continue
				}
				d := &Delivery{ID: w.it.id, Body: slices.Clone(w.it.body), Attempt: w.attempt, Last: w.attempt >= q.cfg.MaxDeliver, Offset: w.it.seq, StoredAt: w.it.at, op: w}
				d.work(ctx, q.cfg.progressEvery(), h, q.log)
			}
		})
	}
	slots.Wait()
	return context.Cause(ctx)
}

// Waiting implements [WorkQueue].
func (q *MemoryQueue) Waiting(ctx context.Context) (int, error) {
	d, err := q.Depth(ctx)
	return d.Pending, err
}

// Depth implements [WorkQueue].
func (q *MemoryQueue) Depth(ctx context.Context) (Depth, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.killed {
		return Depth{}, fmt.Errorf("depth: %w", ErrUnavailable)
	}
	q.expireLocked(time.Now())
	return Depth{Pending: len(q.pending), InWork: len(q.inWork), DeadLettered: q.dead}, nil
}

// Remove implements [WorkQueue].
func (q *MemoryQueue) Remove(ctx context.Context, id string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	it := q.enqueue[id]
	delete(q.enqueue, id)
	switch {
	case q.killed:
		return fmt.Errorf("remove: %w", ErrUnavailable)
	case it != nil:
		q.dropLocked(it)
	}
	return nil
}

// dropLocked removes a message, whatever its state.
func (q *memoryQueue) dropLocked(it *memoryItem) {
	if it.expiry != nil {
		it.expiry.Stop()
	}
	it.gone = true
	delete(q.inWork, it)
	q.pending = slices.DeleteFunc(q.pending, func(p *memoryItem) bool { return p == it })
}

// memoryWork is a message that a handler works on.
type memoryWork struct {
	q       *MemoryQueue
	it      *memoryItem
	attempt int
}

var _ deliveryOps = (*memoryWork)(nil)

// do runs f under the queue's mutex.
func (w *memoryWork) do(f func()) error {
	w.q.mu.Lock()
	defer w.q.mu.Unlock()
	if w.q.killed {
		return fmt.Errorf("message %s: %w", w.it.id, ErrUnavailable)
	}
	f()
	return nil
}

// heldLocked reports whether this worker still has the message.
func (w *memoryWork) heldLocked() bool {
	_, ok := w.q.inWork[w.it]
	return ok && w.it.attempts == w.attempt
}

// ack counts even if another worker has the message by now, because the work is done.
func (w *memoryWork) ack(context.Context) error {
	return w.do(func() { w.q.dropLocked(w.it) })
}

func (w *memoryWork) nak(delay time.Duration) error {
	if w.attempt >= w.q.cfg.MaxDeliver {
		return w.term("given back in the last attempt")
	}
	return w.do(func() {
		if !w.heldLocked() {
			return
		}
		w.it.expiry.Stop()
		if delay > 0 {
			w.it.expiry = time.AfterFunc(delay, func() { w.q.expired(w.it, w.attempt) })
			return
		}
		delete(w.q.inWork, w.it)
		w.q.pushLocked(w.it)
	})
}

func (w *memoryWork) term(reason string) error {
	return w.do(func() {
		if w.it.gone {
			return
		}
		w.q.dropLocked(w.it)
		w.q.dead = min(w.q.dead+1, w.q.cfg.MaxDead)
	})
}

func (w *memoryWork) inProgress() error {
	return w.do(func() {
		if w.heldLocked() {
			w.it.expiry.Reset(w.q.cfg.AckWait)
		}
	})
}
