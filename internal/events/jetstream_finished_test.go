package events_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/proxytest"
)

// patient keeps a server from handing out a message again while a test runs.
func patient() events.QueueConfig { return events.QueueConfig{AckWait: 4 * patience.Soon} }

// away is a worker whose connection a test can break. It holds its messages until the test
// lets it finish them.
type away struct {
	*proxytest.Proxy
	bus    *events.NATS
	got    chan string
	finish chan struct{}
	acked  chan error
}

// goAway starts a worker behind a proxy. Its acknowledgements give up soon.
func goAway(t *testing.T, s *natsServer, consumer func(*events.NATS) sharing) *away {
	t.Helper()
	a := &away{
		Proxy: proxytest.New(t, strings.TrimPrefix(s.url, "nats://")),
		got:   make(chan string, 100), finish: make(chan struct{}), acked: make(chan error, 100),
	}
	a.bus = connect(t, "nats://"+a.Addr())
	run(t, consumer(a.bus), 2, func(_ context.Context, d *events.Delivery) {
		a.got <- d.ID
		<-a.finish
		ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		a.acked <- d.Ack(ctx)
	})
	return a
}

// finishAway finishes n messages without a connection.
func (a *away) finishAway(t *testing.T, n int) {
	t.Helper()
	patience.Until(t, "the loss is noticed", func() bool { return !a.bus.Connected() })
	close(a.finish)
	for range n {
		if err := <-a.acked; !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("Ack without a connection: %v", err)
		}
	}
}

// sharing is what a work queue and a consumer group have in common.
type sharing interface {
	Consume(ctx context.Context, concurrency int, h func(context.Context, *events.Delivery)) error
	Depth(ctx context.Context) (events.Depth, error)
}

// A message that a worker finishes while NATS is away is done once: it leaves the queue when
// the worker is back, and nobody else gets it.
func TestFinishedWhileAway(t *testing.T) {
	for _, kind := range []string{"queue", "journal"} {
		for _, how := range []string{"reset", "half-open"} {
			t.Run(kind+"/"+how, func(t *testing.T) {
				t.Parallel()
				s := startNATS(t, t.TempDir(), anyPort)
				direct := connect(t, s.url)
				consumer := func(b *events.NATS) sharing { return queue(t, b, "away", patient()) }
				producer := queue(t, direct, "away", patient())
				put := func(id string) error { return producer.Enqueue(t.Context(), id, []byte("body")) }
				if kind == "journal" {
					journal := func(b *events.NATS) events.Journal {
						j, err := b.Journal("news.away", events.JournalConfig{AckWait: patient().AckWait})
						if err != nil {
							t.Fatal(err)
						}
						return j
					}
					consumer = func(b *events.NATS) sharing {
						g, err := journal(b).Group("g", events.Start{})
						if err != nil {
							t.Fatal(err)
						}
						return g
					}
					put = func(id string) error { _, err := journal(direct).Append(t.Context(), id, "body"); return err }
				}
				for _, id := range []string{"a", "b"} {
					patience.Until(t, "the queue takes it", func() bool { return put(id) == nil })
				}
				a := goAway(t, s, consumer)
				<-a.got
				<-a.got
				if how == "reset" {
					a.Cut()
				} else {
					a.Freeze()
				}
				a.finishAway(t, 2)
				var other tally
				run(t, consumer(direct), 2, func(ctx context.Context, d *events.Delivery) {
					if err := d.Ack(ctx); err != nil {
						t.Errorf("Ack(%s): %v", d.ID, err)
					}
					other.handled(d.ID)
				})
				patience.Until(t, "the queue takes one more", func() bool { return put("c") == nil })
				patience.Until(t, "another worker has it", func() bool { return other.size() == 1 })
				if how == "half-open" {
					a.Reset() // or what was held is acknowledged before the new connection
				}
				a.Heal()
				patience.Until(t, "the queue is empty", func() bool {
					d, err := consumer(direct).Depth(t.Context())
					return err == nil && d == events.Depth{}
				})
				if n := other.size(); n != 1 {
					t.Errorf("another worker had %d messages, want the last one only", n)
				}
				select {
				case id := <-a.got:
					t.Errorf("the worker got message %s after its own", id)
				default:
				}
			})
		}
	}
}

// What a worker finished, or a producer removed, while NATS was away does not take another
// message with it that has the number now: of a stream that was made anew, or of a backup.
func TestFinishedOfAnotherStream(t *testing.T) {
	for _, how := range []string{"made anew", "backup"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			s := startNATS(t, t.TempDir(), anyPort)
			direct := connect(t, s.url)
			producer := queue(t, direct, "away", patient())
			enqueue := func(q events.WorkQueue, ids ...string) {
				for _, id := range ids {
					patience.Until(t, "the queue takes it", func() bool { return q.Enqueue(t.Context(), id, nil) == nil })
				}
			}
			enqueue(producer, "first")
			if err := producer.Remove(t.Context(), "first"); err != nil {
				t.Fatal(err)
			}
			backup := t.TempDir()
			if how == "backup" {
				s.stop()
				if err := os.CopyFS(backup, os.DirFS(s.dir)); err != nil {
					t.Fatal(err)
				}
				s.restart()
			}
			a := goAway(t, s, func(b *events.NATS) sharing { return queue(t, b, "away", patient()) })
			far := queue(t, a.bus, "away", patient())
			enqueue(far, "one", "two")
			<-a.got
			<-a.got
			enqueue(far, "three") // waits
			a.Cut()
			a.finishAway(t, 2)
			if err := far.Remove(t.Context(), "three"); !errors.Is(err, events.ErrUnavailable) {
				t.Errorf("Remove without a connection: %v", err)
			}
			if how == "backup" {
				s.kill()
				s.dir = backup
				s.restart()
			} else {
				js, err := jetstream.New(natsConn(t, s.url))
				if err != nil {
					t.Fatal(err)
				}
				if err := js.DeleteStream(t.Context(), events.QueueName("away")); err != nil {
					t.Fatal(err)
				}
				enqueue(queue(t, connect(t, s.url), "away", patient()), "fill")
			}
			enqueue(producer, "new one", "new two", "new three")
			var handled tally
			a.Heal()
			patience.Until(t, "the producer is back", func() bool { return far.Enqueue(t.Context(), "last", nil) == nil })
			run(t, queue(t, direct, "away", patient()), 1, func(ctx context.Context, d *events.Delivery) {
				if err := d.Ack(ctx); err != nil {
					t.Error(err)
				}
				handled.handled(d.ID)
			})
			// The worker that was away takes some of the new ones.
			patience.Until(t, "all new messages are handled", func() bool {
				for {
					select {
					case id := <-a.got:
						handled.handled(id)
						continue
					default:
					}
					break
				}
				handled.mu.Lock()
				defer handled.mu.Unlock()
				return handled.done["new one"]*handled.done["new two"]*handled.done["new three"]*handled.done["last"] == 1
			})
		})
	}
}

func natsConn(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Messages that are removed while NATS is away leave when it is back, as many as are
// remembered; the error tells of the others.
func TestRemovedWhileAway(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	p := proxytest.New(t, strings.TrimPrefix(s.url, "nats://"))
	bus := connect(t, "nats://"+p.Addr())
	q := queue(t, bus, "removed", events.QueueConfig{})
	patience.Until(t, "the queue is there", func() bool { _, err := q.Depth(t.Context()); return err == nil })
	const room, more = 1024, 3
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := i; n < room+more; n += 8 {
				for q.Enqueue(t.Context(), fmt.Sprint(n), nil) != nil && t.Context().Err() == nil {
					time.Sleep(time.Millisecond) // a slow server; the id makes it safe
				}
			}
		})
	}
	wg.Wait()
	p.Cut()
	patience.Until(t, "the loss is noticed", func() bool { return !bus.Connected() })
	refused := 0
	for n := range room + more {
		err := q.Remove(t.Context(), fmt.Sprint(n))
		if !errors.Is(err, events.ErrUnavailable) {
			t.Fatalf("Remove without a connection: %v", err)
		}
		if strings.Contains(err.Error(), "none can be remembered") {
			refused++
		}
	}
	if refused != more {
		t.Errorf("%d removals were not remembered, want %d", refused, more)
	}
	p.Heal()
	patience.Until(t, "the queue has those that were not remembered", func() bool {
		d, err := q.Depth(t.Context())
		return err == nil && d.Pending == more
	})
}

// A removal that fails with a connection, because the server does not answer, is tried again.
func TestRemovedWhileSilent(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	p := proxytest.New(t, strings.TrimPrefix(s.url, "nats://"))
	var log patience.Buffer
	bus, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: "nats://" + p.Addr()}}, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer bus.Close()
	q := queue(t, bus, "silent", events.QueueConfig{})
	for _, id := range []string{"a", "b"} {
		patience.Until(t, "the queue takes it", func() bool { return q.Enqueue(t.Context(), id, nil) == nil })
	}
	p.Freeze()
	for _, id := range []string{"a", "b"} {
		if err := q.Remove(t.Context(), id); !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("Remove from a silent server: %v", err)
		}
	}
	patience.Until(t, "a try has failed", func() bool { return strings.Contains(log.String(), "still in the queue") })
	p.Reset() // what was held never arrives
	p.Heal()
	other := queue(t, connect(t, s.url), "silent", events.QueueConfig{})
	patience.Until(t, "the queue is empty", func() bool {
		d, err := other.Depth(t.Context())
		return err == nil && d == events.Depth{}
	})
}
