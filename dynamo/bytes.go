package dynamo

import (
	"context"
	"strings"

	"github.com/dynctl/dynctl/internal/events"
)

// Message is what another program sent, in whatever format it has.
type Message struct {
	Subject string // within the namespace
	Data    []byte // must not be changed
}

// PublishBytes sends data, as it is, on a subject of the runtime's namespace, for programs
// that exchange formats of their own: "component.backend.load" is the subject
// namespace.NAMESPACE.component.backend.load in NATS. A subject has names between dots, without
// blanks, "*" and ">". PublishBytes never waits for the network. Messages may be lost, and
// nobody can tell whether one was: they have no numbers, unlike those of [Runtime.Publish].
func (r *Runtime) PublishBytes(ctx context.Context, subject string, data []byte) error {
	b, err := r.bus()
	if err != nil {
		return err
	}
	return b.PublishBytes(ctx, r.within(subject), data)
}

// SubscribeBytes calls f, from one goroutine, for each message on a subject of the runtime's
// namespace, until ctx ends or the subscription is closed. In the subject, "*" stands for any
// name and ">", at its end, for one or more. Messages of [Runtime.Publish] arrive with their
// envelope, a msgpack map. If f is too slow, messages are dropped, which
// [Subscription.Dropped] counts; what was lost elsewhere is unknown, and
// [Subscription.Missed] stays 0.
func (r *Runtime) SubscribeBytes(ctx context.Context, subject string, f func(Message)) (*Subscription, error) {
	b, err := r.bus()
	if err != nil {
		return nil, err
	}
	s, err := b.SubscribeBytes(ctx, r.within(subject), func(m events.Message) {
		f(Message{Subject: strings.TrimPrefix(m.Subject, r.within("")), Data: m.Data})
	})
	if err != nil {
		return nil, err
	}
	return &Subscription{s}, nil
}

// within returns the whole subject of one that is within the runtime's namespace.
func (r *Runtime) within(subject string) string {
	return "namespace." + r.Namespace() + "." + subject
}
