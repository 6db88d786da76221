package events_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// noTLS are settings that no server asks for.
func noTLS() *tls.Config { return &tls.Config{MinVersion: tls.VersionTLS12} }

// tally counts handled messages by id.
type tally struct {
	mu   sync.Mutex
	done map[string]int
}

func (c *tally) handled(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.done == nil {
		c.done = make(map[string]int)
	}
	c.done[id]++
}

func (c *tally) size() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.done)
}

func run(t *testing.T, q sharing, concurrency int, h func(context.Context, *events.Delivery)) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		q.Consume(ctx, concurrency, h)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-done:
		case <-time.After(patience.Soon):
			t.Error("Consume does not end")
		}
	})
}

// The server goes away for three seconds, in order or not: messages survive,
// consumers go on by themselves, and work that was under way is acknowledged
// afterwards and not done twice.
func TestQueueOutage(t *testing.T) {
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t, t.TempDir(), anyPort)
			producer := queue(t, connect(t, s.url), "outage", events.QueueConfig{})
			worker := queue(t, connect(t, s.url), "outage", events.QueueConfig{})
			patience.Until(t, "the queue is there", func() bool { _, err := producer.Depth(t.Context()); return err == nil })

			var c tally
			started, hold := make(chan string, 100), make(chan struct{})
			run(t, worker, 2, func(ctx context.Context, d *events.Delivery) {
				started <- d.ID
				<-hold
				// A server that is killed may forget what it has just delivered.
				if err := d.Ack(ctx); err != nil {
					t.Errorf("Ack(%s): %v", d.ID, err)
				}
				c.handled(d.ID)
			})
			const n = 30
			for i := range n {
				if err := producer.Enqueue(t.Context(), fmt.Sprint("m", i), []byte("body")); err != nil {
					t.Fatal(err)
				}
			}
			<-started
			<-started

			if how == "stop" {
				s.stop()
			} else {
				s.kill()
			}
			down := time.Now()
			patience.Until(t, "the loss is noticed", func() bool {
				return errors.Is(producer.Enqueue(t.Context(), "late", nil), events.ErrUnavailable)
			})
			begin := time.Now()
			if err := producer.Enqueue(t.Context(), "late", nil); !errors.Is(err, events.ErrUnavailable) {
				t.Errorf("Enqueue = %v, want ErrUnavailable", err)
			}
			if _, err := producer.Depth(t.Context()); !errors.Is(err, events.ErrUnavailable) {
				t.Errorf("Depth = %v, want ErrUnavailable", err)
			}
			if d := time.Since(begin); d > slow {
				t.Errorf("failing took %s", d)
			}
			time.Sleep(3*time.Second - time.Since(down))
			s.restart()
			close(hold) // the two in work are acknowledged now
			patience.Until(t, "enqueue works again", func() bool { return producer.Enqueue(t.Context(), "after", nil) == nil })
			patience.Until(t, "all are handled", func() bool { return c.size() >= n+1 })
			patience.Until(t, "the queue is empty", func() bool {
				d, err := producer.Depth(t.Context())
				return err == nil && d == events.Depth{}
			})
			c.mu.Lock()
			defer c.mu.Unlock()
			for id, times := range c.done {
				if times != 1 {
					t.Errorf("%s handled %d times", id, times)
				}
			}
		})
	}
}

// The server comes back without its data.
func TestQueueLostData(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	producer := queue(t, connect(t, s.url), "lost", events.QueueConfig{})
	worker := queue(t, connect(t, s.url), "lost", events.QueueConfig{})
	var c tally
	run(t, worker, 1, func(ctx context.Context, d *events.Delivery) {
		if err := d.Ack(ctx); err != nil {
			t.Errorf("Ack: %v", err)
		}
		c.handled(d.ID)
	})
	patience.Until(t, "the first is enqueued", func() bool { return producer.Enqueue(t.Context(), "first", nil) == nil })
	patience.Until(t, "the first is handled", func() bool { return c.size() == 1 })
	s.kill()
	s.dir = t.TempDir()
	s.restart()
	patience.Until(t, "the second is enqueued", func() bool { return producer.Enqueue(t.Context(), "second", nil) == nil })
	patience.Until(t, "the second is handled", func() bool { return c.size() == 2 })
}

// Who holds or removes a message that a server has lost with its data does not touch the
// messages that have its number at the server that took its place.
func TestQueueReplaced(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	producer := queue(t, connect(t, s.url), "replaced", events.QueueConfig{})
	worker := queue(t, connect(t, s.url), "replaced", events.QueueConfig{})
	patience.Until(t, "the queue is there", func() bool { _, err := producer.Depth(t.Context()); return err == nil })
	const n = 4
	enqueue := func(name string) {
		for i := range n {
			patience.Until(t, "the queue takes it", func() bool { return producer.Enqueue(t.Context(), fmt.Sprint(name, i), nil) == nil })
		}
	}
	enqueue("old")
	fetching, stop := context.WithCancel(t.Context())
	held, release, over := make(chan string, n), make(chan struct{}), make(chan struct{})
	ends := []func(*events.Delivery) error{
		func(d *events.Delivery) error { return d.Ack(t.Context()) },
		func(d *events.Delivery) error { _ = d.Term("unreadable"); return nil },
		func(d *events.Delivery) error { _ = d.Nak(0); return nil },
	}
	go func() {
		defer close(over)
		worker.Consume(fetching, len(ends), func(_ context.Context, d *events.Delivery) {
			held <- d.ID
			<-release
			if err := ends[d.ID[len("old")]-'0'](d); err != nil {
				t.Errorf("end %s: %v", d.ID, err)
			}
		})
	}()
	for range ends {
		<-held
	}
	stop() // nobody fetches what comes now
	s.kill()
	s.dir = t.TempDir()
	s.restart()
	enqueue("new")
	watcher, err := nats.Connect(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	requests, err := watcher.SubscribeSync("$JS.API.CONSUMER.MSG.NEXT.>")
	if err != nil {
		t.Fatal(err)
	}
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	close(release)
	<-over
	if err := producer.Remove(t.Context(), "old3"); err != nil {
		t.Error(err)
	}
	if d, err := producer.Depth(t.Context()); err != nil || d.Pending != n || d.InWork != 0 {
		t.Errorf("depth %+v, %v", d, err)
	}
	if err := watcher.Flush(); err != nil {
		t.Fatal(err)
	}
	if m, err := requests.NextMsg(0); err == nil {
		t.Errorf("a consumer that was stopped has requested a message: %s", m.Subject)
	}
	if err := producer.Remove(t.Context(), "new3"); err != nil {
		t.Error(err)
	}
	if d, err := producer.Depth(t.Context()); err != nil || d.Pending != n-1 {
		t.Errorf("depth after a removal %+v, %v", d, err)
	}
}

// Two queues of one server do not see each other's messages.
func TestQueueNamespaces(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	one, two := queue(t, b, "team.One", events.QueueConfig{}), queue(t, b, "team-two", events.QueueConfig{})
	patience.Until(t, "enqueued", func() bool { return one.Enqueue(t.Context(), "x", nil) == nil })
	var d events.Depth
	patience.Until(t, "depth", func() bool {
		var err error
		d, err = two.Depth(t.Context())
		return err == nil
	})
	if d != (events.Depth{}) {
		t.Errorf("depth of the other queue = %+v", d)
	}
	if _, err := b.WorkQueue("", events.QueueConfig{}); err == nil {
		t.Error("empty namespace accepted")
	}
	if got, want := events.QueueName("team.One"), "team_one_prefill_queue"; got != want {
		t.Errorf("QueueName = %q, want %q", got, want)
	}
}

// Looking into a queue takes nothing out of it.
func TestQueuePeek(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	q := queue(t, b, "peek", events.QueueConfig{})
	patience.Until(t, "enqueued", func() bool { return q.Enqueue(t.Context(), "m0", []byte("body 0")) == nil })
	for i := range 4 {
		if err := q.Enqueue(t.Context(), fmt.Sprint("m", i+1), fmt.Append(nil, "body ", i+1)); err != nil {
			t.Fatal(err)
		}
	}
	if err := q.Remove(t.Context(), "m1"); err != nil { // a gap
		t.Fatal(err)
	}
	begun := make(chan string, 9)
	run(t, q, 1, func(ctx context.Context, d *events.Delivery) {
		begun <- d.ID
		<-ctx.Done()
	})
	if id := <-begun; id != "m0" {
		t.Fatalf("the first message is %s", id)
	}
	for _, tt := range []struct {
		n    int
		want string
	}{
		{9, "m0 body 0 true, m2 body 2 false, m3 body 3 false, m4 body 4 false, "},
		{2, "m0 body 0 true, m2 body 2 false, "},
		{0, ""},
	} {
		got := ""
		messages, err := q.Peek(t.Context(), tt.n)
		for _, m := range messages {
			got += fmt.Sprintf("%s %s %t, ", m.ID, m.Body, m.InWork)
			if age := time.Since(m.StoredAt); age < -patience.Soon || age > patience.Soon {
				t.Errorf("%s is %v old", m.ID, age)
			}
		}
		if err != nil || got != tt.want {
			t.Errorf("Peek(%d) = %s, %v; want %s", tt.n, got, err, tt.want)
		}
	}
	if d, err := q.Depth(t.Context()); err != nil || d.Pending+d.InWork != 4 {
		t.Errorf("depth after looking: %+v, %v", d, err)
	}
	s.kill()
	patience.Until(t, "the server is missed", func() bool { return !b.Connected() })
	if _, err := q.Peek(t.Context(), 9); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("without a server: %v", err)
	}
}

// A dead letter says which message it was, why it was given up, and after how many attempts.
func TestQueueDeadLetter(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	q := queue(t, connect(t, s.url), "dead", events.QueueConfig{MaxDeliver: 2})
	last := func() *events.DeadLetter {
		var d *events.DeadLetter
		patience.Until(t, "the queue answers", func() (ok bool) {
			var err error
			d, err = q.LastDead(t.Context())
			return err == nil
		})
		return d
	}
	if d := last(); d != nil {
		t.Errorf("an empty queue has a dead letter: %+v", d)
	}
	run(t, q, 1, func(_ context.Context, d *events.Delivery) {
		if d.ID == "digest" {
			_ = d.Term("model digest differs")
			return
		}
		_ = d.Nak(0)
	})
	for _, want := range []events.DeadLetter{
		{ID: "digest", Reason: "model digest differs", Attempts: 1, Body: []byte("one")},
		{ID: "poison", Reason: "given back in attempt 2 of 2", Attempts: 2, Body: []byte("two")},
	} {
		patience.Until(t, "enqueued", func() bool { return q.Enqueue(t.Context(), want.ID, want.Body) == nil })
		var got *events.DeadLetter
		patience.Until(t, "it is dead", func() bool { got = last(); return got != nil && got.ID == want.ID })
		if age := time.Since(got.At); age > patience.Soon {
			t.Errorf("%s is %v old", got.ID, age)
		}
		got.At = time.Time{}
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("dead letter %+v, want %+v", *got, want)
		}
	}
}

func BenchmarkJetStreamEnqueue(b *testing.B) {
	s := startNATS(b, b.TempDir(), anyPort)
	q := queue(b, connect(b, s.url), "bench", events.QueueConfig{MaxMessages: 1 << 30})
	for q.Enqueue(b.Context(), "ready", nil) != nil {
	}
	body := make([]byte, 4096)
	i := 0
	for b.Loop() {
		i++
		if err := q.Enqueue(b.Context(), fmt.Sprint(i), body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNATSPublish(b *testing.B) {
	s := startNATS(b, b.TempDir(), anyPort)
	pub, sub := connect(b, s.url), connect(b, s.url)
	var got = make(chan struct{}, 1<<20)
	if _, err := sub.Subscribe(b.Context(), "bench", func(events.Event) { got <- struct{}{} }); err != nil {
		b.Fatal(err)
	}
	if _, err := sub.Ping(b.Context()); err != nil {
		b.Fatal(err)
	}
	payload := struct {
		Blocks []uint64 `json:"blocks"`
	}{make([]uint64, 16)}
	window := 1000 // what may be on its way
	sent := 0
	for b.Loop() {
		if sent++; sent > window {
			<-got
		}
		if err := pub.Publish(b.Context(), "bench", payload); err != nil {
			b.Fatal(err)
		}
	}
}
