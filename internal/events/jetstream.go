package events

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	prefillWorkers = "prefill-workers" // consumer that all workers of the queue share

	// queueTimeout limits Enqueue, Depth and Remove. A caller that cannot use the queue
	// must soon find another way.
	queueTimeout = 500 * time.Millisecond
	// setupTimeout limits making the streams and the consumer.
	setupTimeout = 5 * time.Second

	// Codes of JetStream API errors that the library has no names for.
	codeMaxMessages = 10077
	codeMaxPayload  = 10054

	// Headers of dead letters.
	headerID       = "Dynctl-Id"
	headerReason   = "Dynctl-Reason"
	headerAttempts = "Dynctl-Attempts"
)

// JetStreamQueue is the [WorkQueue] of a namespace in JetStream: a file stream
// with work-queue retention and one durable pull consumer. Make one with
// [NATS.WorkQueue].
type JetStreamQueue struct {
	bus     *NATS
	js      jetstream.JetStream
	cfg     QueueConfig
	log     *slog.Logger
	stream  string
	subject string // of the messages
	dead    string // stream of the dead letters
	durable string // name of the consumer
	keeps   bool   // messages stay in the stream when they are acknowledged: it is a journal
	// setup makes what does not exist. It returns when the stream was made.
	setup func(context.Context) (born time.Time, err error)

	ready atomic.Pointer[streams]          // nil before the first check, and when one is missed
	work  atomic.Pointer[jetstream.Stream] // a handle, which is a name; nil before the first Remove

	mu     sync.Mutex
	making *attempt // the attempt under way to make the streams; nil without
	born   time.Time
	sent   sentIDs                 // of the stream that was made at born
	inWork map[messageKey]handling // messages that this value's handlers work on, or finished lately
	done   []messageKey            // those finished lately, oldest first
	// leaving are the messages that must leave the server; while there are some, escort runs.
	leaving []*departure
}

var _ WorkQueue = (*JetStreamQueue)(nil)

// WorkQueue returns the namespace's prefill queue. It does not use the network: the
// streams are made when they are first needed.
func (n *NATS) WorkQueue(namespace string, cfg QueueConfig) (*JetStreamQueue, error) {
	if slug(namespace) == "" {
		return nil, fmt.Errorf("work queue: bad namespace %q", namespace)
	}
	js, err := jetstream.New(n.nc)
	if err != nil {
		return nil, fmt.Errorf("work queue %s: %w", namespace, err)
	}
	cfg = cfg.withDefaults()
	stream := QueueName(namespace)
	q := &JetStreamQueue{
		bus:     n,
		js:      js,
		cfg:     cfg,
		log:     n.log.With("queue", stream),
		stream:  stream,
		subject: stream + ".queue",
		dead:    DeadName(namespace),
		durable: prefillWorkers,
		sent:    sentIDs{max: 2 * cfg.MaxMessages},
		inWork:  make(map[messageKey]handling),
	}
	q.setup = q.makeStreams
	return q, nil
}

// request calls f, which talks to the server, once the streams exist. If the streams are
// missing, because the server lost its data, it makes them and calls f once more.
func (q *JetStreamQueue) request(ctx context.Context, what string, f func(context.Context) error) error {
	if !q.bus.Connected() {
		return fmt.Errorf("%s %s: %w", what, q.stream, ErrUnavailable)
	}
	own, cancel := context.WithTimeout(ctx, queueTimeout)
	defer cancel()
	err := q.bus.call(own, func() error {
		for range 2 {
			if err := q.ensure(own); err != nil {
				return err
			}
			err := f(own)
			if !missing(err) {
				return err
			}
			q.ready.Store(nil)
		}
		return errors.New("streams are not there")
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s %s: %w", what, q.stream, context.Cause(ctx))
	case errors.Is(err, ErrFull), errors.Is(err, ErrTooLarge), errors.Is(err, ErrClosed), taken(err):
		return fmt.Errorf("%s %s: %w", what, q.stream, err)
	}
	return fmt.Errorf("%s %s: %w: %w", what, q.stream, ErrUnavailable, err)
}

// missing reports whether err says that the stream or the consumer does not exist.
func missing(err error) bool {
	return errors.Is(err, jetstream.ErrNoStreamResponse) ||
		errors.Is(err, jetstream.ErrStreamNotFound) ||
		errors.Is(err, jetstream.ErrConsumerNotFound) ||
		errors.Is(err, jetstream.ErrConsumerDeleted) ||
		errors.Is(err, nats.ErrNoResponders)
}

// Enqueue implements [WorkQueue].
func (q *JetStreamQueue) Enqueue(ctx context.Context, id string, body []byte) error {
	if id == "" {
		return fmt.Errorf("enqueue %s: message without id", q.stream)
	}
	return q.request(ctx, "enqueue", func(ctx context.Context) error {
		there := q.ready.Load()
		ack, err := q.js.Publish(ctx, q.subject, body, jetstream.WithMsgID(id), jetstream.WithRetryAttempts(0))
		if err == nil {
			q.mu.Lock()
			if there != nil && q.born.Equal(there.born) {
				q.sent.put(id, ack.Sequence)
			}
			q.mu.Unlock()
			return nil
		}
		var api *jetstream.APIError
		switch {
		case errors.As(err, &api) && api.ErrorCode == codeMaxMessages:
			return ErrFull
		case errors.As(err, &api) && api.ErrorCode == codeMaxPayload, errors.Is(err, nats.ErrMaxPayload):
			return fmt.Errorf("%d bytes: %w", len(body), ErrTooLarge)
		}
		return err
	})
}

// Waiting implements [WorkQueue].
func (q *JetStreamQueue) Waiting(ctx context.Context) (int, error) {
	found := make(chan int, 2) // f may still run after request has given up
	err := q.request(ctx, "depth of", func(ctx context.Context) error {
		c, err := q.js.Consumer(ctx, q.stream, q.durable) // one request
		if err != nil {
			return err
		}
		found <- int(c.CachedInfo().NumPending)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return <-found, nil
}

// Depth implements [WorkQueue].
func (q *JetStreamQueue) Depth(ctx context.Context) (Depth, error) {
	found := make(chan Depth, 2) // f may still run after request has given up
	err := q.request(ctx, "depth of", func(ctx context.Context) error {
		c, err := q.js.Consumer(ctx, q.stream, q.durable)
		if err != nil {
			return err
		}
		inWork := c.CachedInfo().NumAckPending
		// The consumer counts a message slightly later than its publisher.
		work, err := q.js.Stream(ctx, q.stream)
		if err != nil {
			return err
		}
		dead, err := q.js.Stream(ctx, q.dead)
		if err != nil {
			return err
		}
		found <- Depth{
			Pending:      max(0, int(work.CachedInfo().State.Msgs)-inWork),
			InWork:       inWork,
			DeadLettered: int(dead.CachedInfo().State.Msgs),
		}
		return nil
	})
	if err != nil {
		return Depth{}, err
	}
	return <-found, nil
}

// Remove implements [WorkQueue].
func (q *JetStreamQueue) Remove(ctx context.Context, id string) error {
	q.mu.Lock()
	seq, ok := q.sent.take(id)
	born := q.born
	q.mu.Unlock()
	if !ok {
		return nil
	}
	leave := func(ctx context.Context) error { return q.remove(ctx, id, seq, born) }
	err := q.request(ctx, "remove from", leave)
	if err == nil {
		return nil
	}
	if _, full := q.depart(id, leave); full != nil {
		return fmt.Errorf("%w; %w", err, full)
	}
	return err
}
