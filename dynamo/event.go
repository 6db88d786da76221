package dynamo

import (
	"context"
	"fmt"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/events"
)

// Event is one received event.
type Event struct {
	Topic       string
	PublishedAt time.Time // by the publisher's clock
	// Missed counts the events of this publisher that were lost right before this one.
	Missed uint64
	e      events.Event
}

// Decode decodes the event into v, a pointer.
func (e Event) Decode(v any) error { return e.e.Decode(v) }

// Publish sends an event on a topic of a component of the runtime's namespace. It never
// waits for the network. Events may be lost: then subscribers see that some are missing.
func (r *Runtime) Publish(ctx context.Context, component, topic string, v any) error {
	b, err := r.bus()
	if err != nil {
		return err
	}
	subject, err := r.subject(component, topic, false)
	if err != nil {
		return err
	}
	return b.Publish(ctx, subject, v)
}

// subject returns the subject of a topic. Names are those of components and endpoints; only
// subscribers may leave one open.
func (r *Runtime) subject(component, topic string, open bool) (string, error) {
	check := cluster.Endpoint{Namespace: r.Namespace(), Component: component, Name: topic}
	if open && component == "*" {
		check.Component = "any"
	}
	if open && topic == "*" {
		check.Name = "any"
	}
	if err := check.Check(); err != nil {
		return "", fmt.Errorf("topic %s of component %s: %w", topic, component, err)
	}
	return events.Subject(r.Namespace(), component, topic), nil
}

// Subscription delivers events until it is closed.
type Subscription struct{ s events.Subscription }

// Missed returns the number of published events that did not arrive, as far as later ones
// show.
func (s *Subscription) Missed() uint64 { return s.s.Gaps() }

// Dropped returns the number of messages that did not reach the function because it was too
// slow.
func (s *Subscription) Dropped() uint64 { return s.s.Dropped() }

// Close ends the subscription. The function is not called any more when it returns, so the
// function must not call it.
func (s *Subscription) Close() error { return s.s.Close() }

// Subscribe calls f, from one goroutine, for each event on a topic of a component of the
// runtime's namespace, until ctx ends or the subscription is closed. "*" stands for any
// component or topic. If f is too slow, events are dropped and counted as missed.
func (r *Runtime) Subscribe(ctx context.Context, component, topic string, f func(Event)) (*Subscription, error) {
	b, err := r.bus()
	if err != nil {
		return nil, err
	}
	subject, err := r.subject(component, topic, true)
	if err != nil {
		return nil, err
	}
	s, err := b.Subscribe(ctx, subject, func(e events.Event) {
		f(Event{Topic: e.Topic, PublishedAt: e.PublishedAt, Missed: e.Missed, e: e})
	})
	if err != nil {
		return nil, err
	}
	return &Subscription{s}, nil
}
