package eventstest

import (
	"bytes"
	"context"
	"errors"
	"testing"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// receive subscribes to bytes.
func receive(t *testing.T, b events.Bus, pattern string) (<-chan events.Message, events.Subscription) {
	t.Helper()
	got := make(chan events.Message, 10000)
	sub, err := b.SubscribeBytes(t.Context(), pattern, func(m events.Message) { got <- m })
	if err != nil {
		t.Fatal(err)
	}
	ping(t, b)
	return got, sub
}

// Bytes arrive as they were sent, in order, beside events on the same subject, which those who
// receive bytes get with their envelopes.
func testBytes(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	got, sub := receive(t, b, "foreign.*")
	typed := subscribe(t, b, "foreign.*")
	reused := []byte(`{"n":1}`)
	want := [][]byte{[]byte(`{"n":1}`), {}, {0, 255, 10, 13}}
	for i, data := range [][]byte{reused, want[1], want[2]} {
		if err := a.PublishBytes(t.Context(), "foreign.x", data); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			copy(reused, "spoiled") // the caller may use it again
		}
	}
	publish(t, a, "foreign.y", 7)
	for _, data := range want {
		if m := <-got; m.Subject != "foreign.x" || !bytes.Equal(m.Data, data) {
			t.Errorf("got %q on %s, want %q", m.Data, m.Subject, data)
		}
	}
	if m := <-got; m.Subject != "foreign.y" || len(m.Data) == 0 {
		t.Errorf("an event arrived as %q on %s", m.Data, m.Subject)
	}
	if typed.nextN(t) != 7 { // what is no event is left out
		t.Error("the event did not arrive")
	}
	if sub.Gaps() != 0 || typed.sub.Gaps() != 0 {
		t.Errorf("gaps %d and %d", sub.Gaps(), typed.sub.Gaps())
	}
	if n := b.Stats().Malformed; n != uint64(len(want)) {
		t.Errorf("%d messages were no events, want %d", n, len(want))
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	if err := a.PublishBytes(t.Context(), "foreign.x", nil); !errors.Is(err, events.ErrClosed) {
		t.Errorf("PublishBytes after Close = %v", err)
	}
	if _, err := a.SubscribeBytes(t.Context(), "foreign.x", func(events.Message) {}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("SubscribeBytes after Close = %v", err)
	}
}

// A handler that is too slow loses messages, and is told how many.
func testBytesSlowHandler(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	hold, handled := make(chan struct{}), make(chan struct{}, 30000)
	sub, err := b.SubscribeBytes(t.Context(), "flood", func(events.Message) {
		<-hold
		handled <- struct{}{}
	})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := receive(t, b, "flood")
	const n = 10000
	for range n {
		if err := a.PublishBytes(t.Context(), "flood", []byte("x")); err != nil {
			t.Fatal(err)
		}
		<-got
	}
	close(hold)
	patience.Until(t, "each message is handled or dropped", func() bool {
		return sub.Dropped() > 0 && uint64(len(handled))+sub.Dropped() == n
	})
	if sub.Gaps() != 0 {
		t.Errorf("%d gaps, which nobody can know", sub.Gaps())
	}
}

// What is no event takes a place in a journal, and readers pass over it.
func testBytesInJournal(t *testing.T, join func() events.Bus) {
	b := join()
	j, err := b.Journal("foreign.log", events.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := receive(t, b, "foreign.log")
	put := func(text string) {
		patience.Until(t, "the journal takes it", func() bool { _, err := j.Append(t.Context(), text, text); return err == nil })
		<-got
	}
	put("a")
	if err := b.PublishBytes(t.Context(), "foreign.log", []byte("{}")); err != nil {
		t.Fatal(err)
	}
	<-got
	put("b")
	ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
	defer cancel()
	enough := errors.New("enough")
	for _, want := range []uint64{1, 3} {
		err := j.Read(ctx, events.Start{Offset: want - want/3}, func(r events.Record) error {
			if r.Offset != want || r.Lost != 0 {
				t.Errorf("read offset %d after %d lost, want %d", r.Offset, r.Lost, want)
			}
			return enough
		})
		if !errors.Is(err, enough) {
			t.Error(err)
		}
	}
	if n := b.Stats().Malformed; n == 0 {
		t.Error("it is not counted")
	}
}
