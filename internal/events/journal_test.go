package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/events/eventstest"
	"github.com/dynctl/dynctl/internal/patience"
)

func TestMemoryJournal(t *testing.T) {
	t.Parallel()
	eventstest.RunJournal(t, func(t *testing.T, subject string, cfg events.JournalConfig) eventstest.OpenJournal {
		m := events.NewMemory()
		return joins(t, subject, cfg, func() events.Bus { return m.Join() })
	})
}

func TestJetStreamJournal(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	t.Parallel()
	eventstest.RunJournal(t, func(t *testing.T, subject string, cfg events.JournalConfig) eventstest.OpenJournal {
		return joins(t, subject, cfg, func() events.Bus { return connect(t, s.url) })
	})
}

func joins(t *testing.T, subject string, cfg events.JournalConfig, bus func() events.Bus) eventstest.OpenJournal {
	return func() (events.Bus, events.Journal) {
		b := bus()
		t.Cleanup(func() { b.Close() })
		patience.Until(t, "the bus is connected", b.Connected)
		j, err := b.Journal(subject, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return b, j
	}
}

// A server that is killed in the middle loses no event that it has confirmed, and delivers
// none twice.
func TestJournalOutlivesTheServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startNATS(t, dir, anyPort)
	b := connect(t, s.url)
	j, err := b.Journal(eventstest.JournalSubject, events.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var mu sync.Mutex
	var got []string
	ended := make(chan error, 1)
	go func() {
		ended <- j.Read(ctx, events.Start{}, func(r events.Record) error {
			var id string
			err := r.Decode(&id)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, id)
			return err
		})
	}()
	var want []string
	add := func(n int) {
		for range n {
			id := fmt.Sprint("e", len(want))
			patience.Until(t, "an event is stored", func() bool {
				_, err := j.Append(ctx, id, id) // an event of an unknown fate is sent again
				if err != nil && !errors.Is(err, events.ErrUnavailable) {
					t.Fatal(err)
				}
				return err == nil
			})
			want = append(want, id)
		}
	}
	all := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Equal(got, want)
	}
	add(50)
	patience.Until(t, "all are read", all)
	s.kill()
	patience.Until(t, "the outage is seen", func() bool { return !b.Connected() })
	if _, err := j.Append(ctx, "lost", "lost"); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("appended without a server: %v", err)
	}
	if err := func() error { _, err := j.State(ctx); return err }(); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("a state without a server: %v", err)
	}
	began := time.Now()
	s.start(s.port())
	add(50)
	patience.Until(t, "all are read after the outage", all)
	t.Logf("goes on %s after the server began to start", time.Since(began).Round(time.Millisecond))
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Where the server has lost the journal, readers and groups go on with the new one.
func TestJournalIsLost(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	j, err := b.Journal(eventstest.JournalSubject, events.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { stop(); running.Wait() }()
	read, consumed := make(chan events.Record, 10), make(chan string, 10)
	running.Go(func() { _ = j.Read(ctx, events.Start{}, func(r events.Record) error { read <- r; return nil }) })
	g, err := j.Group("g", events.Start{})
	if err != nil {
		t.Fatal(err)
	}
	running.Go(func() {
		_ = g.Consume(ctx, 1, func(_ context.Context, d *events.Delivery) {
			if d.Ack(ctx) == nil {
				consumed <- d.ID
			}
		})
	})
	add := func(id string) {
		patience.Until(t, "an event is stored", func() bool {
			_, err := j.Append(ctx, id, id)
			return err == nil
		})
		if r := <-read; r.Offset != 1 {
			t.Errorf("read %+v", r)
		}
		if got := <-consumed; got != id {
			t.Errorf("consumed %s, want %s", got, id)
		}
	}
	add("before")
	s.kill()
	port := s.port()
	s.dir = t.TempDir()
	s.start(port)
	add("after")
}

// Journals whose names are the same do not take each other's events.
func TestJournalNames(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	patience.Until(t, "the bus is connected", b.Connected)
	one, err := b.Journal("namespace.n.component.a-b.c", events.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	other, err := b.Journal("namespace.n.component.a.b-c", events.JournalConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.Append(t.Context(), "", 1); err != nil {
		t.Fatal(err)
	}
	if _, err := other.Append(t.Context(), "", 1); !errors.Is(err, events.ErrJournalTaken) {
		t.Errorf("append: %v", err)
	}
	if err := other.Read(t.Context(), events.Start{}, func(events.Record) error { return nil }); !errors.Is(err, events.ErrJournalTaken) {
		t.Errorf("read: %v", err)
	}
	// Other limits of the same journal are those of the last one to connect.
	again, err := b.Journal("namespace.n.component.a-b.c", events.JournalConfig{MaxEvents: 1})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := again.Append(t.Context(), "", 1); err != nil {
			t.Fatal(err)
		}
	}
	if st, err := one.State(t.Context()); err != nil || st.Events != 1 || st.First != 3 {
		t.Errorf("%+v %v", st, err)
	}
}
