package events

import (
	"context"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"
)

// ensure waits until the streams and the consumer exist. A goroutine that outlives ctx
// makes them: the first time this may take longer than a caller's timeout, and the next
// caller then finds them.
func (q *JetStreamQueue) ensure(ctx context.Context) error {
	if q.ready.Load() {
		return nil
	}
	q.mu.Lock()
	a := q.making
	if a == nil {
		a = &attempt{done: make(chan struct{})}
		q.making = a
		if err := q.bus.spawn(func() { q.make(a) }); err != nil {
			q.making = nil
			q.mu.Unlock()
			return err
		}
	}
	q.mu.Unlock()
	select {
	case <-a.done:
		return a.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// attempt is one attempt to make the streams. All callers that need them wait for it.
type attempt struct {
	done chan struct{} // closed when err is set
	err  error
}

func (q *JetStreamQueue) make(a *attempt) {
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	a.err = q.makeStreams(ctx)
	q.ready.Store(a.err == nil)
	q.mu.Lock()
	q.making = nil
	q.mu.Unlock()
	close(a.done)
}

func (q *JetStreamQueue) makeStreams(ctx context.Context) error {
	_, err := q.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:        q.stream,
		Description: "prefill work of a namespace",
		Subjects:    []string{q.stream + ".*"},
		Retention:   jetstream.WorkQueuePolicy,
		Discard:     jetstream.DiscardNew,
		MaxMsgs:     int64(q.cfg.MaxMessages),
		MaxAge:      q.cfg.MaxAge,
		Duplicates:  q.cfg.DedupWindow,
		Storage:     jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("make stream %s: %w", q.stream, err)
	}
	_, err = q.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{
		Name:        q.dead,
		Description: "prefill work that was given up, with reasons",
		Subjects:    []string{q.dead + ".*"},
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxMsgs:     int64(q.cfg.MaxDead),
		Storage:     jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("make stream %s: %w", q.dead, err)
	}
	_, err = q.js.CreateOrUpdateConsumer(ctx, q.stream, jetstream.ConsumerConfig{
		Durable:       durableName,
		FilterSubject: q.subject(),
		AckPolicy:     jetstream.AckExplicitPolicy,
		AckWait:       q.cfg.AckWait,
		// The worker that sees one attempt too many dead-letters the message. With a
		// limit here, the server would only stop delivering the message and keep it until
		// MaxAge.
		MaxDeliver:    -1,
		MaxAckPending: q.cfg.MaxMessages,
		MaxWaiting:    4096, // waiting handlers of all workers
	})
	if err != nil {
		return fmt.Errorf("make consumer %s of %s: %w", durableName, q.stream, err)
	}
	return nil
}
