package events

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Queued describes a message of a work queue for observers.
type Queued struct {
	ID       string // as it was enqueued
	StoredAt time.Time
	InWork   bool // a worker has it, or returned it to the queue
	Body     []byte
}

// Peek returns the oldest messages of the queue, at most n, without taking them. It
// fails with ErrUnavailable.
func (q *JetStreamQueue) Peek(ctx context.Context, n int) ([]Queued, error) {
	found := make(chan []Queued, 2) // f may still run after request has given up
	err := q.request(ctx, "look into", func(ctx context.Context) error {
		work, err := q.js.Stream(ctx, q.stream)
		if err != nil {
			return err
		}
		c, err := q.js.Consumer(ctx, q.stream, q.durable)
		if err != nil {
			return err
		}
		var out []Queued
		for seq := work.CachedInfo().State.FirstSeq; len(out) < n; {
			m, err := work.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(q.subject)) // the next message from seq on
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				break
			}
			if err != nil {
				return err
			}
			out = append(out, Queued{
				ID: m.Header.Get(jetstream.MsgIDHeader), StoredAt: m.Time, Body: m.Data,
				InWork: m.Sequence <= c.CachedInfo().Delivered.Stream,
			})
			seq = m.Sequence + 1
		}
		found <- out
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}
