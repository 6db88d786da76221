package events_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/natsconn"
	"github.com/dynctl/dynctl/internal/patience"
)

// slow bounds waits for things that take a fraction of it on a quiet machine.
const slow = 10 * time.Second

// received counts what a subscription gets.
type received struct {
	n, missed atomic.Int64
	last      atomic.Int64
}

func (r *received) handle(t *testing.T) func(events.Event) {
	return func(e events.Event) {
		var v int64
		if err := e.Decode(&v); err != nil {
			t.Error(err)
		}
		if v <= r.last.Load() {
			t.Errorf("event %d after %d", v, r.last.Load())
		}
		r.last.Store(v)
		r.n.Add(1)
		r.missed.Add(int64(e.Missed))
	}
}

// The server goes away for three seconds and comes back: nobody blocks, what
// waited in the outbox arrives, and what is missing is known.
func TestNATSOutage(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	a, b := connect(t, s.url), connect(t, s.url)
	var r received
	sub, err := b.Subscribe(t.Context(), "o.>", r.handle(t))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	i := int64(0)
	var slowest time.Duration
	publish := func() {
		i++
		begin := time.Now()
		if err := a.Publish(t.Context(), "o.x", i); err != nil {
			t.Errorf("Publish: %v", err)
		}
		slowest = max(slowest, time.Since(begin))
	}
	for range 100 {
		publish()
	}
	patience.Until(t, "events arrive", func() bool { return r.n.Load() == 100 })

	down := time.Now()
	s.stop()
	for time.Since(down) < 3*time.Second {
		publish()
		time.Sleep(3 * time.Millisecond)
	}
	if a.Connected() {
		t.Error("still connected")
	}
	if _, err := a.Ping(t.Context()); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Ping = %v, want ErrUnavailable", err)
	}
	if st := a.Stats(); st.DisconnectedSince.Before(down) || st.LastError == "" || st.Outbox == 0 {
		t.Errorf("stats = %+v", st)
	}
	s.restart()
	up := time.Now()
	patience.Until(t, "connected again", func() bool { return a.Connected() && b.Connected() })
	t.Logf("reconnected after %s, slowest Publish %s", time.Since(up), slowest)
	patience.Until(t, "the newest event arrives", func() bool {
		publish()
		return r.last.Load() >= i-1
	})
	if slowest > slow {
		t.Errorf("slowest Publish took %s", slowest)
	}
	patience.Until(t, "all are accounted for", func() bool { return r.n.Load()+r.missed.Load() == r.last.Load() })
	if r.missed.Load() != int64(sub.Gaps()) {
		t.Errorf("missed %d, gaps %d", r.missed.Load(), sub.Gaps())
	}
	if st := a.Stats(); st.Reconnects == 0 || !st.DisconnectedSince.IsZero() || st.Dropped != 0 {
		t.Errorf("stats = %+v", st)
	}
}

// Everything may be set up before the server is there.
func TestNATSStartsLater(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	url := fmt.Sprintf("nats://127.0.0.1:%d", port)
	b := connect(t, url)
	var r received
	if _, err := b.Subscribe(t.Context(), "o.x", r.handle(t)); err != nil {
		t.Fatal(err)
	}
	if err := b.Publish(t.Context(), "o.x", 1); err != nil {
		t.Fatal(err)
	}
	if b.Connected() {
		t.Fatal("connected to nothing")
	}
	q := queue(t, b, "later", events.QueueConfig{})
	if err := q.Enqueue(t.Context(), "a", nil); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Enqueue = %v, want ErrUnavailable", err)
	}
	startNATS(t, t.TempDir(), port)
	patience.Until(t, "the event arrives", func() bool { return r.n.Load() == 1 })
	patience.Until(t, "the queue works", func() bool { return q.Enqueue(t.Context(), "a", nil) == nil })
}

func TestNATSOutboxFull(t *testing.T) {
	t.Parallel()
	port := freePort(t)
	b, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: fmt.Sprintf("nats://127.0.0.1:%d", port)}, Outbox: 10}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var r received
	sub, err := b.Subscribe(t.Context(), "o.x", r.handle(t))
	if err != nil {
		t.Fatal(err)
	}
	var dropped int64
	for i := range int64(100) {
		switch err := b.Publish(t.Context(), "o.x", i+1); {
		case errors.Is(err, events.ErrDropped):
			dropped++
		case err != nil:
			t.Fatal(err)
		}
	}
	if dropped < 85 || b.Stats().Dropped != uint64(dropped) {
		t.Errorf("dropped %d, stats %+v", dropped, b.Stats())
	}
	startNATS(t, t.TempDir(), port)
	patience.Until(t, "the outbox is empty", func() bool { return r.n.Load() == 100-dropped })
	if err := b.Publish(t.Context(), "o.x", 101); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the gap is seen", func() bool { return r.last.Load() == 101 })
	if r.missed.Load() != dropped || sub.Gaps() != uint64(dropped) {
		t.Errorf("missed %d, gaps %d, want %d", r.missed.Load(), sub.Gaps(), dropped)
	}
}

// A server that is there but does nothing is worse than one that is gone.
func TestNATSFrozen(t *testing.T) {
	t.Parallel()
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	q := queue(t, b, "frozen", events.QueueConfig{})
	patience.Until(t, "the queue works", func() bool { return q.Enqueue(t.Context(), "first", nil) == nil })
	s.freeze()
	defer s.thaw()
	body := make([]byte, 500_000)
	begin := time.Now()
	for i := range 2 {
		callBegin := time.Now()
		if err := q.Enqueue(t.Context(), fmt.Sprint(i), body); !errors.Is(err, events.ErrUnavailable) {
			t.Errorf("Enqueue = %v, want ErrUnavailable", err)
		}
		if d := time.Since(callBegin); d > slow {
			t.Errorf("Enqueue took %s", d)
		}
	}
	for i := range 2000 { // if they blocked, these would take an hour
		if err := b.Publish(t.Context(), "o.x", body[:10_000]); err != nil && !errors.Is(err, events.ErrDropped) {
			t.Fatalf("Publish %d: %v", i, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	pingBegin := time.Now()
	if _, err := b.Ping(ctx); !errors.Is(err, events.ErrUnavailable) {
		t.Errorf("Ping = %v, want ErrUnavailable", err)
	}
	if d := time.Since(pingBegin); d > slow {
		t.Errorf("Ping took %s", d)
	}
	t.Logf("frozen for %s", time.Since(begin))
	s.thaw()
	patience.Until(t, "it works again", func() bool { return q.Enqueue(t.Context(), "last", nil) == nil })
}

func TestNATSCredentials(t *testing.T) {
	t.Parallel()
	s := &natsServer{t: t, dir: t.TempDir(), user: "someone"}
	s.start(anyPort)
	t.Cleanup(s.kill)
	good, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: s.url, User: "someone", Password: "someone"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer good.Close()
	patience.Until(t, "connected", good.Connected)
	bad, err := events.NewNATS(events.Config{Config: natsconn.Config{URL: s.url, Token: "wrong"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer bad.Close()
	patience.Until(t, "the reason is known", func() bool {
		return strings.Contains(strings.ToLower(bad.Stats().LastError), "authorization")
	})
	if bad.Connected() {
		t.Error("connected with a wrong token")
	}
}

func TestNATSBadConfig(t *testing.T) {
	tests := []struct {
		name string
		cfg  events.Config
	}{
		{"url", events.Config{Config: natsconn.Config{URL: "nats://%zz"}}},
		{"nkey file", events.Config{Config: natsconn.Config{URL: "nats://127.0.0.1:1", NKey: "/does/not/exist"}}},
		{"tls with a plain url", events.Config{Config: natsconn.Config{URL: "nats://127.0.0.1:1", TLS: noTLS}}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if b, err := events.NewNATS(test.cfg, nil); err == nil {
				b.Close()
				t.Error("accepted")
			}
		})
	}
}

// Others may send on our subjects what is not an event, or more than we take.
func TestNATSForeignMessages(t *testing.T) {
	s := startNATS(t, t.TempDir(), anyPort)
	b := connect(t, s.url)
	var r received
	if _, err := b.Subscribe(t.Context(), "o.*", r.handle(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	nc, err := nats.Connect(s.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	for _, data := range []string{"", "{}", "\x80", "\xc1", `{"publisher_id":1}`} {
		if err := nc.Publish("o.x", []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	nc.Flush()
	if err := b.Publish(t.Context(), "o.x", 1); err != nil {
		t.Fatal(err)
	}
	patience.Until(t, "the event arrives", func() bool { return r.n.Load() == 1 })
	if st := b.Stats(); st.Malformed != 5 {
		t.Errorf("stats = %+v, want 5 malformed", st)
	}
	if err := b.Publish(t.Context(), "o.x", make([]byte, 2<<20)); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("Publish = %v, want ErrTooLarge", err)
	}
	q := queue(t, b, "large", events.QueueConfig{})
	patience.Until(t, "the queue is there", func() bool { _, err := q.Depth(t.Context()); return err == nil })
	if err := q.Enqueue(t.Context(), "x", make([]byte, 2<<20)); !errors.Is(err, events.ErrTooLarge) {
		t.Errorf("Enqueue = %v, want ErrTooLarge", err)
	}
}

func freePort(t *testing.T) int {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().(*net.TCPAddr).Port
}
