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

// Delivery is one message in the hands of one handler. One of Ack, Nak and Term
// takes effect; later ones do nothing and return nil. If it fails, it may be
// tried again.
type Delivery struct {
	ID   string
	Body []byte
	// Attempt is 1 for the first delivery of the message.
	Attempt int
	// Last says that there is no further attempt: Nak gives the message up.
	Last bool

	op      deliveryOps
	mu      sync.Mutex // one decision at a time
	settled atomic.Bool
}

// deliveryOps is what a queue does with a message in work.
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

// Ack says that the work is done and waits until the server knows. While the
// server is unreachable it keeps trying until ctx ends, at most 10 s; then it
// fails with ErrUnavailable and the message will be delivered again. Work that
// was finished while the process shuts down is worth a context that lives longer
// than the handler's.
func (d *Delivery) Ack(ctx context.Context) error {
	return d.settle(func() error { return d.op.ack(ctx) })
}

// Nak gives the message back, to be delivered again after delay. On its last
// attempt the message is dead-lettered.
func (d *Delivery) Nak(delay time.Duration) error {
	return d.settle(func() error { return d.op.nak(delay) })
}

// Term gives the message up: it goes to the dead letters with the reason.
func (d *Delivery) Term(reason string) error {
	return d.settle(func() error { return d.op.term(reason) })
}

// InProgress says that the work goes on. Consume does so by itself; a handler
// needs it only before something that may stop the whole process for seconds.
func (d *Delivery) InProgress() error {
	if d.settled.Load() {
		return nil
	}
	return d.op.inProgress()
}

// work runs the handler with signs of life, and gives the message back if the
// handler has not decided about it.
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
					log.Debug("sign of life failed", "id", d.ID, "err", err)
				}
			case <-ended:
				return
			}
		}
	})
	var delay time.Duration
	defer func() {
		if p := recover(); p != nil {
			// The next worker would panic too: give it time, and let the attempts run out.
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
