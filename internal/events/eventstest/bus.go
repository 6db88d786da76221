package eventstest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// MakeBus returns a function that returns buses of different processes that reach
// each other. It registers their Close with t.Cleanup.
type MakeBus func(t *testing.T) (join func() events.Bus)

// RunBus runs the suite for buses.
func RunBus(t *testing.T, newBus MakeBus) {
	tests := []struct {
		name string
		f    func(*testing.T, func() events.Bus)
	}{
		{"PublishSubscribe", testPublishSubscribe},
		{"Order", testOrder},
		{"Patterns", testPatterns},
		{"BadSubjects", testBadSubjects},
		{"Sequences", testSequences},
		{"SlowHandler", testSlowHandler},
		{"TwoSubscriptions", testTwoSubscriptions},
		{"CloseSubscription", testCloseSubscription},
		{"ContextEndsSubscription", testContextEndsSubscription},
		{"BusClose", testBusClose},
		{"BadPayload", testBadPayload},
		{"Bytes", testBytes},
		{"BytesSlowHandler", testBytesSlowHandler},
		{"BytesInJournal", testBytesInJournal},
		{"ZeroValues", testZeroValues},
		{"Status", testStatus},
		{"ManyPublishers", testManyPublishers},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.f(t, newBus(t)) })
	}
}

type note struct {
	N    int    `json:"n"`
	Text string `json:"text"`
}

// inbox collects events.
type inbox struct {
	sub events.Subscription
	ch  chan events.Event
}

func subscribe(t *testing.T, b events.Bus, pattern string) *inbox {
	t.Helper()
	in := &inbox{ch: make(chan events.Event, 10000)}
	sub, err := b.Subscribe(t.Context(), pattern, func(e events.Event) { in.ch <- e })
	if err != nil {
		t.Fatalf("Subscribe(%q): %v", pattern, err)
	}
	in.sub = sub
	ping(t, b) // now the server has the subscription
	return in
}

func ping(t *testing.T, b events.Bus) {
	t.Helper()
	patience.Until(t, "ping", func() bool {
		_, err := b.Ping(t.Context())
		return err == nil
	})
}

func (in *inbox) next(t *testing.T) events.Event {
	t.Helper()
	select {
	case e := <-in.ch:
		return e
	case <-time.After(patience.Soon):
		t.Fatalf("no event within %s", patience.Soon)
		return events.Event{}
	}
}

func (in *inbox) nextN(t *testing.T) int {
	t.Helper()
	return decode(t, in.next(t)).N
}

func decode(t *testing.T, e events.Event) note {
	t.Helper()
	var n note
	if err := e.Decode(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func publish(t *testing.T, b events.Bus, subject string, n int) {
	t.Helper()
	if err := b.Publish(t.Context(), subject, note{N: n, Text: "text"}); err != nil {
		t.Fatalf("Publish(%q): %v", subject, err)
	}
}

func testPublishSubscribe(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	subject := events.Subject("ns", "backend", "kv-events")
	in, own := subscribe(t, b, subject), subscribe(t, a, subject)
	before := time.Now().Add(-time.Second)
	publish(t, a, subject, 7)
	for _, in := range []*inbox{in, own} {
		e := in.next(t)
		if n := decode(t, e); n != (note{7, "text"}) {
			t.Errorf("payload = %+v", n)
		}
		if e.Subject != subject || e.Topic != "kv-events" || e.Sequence != 0 || e.Missed != 0 {
			t.Errorf("event = %+v", e)
		}
		if e.PublisherID == 0 || e.PublisherID > 1<<53-1 {
			t.Errorf("publisher id = %d", e.PublisherID)
		}
		if e.PublishedAt.Before(before) || e.PublishedAt.After(time.Now().Add(time.Second)) {
			t.Errorf("published at %s", e.PublishedAt)
		}
	}
}

func testOrder(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	in := subscribe(t, b, "x.y")
	const n = 5000
	for i := range n {
		publish(t, a, "x.y", i)
	}
	for i := range n {
		if got := in.nextN(t); got != i {
			t.Fatalf("event %d = %d", i, got)
		}
	}
	if g, d := in.sub.Gaps(), in.sub.Dropped(); g != 0 || d != 0 {
		t.Errorf("gaps %d, dropped %d", g, d)
	}
}

func testPatterns(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	subjects := []string{"namespace.a.component.w1.t1", "namespace.a.component.w2.t1", "namespace.a.component.w1.t2", "namespace.b.component.w1.t1"}
	tests := []struct {
		pattern string
		want    []int
	}{
		{events.Subject("a", "w1", "t1"), []int{0}},
		{events.Subject("a", "*", "t1"), []int{0, 1}},
		{events.Subject("*", "w1", "*"), []int{0, 2, 3}},
		{"namespace.a.>", []int{0, 1, 2}},
		{"namespace.a", nil},
		{"namespace.*", nil},
		{">", []int{0, 1, 2, 3}},
	}
	boxes := make([]*inbox, len(tests))
	for i, test := range tests {
		boxes[i] = subscribe(t, b, test.pattern)
	}
	all := subscribe(t, b, "namespace.>")
	for i, s := range subjects {
		publish(t, a, s, i)
	}
	for range subjects {
		all.next(t)
	}
	for i, test := range tests {
		for _, want := range test.want {
			if got := boxes[i].nextN(t); got != want {
				t.Errorf("%s: got %d, want %d", test.pattern, got, want)
			}
		}
		boxes[i].sub.Close()
		if n := len(boxes[i].ch); n != 0 {
			t.Errorf("%s: %d events too many", test.pattern, n)
		}
	}
}

func testBadSubjects(t *testing.T, join func() events.Bus) {
	b := join()
	for _, s := range []string{"", ".", "a.", ".a", "a..b", "a b", "a\tb", "a\r\nb", "a*", "*", "a.*", ">", "a.>"} {
		if err := b.Publish(t.Context(), s, 1); !errors.Is(err, events.ErrSubject) {
			t.Errorf("Publish(%q) = %v, want ErrSubject", s, err)
		}
		if err := b.PublishBytes(t.Context(), s, nil); !errors.Is(err, events.ErrSubject) {
			t.Errorf("PublishBytes(%q) = %v, want ErrSubject", s, err)
		}
	}
	for _, s := range []string{"", "a..b", "a.>.b", "a b", "a*", "a.b>"} {
		if _, err := b.Subscribe(t.Context(), s, func(events.Event) {}); !errors.Is(err, events.ErrSubject) {
			t.Errorf("Subscribe(%q) = %v, want ErrSubject", s, err)
		}
		if _, err := b.SubscribeBytes(t.Context(), s, func(events.Message) {}); !errors.Is(err, events.ErrSubject) {
			t.Errorf("SubscribeBytes(%q) = %v, want ErrSubject", s, err)
		}
	}
}

// Each subject of each bus has a publisher id and a sequence of its own, so that
// a subscriber to one of them sees no gaps where there are none.
func testSequences(t *testing.T, join func() events.Bus) {
	a, b, c := join(), join(), join()
	in := subscribe(t, c, "s.one")
	for i := range 10 {
		publish(t, a, "s.one", i)
		publish(t, a, "s.two", i)
		publish(t, b, "s.one", i)
	}
	next := make(map[uint64]uint64)
	for range 20 {
		e := in.next(t)
		if e.Sequence != next[e.PublisherID] || e.Missed != 0 {
			t.Fatalf("event = %+v, want sequence %d", e, next[e.PublisherID])
		}
		next[e.PublisherID]++
	}
	if len(next) != 2 {
		t.Errorf("%d publishers, want 2", len(next))
	}
	late := subscribe(t, c, "s.two") // joining late is not a gap
	publish(t, a, "s.two", 10)
	if e := late.next(t); e.Sequence != 10 || e.Missed != 0 {
		t.Errorf("event = %+v, want sequence 10", e)
	}
}

// A handler that does not keep up loses events, is told how many, and does not
// hold up the publisher or others.
func testSlowHandler(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	var handled, missed atomic.Uint64
	sub, err := b.Subscribe(t.Context(), "flood", func(e events.Event) {
		select {
		case entered <- struct{}{}:
		default:
		}
		<-hold
		handled.Add(1)
		missed.Add(e.Missed)
	})
	if err != nil {
		t.Fatal(err)
	}
	ping(t, b)
	fast := subscribe(t, b, "flood")
	const n = 20000
	start := time.Now()
	for i := range n {
		publish(t, a, "flood", i)
		if i%1000 == 0 {
			for range min(i, 1000) {
				fast.next(t)
			}
		}
	}
	<-entered
	if d := time.Since(start); d > patience.Soon {
		t.Errorf("publishing took %s", d)
	}
	patience.Until(t, "events are dropped", func() bool { return sub.Dropped() > 0 })
	close(hold)
	patience.Until(t, "the end is reached", func() bool {
		publish(t, a, "flood", n)
		return handled.Load()+missed.Load() >= n
	})
	if sub.Gaps() == 0 || sub.Gaps() < sub.Dropped() && sub.Gaps() != missed.Load() {
		t.Errorf("gaps %d, dropped %d, missed %d", sub.Gaps(), sub.Dropped(), missed.Load())
	}
	if g := fast.sub.Gaps(); g != 0 {
		t.Errorf("the fast subscription has %d gaps", g)
	}
}

func testTwoSubscriptions(t *testing.T, join func() events.Bus) {
	b := join()
	one, two := subscribe(t, b, "a.b"), subscribe(t, b, "a.*")
	publish(t, b, "a.b", 1)
	if one.nextN(t) != 1 || two.nextN(t) != 1 {
		t.Error("not delivered to both")
	}
	one.sub.Close()
	publish(t, b, "a.b", 2)
	if two.nextN(t) != 2 {
		t.Error("not delivered to the second")
	}
	if len(one.ch) != 0 {
		t.Error("delivered to a closed subscription")
	}
}

func testCloseSubscription(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	var closed, late atomic.Bool
	sub, err := b.Subscribe(t.Context(), "t", func(events.Event) {
		if closed.Load() {
			late.Store(true)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ping(t, b)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				a.Publish(context.Background(), "t", 1)
			}
		}
	})
	time.Sleep(5 * time.Millisecond) // let some through; any number is fine
	for range 2 {
		if err := sub.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	closed.Store(true)
	time.Sleep(5 * time.Millisecond)
	close(stop)
	wg.Wait()
	if late.Load() {
		t.Error("handler called after Close")
	}
}

func testContextEndsSubscription(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	ctx, cancel := context.WithCancel(t.Context())
	var n atomic.Int64
	if _, err := b.Subscribe(ctx, "t", func(events.Event) { n.Add(1) }); err != nil {
		t.Fatal(err)
	}
	other := subscribe(t, b, "t")
	publish(t, a, "t", 1)
	patience.Until(t, "delivered", func() bool { return n.Load() == 1 })
	cancel()
	patience.Until(t, "the subscription ends", func() bool {
		before := n.Load()
		for range 3 {
			publish(t, a, "t", 2)
			other.next(t)
		}
		return n.Load() == before
	})
}

func testBusClose(t *testing.T, join func() events.Bus) {
	a, b := join(), join()
	in := subscribe(t, b, "t")
	for i := range 100 {
		publish(t, a, "t", i)
	}
	for range 2 {
		if err := a.Close(); err != nil { // what was published leaves first
			t.Errorf("Close: %v", err)
		}
	}
	for i := range 100 {
		if got := in.nextN(t); got != i {
			t.Fatalf("event %d = %d", i, got)
		}
	}
	if err := a.Publish(t.Context(), "t", 1); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Publish after Close = %v, want ErrClosed", err)
	}
	if _, err := a.Subscribe(t.Context(), "t", func(events.Event) {}); !errors.Is(err, events.ErrClosed) {
		t.Errorf("Subscribe after Close = %v, want ErrClosed", err)
	}
	if a.Connected() {
		t.Error("connected after Close")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := in.sub.Close(); err != nil {
		t.Error(err)
	}
}

func testBadPayload(t *testing.T, join func() events.Bus) {
	b := join()
	if err := b.Publish(t.Context(), "t", make(chan int)); err == nil {
		t.Error("a channel was published")
	}
	in := subscribe(t, b, "t")
	if err := b.Publish(t.Context(), "t", "a string"); err != nil {
		t.Fatal(err)
	}
	e := in.next(t)
	var n note
	if err := e.Decode(&n); err == nil || !strings.Contains(err.Error(), "on t") {
		t.Errorf("Decode = %v", err)
	}
}

func testZeroValues(t *testing.T, join func() events.Bus) {
	b := join()
	in := subscribe(t, b, "t")
	var n note
	for _, want := range []note{{1, "first"}, {N: 2}, {}} {
		if err := b.Publish(t.Context(), "t", want); err != nil {
			t.Fatal(err)
		}
		if err := in.next(t).Decode(&n); err != nil || n != want {
			t.Errorf("decoded %+v, %v, want %+v", n, err, want)
		}
	}
}

func testStatus(t *testing.T, join func() events.Bus) {
	b := join()
	ping(t, b)
	if !b.Connected() {
		t.Error("not connected")
	}
	in := subscribe(t, b, "t")
	for i := range 3 {
		publish(t, b, "t", i)
	}
	for range 3 {
		in.next(t)
	}
	st := b.Stats()
	if st.Published != 3 || st.Received != 3 || st.Dropped != 0 || st.Malformed != 0 || st.Server == "" || !st.DisconnectedSince.IsZero() {
		t.Errorf("stats = %+v", st)
	}
}

func testManyPublishers(t *testing.T, join func() events.Bus) {
	in := join()
	const publishers, each = 8, 500
	sums := make(map[int]int)
	done := make(chan struct{})
	total := 0
	sub, err := in.Subscribe(t.Context(), "many.*", func(e events.Event) {
		var n note
		if err := e.Decode(&n); err != nil {
			t.Error(err)
		}
		sums[n.N]++
		if total++; total == publishers*each {
			close(done)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ping(t, in)
	var wg sync.WaitGroup
	for p := range publishers {
		b := join()
		wg.Go(func() {
			for range each {
				if err := b.Publish(t.Context(), fmt.Sprintf("many.%d", p%3), note{N: p}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	select {
	case <-done:
	case <-time.After(patience.Soon):
		t.Fatalf("gaps %d, dropped %d", sub.Gaps(), sub.Dropped())
	}
	sub.Close()
	for p := range publishers {
		if sums[p] != each {
			t.Errorf("publisher %d: %d events, want %d", p, sums[p], each)
		}
	}
}
