package events

import (
	"context"
	"errors"
	"strconv"
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

// DeadLetter is a message that was given up.
type DeadLetter struct {
	ID       string // as it was enqueued
	Reason   string
	Attempts int // deliveries so far
	At       time.Time
	Body     []byte
}

// LastDead returns the newest dead letter, or nil if there is none. It fails with
// ErrUnavailable.
func (q *JetStreamQueue) LastDead(ctx context.Context) (*DeadLetter, error) {
	found := make(chan *DeadLetter, 2) // f may still run after request has given up
	err := q.request(ctx, "dead letters of", func(ctx context.Context) error {
		dead, err := q.js.Stream(ctx, q.dead)
		if err != nil {
			return err
		}
		m, err := dead.GetLastMsgForSubject(ctx, q.dead+".queue")
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			found <- nil
			return nil
		}
		if err != nil {
			return err
		}
		d := &DeadLetter{ID: m.Header.Get(headerID), Reason: m.Header.Get(headerReason), At: m.Time, Body: m.Data}
		d.Attempts, _ = strconv.Atoi(m.Header.Get(headerAttempts)) // 0 for a letter that is not ours
		found <- d
		return nil
	})
	if err != nil {
		return nil, err
	}
	return <-found, nil
}
