package nixl

import (
	"context"
	"fmt"
	"sync"

	"github.com/dynctl/dynctl/internal/ondemand"
)

// Notification is a message of a peer. What it stands for, such as the data of
// a write, is readable when it arrives.
type Notification struct {
	From string // the sender's agent name
	Msg  []byte // the receiver's to keep; empty, never nil, for an empty message
}

// notifySelf delivers a message of the agent to itself. One that waits for room when
// ctx ends arrives nevertheless.
func (a *Agent) notifySelf(ctx context.Context, msg []byte) error {
	if n := a.selfNotes.Add(1); n > maxSelfNotes {
		a.selfNotes.Add(-1)
		return fmt.Errorf("notify %q itself: %d messages wait: %w", a.self.Name, maxSelfNotes, ErrBackend)
	}
	done := make(chan error, 1)
	a.inbox.deliver(a.self.Name, msg, func(err error) {
		a.selfNotes.Add(-1)
		done <- err
	})
	var err error
	select {
	case err = <-done:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("notify %q itself: %w", a.self.Name, err)
	}
	a.stats.notifyOut.Add(1)
	return nil
}

// maxSelfNotes bounds the messages to itself that an agent has not accepted yet.
const maxSelfNotes = 64

// notifyCost is added to the bytes of each notification, so that empty ones
// are bounded too.
const notifyCost = 64

// inbox queues notifications until the consumer takes them. It accepts up to a
// number of bytes; what is beyond waits unaccepted, which makes senders wait. The
// unaccepted rest is bounded by the window each transport grants a sender.
type inbox struct {
	limit   int64
	handler func(Notification) // may be nil
	out     chan Notification
	stats   *counters

	passing *ondemand.Task

	mu       sync.Mutex
	queue    []inboxItem
	accepted int   // leading items of queue that are accepted
	bytes    int64 // of the accepted ones
	closed   bool
}

type inboxItem struct {
	n    Notification
	done func(error)
}

func (it inboxItem) cost() int64 { return int64(len(it.n.Msg)) + notifyCost }

func newInbox(limit int64, handler func(Notification), stats *counters) *inbox {
	b := &inbox{limit: limit, handler: handler, stats: stats, out: make(chan Notification)}
	b.passing = ondemand.New(context.Background(), b.pass)
	return b
}

// deliver queues a notification; done is called when it is accepted or never will be.
func (b *inbox) deliver(from string, msg []byte, done func(error)) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		done(fmt.Errorf("deliver notification: agent is closed: %w", ErrRemoteDisconnect))
		return
	}
	b.queue = append(b.queue, inboxItem{Notification{From: from, Msg: append([]byte{}, msg...)}, done})
	accepted := b.acceptLocked()
	b.mu.Unlock()
	b.passing.Wake()
	for _, f := range accepted {
		f(nil)
	}
}

// acceptLocked accepts what fits, in order, and returns whom to tell.
func (b *inbox) acceptLocked() (tell []func(error)) {
	for b.accepted < len(b.queue) {
		it := &b.queue[b.accepted]
		if b.accepted > 0 && b.bytes+it.cost() > b.limit {
			break
		}
		b.accepted++
		b.bytes += it.cost()
		tell = append(tell, it.done)
		it.done = nil
	}
	return tell
}

// pass hands out what is accepted.
func (b *inbox) pass(ctx context.Context) {
	for {
		b.mu.Lock()
		if b.accepted == 0 {
			b.mu.Unlock()
			return
		}
		n := b.queue[0].n
		closed := b.closed
		b.mu.Unlock()
		if closed {
			return
		}
		if b.handler != nil {
			b.handler(n)
		} else {
			select {
			case b.out <- n:
			case <-ctx.Done():
				return
			}
		}
		b.stats.notifyIn.Add(1)
		b.mu.Lock()
		b.bytes -= b.queue[0].cost()
		b.queue[0] = inboxItem{}
		if b.queue = b.queue[1:]; len(b.queue) == 0 {
			b.queue = nil
		}
		b.accepted--
		tell := b.acceptLocked()
		b.mu.Unlock()
		for _, f := range tell {
			f(nil)
		}
	}
}

// waiting returns the number of accepted notifications not yet received.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted
}

func (b *inbox) close() {
	b.mu.Lock()
	b.closed = true
	rest := b.queue[b.accepted:]
	b.queue = b.queue[:b.accepted]
	b.mu.Unlock()
	for _, it := range rest {
		it.done(fmt.Errorf("deliver notification: agent closes: %w", ErrRemoteDisconnect))
	}
	b.passing.Close()
}
