package events

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"time"

	"github.com/dynctl/dynctl/internal/protocol"
)

// Errors of this package.
var (
	// ErrUnavailable is returned when the server cannot be reached now.
	ErrUnavailable = errors.New("nats unavailable")
	// ErrClosed is returned after Close.
	ErrClosed = errors.New("closed")
	// ErrDropped is returned by Publish when the outbox is full. The bus counts the
	// event, and subscribers see a gap.
	ErrDropped = errors.New("event dropped: outbox full")
	// ErrTooLarge is returned by Publish and Enqueue for a message over the server's
	// limit.
	ErrTooLarge = errors.New("message too large")
	// ErrSubject is returned when a subject or pattern is malformed.
	ErrSubject = errors.New("bad subject")
)

// Bus is the event plane. It delivers each event at most once, never blocks the publisher
// and makes gaps visible. All methods are safe for concurrent use.
type Bus interface {
	// Publish encodes v as msgpack and hands it to the outbox. It never waits for
	// the network: with the outbox full it fails with ErrDropped. Events of one
	// subject are delivered in the order of their Publish calls.
	Publish(ctx context.Context, subject string, v any) error

	// Subscribe calls h, from one goroutine, for each event on a matching subject.
	// The pattern may hold the wildcards "*" (one token) and ">" (the rest). A
	// handler that falls behind its bounded queue loses events, which are counted.
	// The subscription lasts until its Close, the end of ctx or the bus's Close.
	// While the server is unreachable it stays in place and resumes by itself.
	Subscribe(ctx context.Context, pattern string, h func(Event)) (Subscription, error)

	// PublishBytes hands bytes to the outbox, as Publish does, without an envelope: for
	// programs that exchange formats of their own. Nobody can tell whether one was lost.
	PublishBytes(ctx context.Context, subject string, data []byte) error

	// SubscribeBytes calls h for each message on a matching subject, whatever its format, as
	// Subscribe does for events. The subscription knows of no gaps: its Gaps are 0.
	SubscribeBytes(ctx context.Context, pattern string, h func(Message)) (Subscription, error)

	// Journal returns the journal of a subject. It does not wait for the server, which makes
	// the journal when it is first used.
	Journal(subject string, cfg JournalConfig) (Journal, error)

	// Connected reports whether the server is reachable now.
	Connected() bool

	// Ping measures one round trip to the server. It fails with ErrUnavailable.
	Ping(ctx context.Context) (rtt time.Duration, err error)

	// Stats returns the counters so far.
	Stats() Stats

	// Close flushes the outbox for a moment, ends all subscriptions and awaits
	// their handlers. It is safe to call more than once.
	Close() error
}

// Subscription is one subscriber on the bus.
type Subscription interface {
	// Gaps returns the number of published events that never reached the handler, as far
	// as later sequence numbers show.
	Gaps() uint64
	// Dropped returns the number of events lost because the handler was too slow. Once a
	// later event arrives, they count as gaps too.
	Dropped() uint64
	// Close ends the subscription; after it returns the handler is not called any
	// more. It must not be called from the handler itself.
	Close() error
}

// Event is one received event.
type Event struct {
	Subject string
	Topic   string // the last token of the subject
	// PublisherID is a random number of at most 2^53-1. Each bus draws one for each
	// subject that it publishes on, so that a restarted publisher has a new one.
	PublisherID uint64
	// Sequence counts from 0 for each PublisherID.
	Sequence uint64
	// Missed counts the events of this publisher that were lost right before this one.
	Missed      uint64
	PublishedAt time.Time // publisher's clock, milliseconds
	Payload     []byte    // msgpack; belongs to the handler
}

// Message is what was received on a subject, as it was sent.
type Message struct {
	Subject string
	Data    []byte // must not be changed: other subscriptions of the process may have it, too
}

// Decode decodes the payload into v, a pointer, which is zeroed first.
func (e Event) Decode(v any) error {
	// The codec omits zero values, so a reused v must not keep old ones.
	if rv := reflect.ValueOf(v); rv.Kind() == reflect.Pointer && !rv.IsNil() {
		rv.Elem().SetZero()
	}
	if err := protocol.Unmarshal(e.Payload, v); err != nil {
		return fmt.Errorf("event on %s: %w", e.Subject, err)
	}
	return nil
}

// Stats counts the events of a bus since it was made.
type Stats struct {
	Published  uint64 // handed to the server
	Received   uint64 // handed to subscriptions
	Dropped    uint64 // lost in a full outbox, or refused by the server
	Malformed  uint64 // received, but no event envelope
	Reconnects uint64
	Outbox     int    // events waiting now
	Server     string // URL of the connected server; empty when not connected
	// DisconnectedSince is when the connection was lost; zero while connected.
	DisconnectedSince time.Time
	// LastError is the reason of the last disconnect; empty if there was none.
	LastError string
}

// Subject returns the subject of a component's topic:
// namespace.{namespace}.component.{component}.{topic}. The parts must be subject
// tokens: not empty, no dots, blanks or wildcards. To receive from all components
// or topics, pass "*" for that part.
func Subject(namespace, component, topic string) string {
	return "namespace." + namespace + ".component." + component + "." + topic
}
