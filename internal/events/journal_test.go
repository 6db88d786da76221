package events_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

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

// A group whose name, or that of its stream of dead letters, is something else on the server
// says so, and leaves that as it is; also when it comes while the group works.
func TestGroupTaken(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	js, err := jetstream.New(natsConn(t, s.url))
	if err != nil {
		t.Fatal(err)
	}
	journal := func(subject string) events.Journal {
		j, err := b.Journal(subject, events.JournalConfig{})
		if err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the journal is there", func() bool { _, err := j.Append(t.Context(), "", 1); return err == nil })
		return j
	}
	consume := func(t *testing.T, j events.Journal) <-chan error {
		g, err := j.Group("g", events.Start{})
		if err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		ctx, cancel := context.WithTimeout(t.Context(), patience.Soon)
		t.Cleanup(cancel)
		go func() {
			ended <- g.Consume(ctx, 3, func(ctx context.Context, d *events.Delivery) { _ = d.Ack(ctx) })
		}()
		return ended
	}
	for i, c := range []struct {
		name string
		cfg  jetstream.ConsumerConfig
		says string
	}{
		{"acks none", jetstream.ConsumerConfig{AckPolicy: jetstream.AckNonePolicy}, "acknowledges with policy AckNone"},
		{"acks all", jetstream.ConsumerConfig{AckPolicy: jetstream.AckAllPolicy}, "acknowledges with policy AckAll"},
		{"gives up", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy, MaxDeliver: 3}, "gives up after 3 deliveries"},
		{"as a group", jetstream.ConsumerConfig{AckPolicy: jetstream.AckExplicitPolicy}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			subject := fmt.Sprint("taken.", i)
			j := journal(subject)
			c.cfg.Durable = "g"
			if _, err := js.CreateConsumer(t.Context(), events.JournalName(subject), c.cfg); err != nil {
				t.Fatal(err)
			}
			if c.says == "" { // it is such as a group makes
				g, err := j.Group("g", events.Start{})
				if err != nil {
					t.Fatal(err)
				}
				if _, err := g.Depth(t.Context()); err != nil {
					t.Error(err)
				}
				return
			}
			if err := <-consume(t, j); !errors.Is(err, events.ErrGroupTaken) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("Consume = %v", err)
			}
			g, err := j.Group("g", events.Start{})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := g.Depth(t.Context()); !errors.Is(err, events.ErrGroupTaken) {
				t.Errorf("Depth = %v", err)
			}
			if err := g.Forget(t.Context()); !errors.Is(err, events.ErrGroupTaken) {
				t.Errorf("Forget = %v", err)
			}
			if there, err := js.Consumer(t.Context(), events.JournalName(subject), "g"); err != nil || there.CachedInfo().Config.AckPolicy != c.cfg.AckPolicy {
				t.Errorf("the other consumer: %v", err)
			}
		})
	}
	t.Run("pushes", func(t *testing.T) {
		j := journal("taken.push")
		if _, err := js.CreatePushConsumer(t.Context(), events.JournalName("taken.push"), jetstream.ConsumerConfig{Durable: "g", DeliverSubject: "elsewhere", AckPolicy: jetstream.AckExplicitPolicy}); err != nil {
			t.Fatal(err)
		}
		if err := <-consume(t, j); !errors.Is(err, events.ErrGroupTaken) {
			t.Errorf("Consume = %v", err)
		}
	})
	t.Run("dead letters", func(t *testing.T) {
		j := journal("taken.dead")
		name := events.JournalName("taken.dead") + "-dead"
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: name, Subjects: []string{"somebody.else"}}); err != nil {
			t.Fatal(err)
		}
		if err := <-consume(t, j); !errors.Is(err, events.ErrJournalTaken) || !strings.Contains(err.Error(), "somebody.else") {
			t.Errorf("Consume = %v", err)
		}
		if there, err := js.Stream(t.Context(), name); err != nil || there.CachedInfo().Config.Subjects[0] != "somebody.else" {
			t.Errorf("the other stream: %v", err)
		}
	})
	t.Run("later", func(t *testing.T) {
		j := journal("taken.later")
		ended := consume(t, j)
		g, err := j.Group("g", events.Start{})
		if err != nil {
			t.Fatal(err)
		}
		patience.Until(t, "the group works", func() bool { d, err := g.Depth(t.Context()); return err == nil && d == events.Depth{} })
		stream := events.JournalName("taken.later")
		patience.Until(t, "another consumer has its name", func() bool {
			_ = js.DeleteConsumer(t.Context(), stream, "g")
			_, err := js.CreateConsumer(t.Context(), stream, jetstream.ConsumerConfig{Durable: "g", AckPolicy: jetstream.AckNonePolicy})
			return err == nil
		})
		if err := <-ended; !errors.Is(err, events.ErrGroupTaken) {
			t.Errorf("Consume = %v", err)
		}
	})
}
