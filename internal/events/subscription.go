package events

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// maxQueued is the number of events that may wait for one subscription's handler.
const maxQueued = 8192

// message is an event as received.
type message struct {
	subject string
	data    []byte
}

// subscriber is the part of a subscription that all buses share: a bounded queue, and the
// goroutine that passes its events to the handler.
type subscriber struct {
	take     func(message) // runs the handler
	queue    chan message
	received *atomic.Uint64 // of the bus

	gaps    atomic.Uint64
	dropped atomic.Uint64

	leave  func() // takes the subscription off the bus
	once   sync.Once
	stop   chan struct{} // closed by shut
	done   chan struct{} // closed after the last call of the handler
	detach func() bool   // stops watching the subscriber's context
}

var _ Subscription = (*subscriber)(nil)

// newSubscriber returns a subscriber whose handler gets events.
func newSubscriber(h func(Event), malformed, received *atomic.Uint64) *subscriber {
	s := newRawSubscriber(nil, received)
	seen := make(gapCounter)
	s.take = func(m message) {
		e, err := decodeEnvelope(m.subject, m.data)
		if err != nil {
			malformed.Add(1)
			return
		}
		e.Missed = seen.missed(e.PublisherID, e.Sequence, time.Now())
		s.gaps.Add(e.Missed)
		s.received.Add(1)
		h(e)
	}
	return s
}

// newRawSubscriber returns a subscriber whose handler gets messages as they came.
func newRawSubscriber(h func(Message), received *atomic.Uint64) *subscriber {
	s := &subscriber{
		queue:    make(chan message, maxQueued),
		received: received,
		stop:     make(chan struct{}),
		done:     make(chan struct{}),
	}
	s.take = func(m message) {
		s.received.Add(1)
		h(Message{Subject: m.subject, Data: m.data})
	}
	return s
}

// start starts a goroutine that calls the handler until Close or the end of ctx. The
// bus's group waits for it. leave must be set.
func (s *subscriber) start(ctx context.Context, group *sync.WaitGroup) {
	group.Go(s.run)
	s.detach = context.AfterFunc(ctx, s.shut)
}

// offer queues a message, or drops it.
func (s *subscriber) offer(m message) {
	select {
	case s.queue <- m:
	default:
		s.dropped.Add(1)
	}
}

func (s *subscriber) run() {
	defer close(s.done)
	for {
		select {
		case m := <-s.queue:
			select {
			case <-s.stop:
				return
			default:
			}
			s.take(m)
		case <-s.stop:
			return
		}
	}
}

// shut ends the subscription without waiting for the handler.
func (s *subscriber) shut() {
	s.once.Do(func() {
		s.leave()
		close(s.stop)
	})
}

// Gaps implements [Subscription].
func (s *subscriber) Gaps() uint64 { return s.gaps.Load() }

// Dropped implements [Subscription].
func (s *subscriber) Dropped() uint64 { return s.dropped.Load() }

// Close implements [Subscription].
func (s *subscriber) Close() error {
	s.detach()
	s.shut()
	<-s.done
	return nil
}
