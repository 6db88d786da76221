package dynamo_test

import (
	"errors"
	"testing"

	"github.com/dynctl/dynctl/dynamo"
	"github.com/dynctl/dynctl/internal/events"
)

// Bytes are exchanged within a namespace, on any subject of it, and events can be read as
// bytes.
func TestBytes(t *testing.T) {
	l := local(t)
	a, b := join(t, l, dynamo.WithNamespace("east")), join(t, l, dynamo.WithNamespace("east"))
	elsewhere := join(t, l)
	got := make(chan dynamo.Message, 10)
	s, err := b.SubscribeBytes(t.Context(), "component.*.load", func(m dynamo.Message) { got <- m })
	if err != nil {
		t.Fatal(err)
	}
	everything := make(chan dynamo.Message, 10)
	if _, err := b.SubscribeBytes(t.Context(), ">", func(m dynamo.Message) { everything <- m }); err != nil {
		t.Fatal(err)
	}
	for _, r := range []*dynamo.Runtime{elsewhere, a} {
		if err := r.PublishBytes(t.Context(), "hit-rate", []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if err := r.PublishBytes(t.Context(), "component.backend.load", []byte(r.Namespace())); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Publish(t.Context(), "backend", "load", 1); err != nil {
		t.Fatal(err)
	}
	if m := <-got; m.Subject != "component.backend.load" || string(m.Data) != "east" {
		t.Errorf("got %q on %s", m.Data, m.Subject)
	}
	if m := <-got; m.Subject != "component.backend.load" || len(m.Data) == 0 {
		t.Errorf("an event arrived as %q on %s", m.Data, m.Subject)
	}
	for _, want := range []string{"hit-rate", "component.backend.load", "component.backend.load"} {
		if m := <-everything; m.Subject != want {
			t.Errorf("got %s, want %s", m.Subject, want)
		}
	}
	if s.Missed() != 0 || s.Dropped() != 0 {
		t.Errorf("%d missed, %d dropped", s.Missed(), s.Dropped())
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{"", "a..b", "*", "a b", "a.>"} {
		if err := a.PublishBytes(t.Context(), bad, nil); !errors.Is(err, events.ErrSubject) {
			t.Errorf("published on %q: %v", bad, err)
		}
	}
	if _, err := a.SubscribeBytes(t.Context(), ">.a", func(dynamo.Message) {}); !errors.Is(err, events.ErrSubject) {
		t.Errorf("subscribed to >.a: %v", err)
	}
}
