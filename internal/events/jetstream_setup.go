package events

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// streams are the streams and the consumer as they were found.
type streams struct {
	reconnects uint64    // of the connection they were found on
	born       time.Time // when the stream of the queue was made, by the server's clock
}

// errStreamsReplaced means that the server has lost the streams and that they were made
// again.
var errStreamsReplaced = errors.New("the server has lost its streams")

// ensure waits until the streams and the consumer exist. After a reconnect it checks that
// again, because the server may have lost them. A goroutine that outlives ctx
// makes them: the first time this may take longer than a caller's timeout, and the next
// caller then finds them.
func (q *JetStreamQueue) ensure(ctx context.Context) error {
	if there := q.ready.Load(); there != nil && there.reconnects == q.bus.reconnects() {
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
	there := &streams{reconnects: q.bus.reconnects()}
	there.born, a.err = q.setup(ctx)
	q.mu.Lock()
	if a.err == nil {
		if !q.born.Equal(there.born) {
			q.born, q.sent = there.born, sentIDs{max: q.sent.max}
		}
		q.ready.Store(there)
	} else {
		q.ready.Store(nil)
	}
	q.making = nil
	q.mu.Unlock()
	close(a.done)
}

// makeStreams makes what does not exist. It returns when the stream of the queue was made.
func (q *JetStreamQueue) makeStreams(ctx context.Context) (born time.Time, err error) {
	work, err := q.makeStream(ctx, jetstream.StreamConfig{
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
		return born, fmt.Errorf("make stream %s: %w", q.stream, err)
	}
	if err := q.makeDead(ctx); err != nil {
		return born, err
	}
	return work.CachedInfo().Created, q.makeConsumer(ctx, jetstream.ConsumerConfig{
		MaxAckPending: q.cfg.MaxMessages,
		MaxWaiting:    4096, // waiting handlers of all workers
	})
}

// makeStream makes a stream, or changes one that is otherwise. One that is as it should be is left
// alone: every node asks for it when it starts, and consumers of others wait for an update.
func (q *JetStreamQueue) makeStream(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	if there, err := q.js.Stream(ctx, want.Name); err == nil {
		have := there.CachedInfo().Config
		if slices.Equal(have.Subjects, want.Subjects) && have.Description == want.Description && have.Retention == want.Retention &&
			have.Discard == want.Discard && have.MaxMsgs == want.MaxMsgs && have.MaxAge == want.MaxAge && have.Storage == want.Storage &&
			(want.Duplicates == 0 || have.Duplicates == want.Duplicates) {
			return there, nil
		}
	}
	return q.js.CreateOrUpdateStream(ctx, want)
}

// makeDead makes the stream of the dead letters.
func (q *JetStreamQueue) makeDead(ctx context.Context) error {
	subjects := []string{q.dead + ".*"}
	if there, err := q.js.Stream(ctx, q.dead); err == nil && !slices.Equal(there.CachedInfo().Config.Subjects, subjects) {
		return fmt.Errorf("stream %s, for dead letters, keeps %s: %w", q.dead, strings.Join(there.CachedInfo().Config.Subjects, ", "), ErrJournalTaken)
	}
	_, err := q.makeStream(ctx, jetstream.StreamConfig{
		Name:        q.dead,
		Description: "messages that were given up, with reasons",
		Subjects:    subjects,
		Retention:   jetstream.LimitsPolicy,
		Discard:     jetstream.DiscardOld,
		MaxMsgs:     int64(q.cfg.MaxDead),
		Storage:     jetstream.FileStorage,
	})
	if err != nil {
		return fmt.Errorf("make stream %s: %w", q.dead, err)
	}
	return nil
}

// makeConsumer makes the consumer, with what c adds.
func (q *JetStreamQueue) makeConsumer(ctx context.Context, c jetstream.ConsumerConfig) error {
	c.Durable, c.FilterSubject = q.durable, q.subject
	c.AckPolicy, c.AckWait = jetstream.AckExplicitPolicy, q.cfg.AckWait
	// The worker that sees one attempt too many dead-letters the message. With a limit
	// here, the server would only stop delivering the message and keep it until MaxAge.
	c.MaxDeliver = -1
	if _, err := q.js.CreateOrUpdateConsumer(ctx, q.stream, c); err != nil {
		return fmt.Errorf("make consumer %s of %s: %w", q.durable, q.stream, err)
	}
	return nil
}
