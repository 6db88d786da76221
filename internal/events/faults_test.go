package events_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/proxytest"
)

// counts counts numbers that arrive.
type counts struct {
	mu   sync.Mutex
	seen map[int]int
}

func (c *counts) arrived(text string) {
	n, err := strconv.Atoi(text)
	if err != nil {
		n = -1
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == nil {
		c.seen = map[int]int{}
	}
	c.seen[n]++
}

func (c *counts) all() map[int]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.seen)
}

func unavailable(err error, _ bool) bool { return errors.Is(err, events.ErrUnavailable) }

// A slow, broken or silent network fails calls in time, and what was confirmed has arrived
// once.
func TestFaults(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	through := func(t *testing.T) (*proxytest.Proxy, *events.NATS, *events.NATS) {
		t.Parallel()
		p := proxytest.New(t, strings.TrimPrefix(s.url, "nats://"))
		return p, connect(t, "nats://"+p.Addr()), connect(t, s.url)
	}
	t.Run("queue", func(t *testing.T) {
		p, far, direct := through(t)
		q, got := queue(t, far, "faults", events.QueueConfig{}), &counts{}
		run(t, queue(t, direct, "faults", events.QueueConfig{}), 1, func(ctx context.Context, d *events.Delivery) {
			if d.Ack(ctx) == nil {
				got.arrived(d.ID)
			}
		})
		proxytest.Faults(t, p, proxytest.Client{
			Call: func(ctx context.Context, n int) error { return q.Enqueue(ctx, fmt.Sprint(n), nil) },
			Seen: got.all, Failure: func(err error, late bool) bool {
				return unavailable(err, late) || late && errors.Is(err, context.DeadlineExceeded)
			},
		})
	})
	t.Run("journal", func(t *testing.T) {
		p, far, direct := through(t)
		journal := func(b *events.NATS) events.Journal {
			j, err := b.Journal("faults.journal", events.JournalConfig{})
			if err != nil {
				t.Fatal(err)
			}
			return j
		}
		j := journal(far)
		proxytest.Faults(t, p, proxytest.Client{
			Call: func(ctx context.Context, n int) error {
				_, err := j.Append(ctx, fmt.Sprint(n), fmt.Sprint(n))
				return err
			},
			Seen: func() map[int]int {
				got := &counts{}
				st, err := journal(direct).State(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				end := errors.New("end")
				err = journal(direct).Read(t.Context(), events.Start{}, func(r events.Record) error {
					var text string
					if err := r.Decode(&text); err != nil {
						return err
					}
					got.arrived(text)
					if r.Offset >= st.Last {
						return end
					}
					return nil
				})
				if !errors.Is(err, end) {
					t.Error(err)
				}
				return got.all()
			},
			Failure: func(err error, late bool) bool {
				return unavailable(err, late) || late && errors.Is(err, context.DeadlineExceeded)
			},
		})
	})
	// An event is confirmed by nobody but those who get it. Their gaps tell of the others.
	t.Run("events", func(t *testing.T) {
		p, far, direct := through(t)
		got := &counts{}
		sub, err := direct.Subscribe(t.Context(), "faults.events", func(e events.Event) {
			var text string
			if err := e.Decode(&text); err != nil {
				t.Error(err)
			}
			got.arrived(text)
		})
		if err != nil {
			t.Fatal(err)
		}
		ping(t, direct)
		sent := 0
		notSeen := errors.New("not seen")
		proxytest.Faults(t, p, proxytest.Client{
			Call: func(ctx context.Context, n int) error {
				if err := far.Publish(ctx, "faults.events", fmt.Sprint(n)); err != nil {
					return err
				}
				sent++
				for got.all()[n] == 0 {
					select {
					case <-time.After(time.Millisecond):
					case <-ctx.Done():
						return notSeen
					}
				}
				return nil
			},
			Seen: got.all, Failure: func(err error, late bool) bool { return late && errors.Is(err, notSeen) },
		})
		for n, times := range got.all() {
			if times != 1 {
				t.Errorf("event %d arrived %d times", n, times)
			}
		}
		patience.Until(t, "each event has arrived or is known to be lost", func() bool { return len(got.all())+int(sub.Gaps()) >= sent })
	})
}

func ping(t *testing.T, b *events.NATS) {
	t.Helper()
	patience.Until(t, "the server answers", func() bool { _, err := b.Ping(t.Context()); return err == nil })
}
