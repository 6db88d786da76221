package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/events"
)

// Journal keeps the events on one topic, for programs that come later or must not miss any.
// What is appended also reaches those who subscribe to the topic, and what is published
// there is kept, too. With a cluster, NATS keeps it on disk: for an hour, up to 256 MiB.
type Journal struct {
	j       events.Journal
	subject string
}

// Journal returns the journal of a topic of a component of the runtime's namespace.
func (r *Runtime) Journal(component, topic string) (*Journal, error) {
	b, err := r.bus()
	if err != nil {
		return nil, err
	}
	subject, err := r.subject(component, topic, false)
	if err != nil {
		return nil, err
	}
	j, err := b.Journal(subject, events.JournalConfig{})
	if err != nil {
		return nil, err
	}
	return &Journal{j, subject}, nil
}

// Record is one event of a journal.
type Record struct {
	Event
	Offset   uint64    // from 1 on
	StoredAt time.Time // by the server's clock
	// Lost counts the events right before this one that the journal no longer keeps.
	Lost uint64
}

// From says where reading begins. The zero From is the oldest event.
type From struct {
	Offset uint64    // the first event at or after it
	Since  time.Time // the first event stored at or after it
	New    bool      // only events that are stored later
}

// Append stores an event and returns its offset when it is stored. The id, if it is not
// empty, makes retries safe: within two minutes, an event with the same id is stored once.
func (j *Journal) Append(ctx context.Context, id string, v any) (offset uint64, err error) {
	return j.j.Append(ctx, id, v)
}

// Read calls f for each event, in order, until ctx ends or f fails, and returns the cause.
// While the server cannot be reached, it waits.
func (j *Journal) Read(ctx context.Context, from From, f func(Record) error) error {
	return j.j.Read(ctx, events.Start(from), func(r events.Record) error { return f(recorded(r)) })
}

func recorded(r events.Record) Record {
	return Record{Event: Event{Topic: r.Topic, PublishedAt: r.PublishedAt, Missed: r.Missed, e: r.Event}, Offset: r.Offset, StoredAt: r.StoredAt, Lost: r.Lost}
}

// Consume shares the events with all who consume under the same name of a group: each is
// handed to one of them, up to concurrency at a time, until f returns nil for it. An event for
// which f failed five times becomes a dead letter. The group's place outlives its programs;
// from counts only for the first of them. Consume returns the cause when ctx ends.
func (j *Journal) Consume(ctx context.Context, group string, from From, concurrency int, f func(context.Context, Record) error) error {
	g, err := j.j.Group(group, events.Start(from))
	if err != nil {
		return err
	}
	return g.Consume(ctx, concurrency, func(ctx context.Context, d *events.Delivery) {
		r, err := events.DecodeRecord(j.subject, d)
		if err != nil {
			_ = d.Term(fmt.Sprintf("not readable: %v", err)) // or it is delivered again
			return
		}
		if f(ctx, recorded(r)) != nil {
			_ = d.Nak(time.Second) // or it is delivered again, when its time is over
			return
		}
		// What is done is acknowledged, also when the program stops.
		_ = d.Ack(context.WithoutCancel(ctx)) // or it is delivered again
	})
}
