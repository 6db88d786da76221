package events

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"
)

// Delivery is one message that a handler works on. The first call of Ack, Nak or Term
// decides; later ones do nothing and return nil. A call that fails may be repeated.
type Delivery struct {
	ID   string
	Body []byte
	// Attempt is 1 for the first delivery of the message.
	Attempt int
	// Last says that this is the last attempt: Nak dead-letters the message.
	Last bool
	// Offset is the place of the message in its queue or journal, and StoredAt when it came
	// there.
	Offset   uint64
	StoredAt time.Time

	op      deliveryOps
	mu      sync.Mutex // one decision at a time
	settled atomic.Bool
}

// deliveryOps are a queue's operations on a message in work.
type deliveryOps interface {
	ack(ctx context.Context) error
	nak(delay time.Duration) error
	term(reason string) error
	inProgress() error
}

func (d *Delivery) settle(f func() error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.settled.Load() {
		return nil
	}
	err := f()
	d.settled.Store(err == nil)
	return err
}

// Ack reports that the work is done and waits for the server's confirmation, until ctx ends,
// at most 10 s. Then it fails with ErrUnavailable. The queue remembers the message: it does
// not hand it out here again, and takes it off the server when that is reached, as long as
// the queue's connection is open. Another process may get it before. The error says so if too
// many messages are remembered already. For work that finishes during shutdown, pass a
// context that lives longer than the handler's.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(func() error { return d.op.ack(ctx) })
}

// Nak returns the message to the queue, which delivers it again after delay. On its last
// attempt the message is dead-lettered.
func (d *Delivery) Nak(delay time.Duration) error {
	return d.settle(func() error { return d.op.nak(delay) })
}

// Term moves the message to the dead letters with the reason.
func (d *Delivery) Term(reason string) error {
	return d.settle(func() error { return d.op.term(reason) })
}

// InProgress tells the queue that the work continues. Consume does so by itself. A
// handler needs it only before something that may stop the whole process for seconds.
func (d *Delivery) InProgress() error {
	if d.settled.Load() {
		return nil
	}
	return d.op.inProgress()
}

// work runs the handler and reports progress meanwhile. If the handler has not decided
// about the message, work returns it to the queue.
func (d *Delivery) work(ctx context.Context, every time.Duration, h func(context.Context, *Delivery), log *slog.Logger) {
	ended := make(chan struct{})
	var signs sync.WaitGroup
	signs.Go(func() {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := d.InProgress(); err != nil {
					log.Debug("progress report of a queue message failed", "id", d.ID, "err", err)
				}
			case <-ended:
				return
			}
		}
	})
	var delay time.Duration
	defer func() {
		if p := recover(); p != nil {
			// The next worker would panic too, so wait and let the attempts run out.
			log.Error("queue handler panicked", "id", d.ID, "attempt", d.Attempt, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
			delay = time.Second
		}
		close(ended)
		signs.Wait()
		if err := d.Nak(delay); err != nil {
			log.Warn("message not given back, its acknowledgement will time out", "id", d.ID, "err", err)
		}
	}()
	h(ctx, d)
}
