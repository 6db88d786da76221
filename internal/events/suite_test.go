package events_test

import (
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/events/eventstest"
	"github.com/dynctl/dynctl/internal/natsconn"
)

func TestMemoryBus(t *testing.T) {
	eventstest.RunBus(t, func(t *testing.T) func() events.Bus {
		checkLeaks(t)
		m := events.NewMemory()
		return func() events.Bus {
			b := m.Join()
			t.Cleanup(func() { b.Close() })
			return b
		}
	})
}

func TestNATSBus(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	eventstest.RunBus(t, func(t *testing.T) func() events.Bus {
		checkLeaks(t)
		return func() events.Bus { return connect(t, s.url) }
	})
}

func TestMemoryQueue(t *testing.T) {
	t.Parallel()
	eventstest.RunQueue(t, 500*time.Millisecond, func(t *testing.T, cfg events.QueueConfig) func() eventstest.Queue {
		q := events.NewMemoryQueue(cfg)
		return func() eventstest.Queue {
			q := q.Join()
			return eventstest.Queue{WorkQueue: q, Kill: q.Kill}
		}
	})
}

func TestJetStreamQueue(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	t.Parallel()
	var n atomic.Int64
	eventstest.RunQueue(t, 1500*time.Millisecond, func(t *testing.T, cfg events.QueueConfig) func() eventstest.Queue {
		ns := fmt.Sprint("ns", n.Add(1))
		return func() eventstest.Queue {
			b := connect(t, s.url)
			return eventstest.Queue{WorkQueue: queue(t, b, ns, cfg), Kill: func() { b.Close() }}
		}
	})
}

func connect(t testing.TB, url string) *events.NATS {
	t.Helper()
	b, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: url, Name: t.Name()}}, testLog(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	return b
}

func queue(t testing.TB, b *events.NATS, namespace string, cfg events.QueueConfig) *events.JetStreamQueue {
	t.Helper()
	q, err := b.WorkQueue(namespace, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return q
}

func testLog(testing.TB) *slog.Logger {
	if os.Getenv("EVENTS_TEST_LOG") == "" {
		return nil
	}
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// checkLeaks fails the test if goroutines that it started are left at its end.
func checkLeaks(t *testing.T) {
	opt := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		if !t.Failed() {
			goleak.VerifyNone(t, opt)
		}
	})
}
