package eventstest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/events"
	"github.com/dynctl/dynctl/internal/patience"
)

// OpenJournal returns a bus of its own and its part in the journal of a test.
type OpenJournal func() (events.Bus, events.Journal)

// JournalSubject is the subject of the journals that [RunJournal] tests; each test may have
// a wire, or server, of its own, or the subject gets the suffix that it passes.
const JournalSubject = "namespace.ns.component.c.news"

// RunJournal tests an implementation of [events.Journal]. open is called once for each test,
// with the subject that it uses.
func RunJournal(t *testing.T, open func(t *testing.T, subject string, cfg events.JournalConfig) OpenJournal) {
	for name, f := range map[string]func(*testing.T, string, func(events.JournalConfig) OpenJournal){
		"order": testJournalOrder, "start": testJournalStart, "ids": testJournalIDs, "limits": testJournalLimits, "events": testJournalEvents, "end": testJournalEnd,
		"published": testJournalPublished, "at once": testJournalAtOnce, "group": testGroup, "place": testGroupPlace, "give up": testGroupGivesUp,
		"names": testJournalNames, "slow": testJournalSlow,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			subject := JournalSubject + "-" + slugOf(name)
			f(t, subject, func(cfg events.JournalConfig) OpenJournal { return open(t, subject, cfg) })
		})
	}
}

func slugOf(name string) string {
	return string(slices.DeleteFunc([]byte(name), func(b byte) bool { return b == ' ' }))
}

func appendAll(t *testing.T, j events.Journal, from, to int) {
	t.Helper()
	for i := from; i <= to; i++ {
		offset, err := j.Append(t.Context(), "", i)
		if err != nil || offset != uint64(i) {
			t.Fatalf("append %d: offset %d, %v", i, offset, err)
		}
	}
}

// reader collects what it reads.
type reader struct {
	mu      sync.Mutex
	values  []int
	records []events.Record
	ended   chan error
	stop    context.CancelFunc
}

func read(t *testing.T, j events.Journal, from events.Start) *reader {
	ctx, cancel := context.WithCancel(t.Context())
	r := &reader{ended: make(chan error, 1), stop: cancel}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.ended <- j.Read(ctx, from, func(e events.Record) error {
			var v int
			if err := e.Decode(&v); err != nil {
				return err
			}
			r.mu.Lock()
			defer r.mu.Unlock()
			r.values, r.records = append(r.values, v), append(r.records, e)
			return nil
		})
	}()
	t.Cleanup(func() { cancel(); <-done })
	return r
}

func (r *reader) got() []int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.values)
}

// wants waits until a reader has read these values, and looks a moment whether there are more.
func (r *reader) wants(t *testing.T, from, to int) {
	t.Helper()
	want := []int{}
	for i := from; i <= to; i++ {
		want = append(want, i)
	}
	patience.Until(t, fmt.Sprintf("%d events are read", len(want)), func() bool { return len(r.got()) >= len(want) })
	if got := r.got(); !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
}

// Events have offsets from 1 on, and are read in that order, by whoever comes before or after.
func testJournalOrder(t *testing.T, subject string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	bus, j := join()
	var live sync.WaitGroup
	live.Add(6)
	sub, err := bus.Subscribe(t.Context(), subject, func(events.Event) { live.Done() })
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bus.Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	if st, err := j.State(t.Context()); err != nil || st.First != 1 || st.Last != 0 || st.Events != 0 {
		t.Errorf("at first %+v %v", st, err)
	}
	appendAll(t, j, 1, 3)
	_, other := join()
	r := read(t, other, events.Start{})
	r.wants(t, 1, 3)
	appendAll(t, j, 4, 6)
	r.wants(t, 1, 6)
	for i, e := range r.records {
		if e.Offset != uint64(i+1) || e.Sequence != uint64(i) || e.Subject != subject || e.Lost != 0 || time.Since(e.StoredAt).Abs() > time.Hour {
			t.Errorf("record %d: %+v", i, e)
		}
	}
	live.Wait()
	if st, err := other.State(t.Context()); err != nil || st.First != 1 || st.Last != 6 || st.Events != 6 || st.Bytes <= 0 || len(st.Groups) != 0 {
		t.Errorf("at last %+v %v", st, err)
	}
	if err := sub.Close(); err != nil {
		t.Error(err)
	}
}

func testJournalStart(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	_, j := open(events.JournalConfig{})()
	appendAll(t, j, 1, 3)
	all := read(t, j, events.Start{})
	all.wants(t, 1, 3)
	fromNew := read(t, j, events.Start{New: true})
	since := read(t, j, events.Start{Since: all.records[1].StoredAt})
	late := read(t, j, events.Start{Offset: 3})
	future := read(t, j, events.Start{Offset: 6})
	since.wants(t, 2, 3)
	late.wants(t, 3, 3)
	time.Sleep(300 * time.Millisecond) // for a reader of new events, which nothing announces, to begin
	appendAll(t, j, 4, 6)
	fromNew.wants(t, 4, 6)
	late.wants(t, 3, 6)
	since.wants(t, 2, 6)
	future.wants(t, 6, 6)
	all.wants(t, 1, 6)
}

// An event whose id was used before is not stored again.
func testJournalIDs(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	_, j := join()
	_, other := join()
	for i, tc := range []struct {
		j      events.Journal
		id     string
		v      int
		offset uint64
	}{{j, "a", 1, 1}, {j, "b", 2, 2}, {other, "a", 9, 1}, {j, "", 3, 3}, {j, "", 4, 4}, {other, "b", 9, 2}} {
		if offset, err := tc.j.Append(t.Context(), tc.id, tc.v); err != nil || offset != tc.offset {
			t.Errorf("append %d: offset %d, want %d, %v", i, offset, tc.offset, err)
		}
	}
	read(t, j, events.Start{}).wants(t, 1, 4)
}

// Readers are told how many events they have missed.
func testJournalLimits(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	const bytes = 4 << 10
	_, small := open(events.JournalConfig{MaxBytes: bytes})()
	appendAll(t, small, 1, 100)
	if st, err := small.State(t.Context()); err != nil || st.Bytes > bytes || st.Bytes < bytes/2 || st.Events == 100 {
		t.Errorf("%+v %v", st, err)
	}
}

func testJournalEvents(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	_, j := open(events.JournalConfig{MaxEvents: 4})()
	appendAll(t, j, 1, 10)
	if st, err := j.State(t.Context()); err != nil || st.First != 7 || st.Last != 10 || st.Events != 4 {
		t.Errorf("%+v %v", st, err)
	}
	for start, lost := range map[uint64]uint64{0: 0, 1: 6, 5: 2, 7: 0} {
		r := read(t, j, events.Start{Offset: start})
		r.wants(t, 7, 10)
		for i, e := range r.records {
			if want := lost; i == 0 && e.Lost != want || i > 0 && e.Lost != 0 {
				t.Errorf("from %d, record %d: lost %d", start, i, e.Lost)
			}
		}
	}
}

// A reader that is too slow is told what it has missed.
func testJournalSlow(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	const all = 1500 // more than a client asks for beforehand
	_, j := open(events.JournalConfig{MaxEvents: 4})()
	began, release := make(chan struct{}), make(chan struct{})
	enough := errors.New("enough")
	ended := make(chan error, 1)
	var seen, lost uint64
	go func() {
		ended <- j.Read(t.Context(), events.Start{}, func(r events.Record) error {
			if seen++; seen == 1 {
				close(began)
				<-release
			}
			if lost += r.Lost; r.Offset != seen+lost {
				t.Errorf("offset %d after %d events, %d lost", r.Offset, seen-1, lost)
			}
			if r.Offset == all {
				return enough
			}
			return nil
		})
	}()
	appendAll(t, j, 1, 1)
	<-began
	appendAll(t, j, 2, all)
	close(release)
	if err := <-ended; !errors.Is(err, enough) || lost == 0 {
		t.Errorf("%d events, %d lost: %v", seen, lost, err)
	}
}

func testJournalEnd(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	bus, j := join()
	appendAll(t, j, 1, 2)
	enough := errors.New("enough")
	if err := j.Read(t.Context(), events.Start{}, func(events.Record) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("ended by its function: %v", err)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	err := j.Read(ctx, events.Start{}, func(e events.Record) error {
		if e.Offset == 2 {
			cancel(why)
		}
		return nil
	})
	if !errors.Is(err, why) {
		t.Errorf("ended by its context: %v", err)
	}
	if _, err := j.Append(ctx, "", 3); !errors.Is(err, why) {
		t.Errorf("append after the end: %v", err)
	}
	r := read(t, j, events.Start{})
	r.wants(t, 1, 2)
	if err := bus.Close(); err != nil {
		t.Error(err)
	}
	if err := <-r.ended; !errors.Is(err, events.ErrClosed) {
		t.Errorf("ended by the bus: %v", err)
	}
	if _, err := j.Append(t.Context(), "", 3); err == nil {
		t.Error("appended to a closed bus")
	}
}

// What is published is kept, too.
func testJournalPublished(t *testing.T, subject string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	bus, j := join()
	appendAll(t, j, 1, 1)
	for i := 2; i <= 4; i++ {
		if err := bus.Publish(t.Context(), subject, i); err != nil {
			t.Fatal(err)
		}
	}
	r := read(t, j, events.Start{})
	r.wants(t, 1, 4)
	for i, e := range r.records {
		if e.Sequence != uint64(i) {
			t.Errorf("record %d has number %d of its publisher", i, e.Sequence)
		}
	}
}

func testJournalAtOnce(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	const writers, each = 4, 50
	var wg sync.WaitGroup
	var mu sync.Mutex
	at := map[uint64]int{}
	for w := range writers {
		_, j := join()
		for half := range 2 {
			wg.Go(func() {
				for i := half; i < each; i += 2 {
					offset, err := j.Append(t.Context(), "", w*each+i)
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					at[offset] = w*each + i
					mu.Unlock()
				}
			})
		}
	}
	_, j := join()
	r := read(t, j, events.Start{})
	wg.Wait()
	patience.Until(t, "all are read", func() bool { return len(r.got()) == writers*each })
	next := map[uint64]uint64{}
	for i, v := range r.got() {
		e := r.records[i]
		if at[uint64(i+1)] != v || e.Sequence != next[e.PublisherID] {
			t.Errorf("offset %d: %d, number %d of publisher %d", i+1, v, e.Sequence, e.PublisherID)
		}
		next[e.PublisherID]++
	}
}

// groupConsumer counts what it is handed.
type groupConsumer struct {
	mu   sync.Mutex
	seen map[int]int
	stop func()
}

// consumeGroup takes events of a group until it is stopped. decide says what becomes of each.
func consumeGroup(t *testing.T, g events.Group, subject string, decide func(v int, d *events.Delivery) error) *groupConsumer {
	ctx, cancel := context.WithCancel(t.Context())
	c := &groupConsumer{seen: map[int]int{}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Consume(ctx, 2, func(_ context.Context, d *events.Delivery) { // ends with ctx
			r, err := events.DecodeRecord(subject, d)
			var v int
			if err = errors.Join(err, r.Decode(&v)); err != nil || r.Offset == 0 || r.StoredAt.IsZero() {
				t.Errorf("delivery %+v: %v", r, err)
			}
			if err := decide(v, d); err != nil {
				t.Error(err)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.seen[v]++
		})
	}()
	c.stop = func() { cancel(); <-done }
	t.Cleanup(c.stop)
	return c
}

func (c *groupConsumer) counts() (values, deliveries int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.seen {
		deliveries += n
	}
	return len(c.seen), deliveries
}

func ack(_ int, d *events.Delivery) error { return d.Ack(context.Background()) }

func group(t *testing.T, j events.Journal, name string, from events.Start) events.Group {
	t.Helper()
	g, err := j.Group(name, from)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func wantGroup(t *testing.T, g events.Group, want events.Depth) {
	t.Helper()
	var got events.Depth
	patience.Until(t, fmt.Sprintf("the group is at %+v", want), func() (ok bool) {
		var err error
		got, err = g.Depth(t.Context())
		return err == nil && got == want
	})
}

// Consumers of a group share the events, those of another group get them all again.
func testGroup(t *testing.T, subject string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	_, j := join()
	_, other := join()
	appendAll(t, j, 1, 20)
	one, two := consumeGroup(t, group(t, j, "g", events.Start{}), subject, ack), consumeGroup(t, group(t, other, "g", events.Start{}), subject, ack)
	alone := consumeGroup(t, group(t, other, "h", events.Start{}), subject, ack)
	for i := 21; i <= 40; i++ {
		if _, err := j.Append(t.Context(), "", i); err != nil {
			t.Fatal(err)
		}
	}
	both := func() int {
		a, _ := one.counts()
		b, _ := two.counts()
		return a + b
	}
	patience.Until(t, "all are shared", func() bool { n, _ := alone.counts(); return both() == 40 && n == 40 })
	wantGroup(t, group(t, j, "g", events.Start{}), events.Depth{})
	_, a := one.counts()
	_, b := two.counts()
	if _, c := alone.counts(); a+b != 40 || c != 40 {
		t.Errorf("%d and %d deliveries of 40, %d in the other group", a, b, c)
	}
	if st, err := j.State(t.Context()); err != nil || !slices.Equal(st.Groups, []string{"g", "h"}) || st.Events != 40 {
		t.Errorf("%+v %v", st, err)
	}
}

// A group goes on where it was, whoever consumes next.
func testGroupPlace(t *testing.T, subject string, open func(events.JournalConfig) OpenJournal) {
	join := open(events.JournalConfig{})
	_, j := join()
	appendAll(t, j, 1, 5)
	g := group(t, j, "g", events.Start{Offset: 3})
	wantGroup(t, g, events.Depth{Pending: 3})
	c := consumeGroup(t, g, subject, ack)
	patience.Until(t, "three are consumed", func() bool { n, _ := c.counts(); return n == 3 })
	wantGroup(t, g, events.Depth{})
	c.stop()
	appendAll(t, j, 6, 7)
	_, other := join()
	again := group(t, other, "g", events.Start{})
	wantGroup(t, again, events.Depth{Pending: 2})
	c = consumeGroup(t, again, subject, ack)
	patience.Until(t, "two are consumed", func() bool { n, _ := c.counts(); return n == 2 })
	if c.seen[6] != 1 || c.seen[7] != 1 {
		t.Errorf("consumed %v", c.seen)
	}
	c.stop()
	if err := again.Forget(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantGroup(t, group(t, j, "g", events.Start{}), events.Depth{Pending: 7})
	wantGroup(t, group(t, j, "new", events.Start{New: true}), events.Depth{})
}

// An event that is given back comes again, and becomes a dead letter in the end.
func testGroupGivesUp(t *testing.T, subject string, open func(events.JournalConfig) OpenJournal) {
	_, j := open(events.JournalConfig{MaxDeliver: 3})()
	appendAll(t, j, 1, 3)
	g := group(t, j, "g", events.Start{})
	c := consumeGroup(t, g, subject, func(v int, d *events.Delivery) error {
		switch v {
		case 1:
			return d.Nak(0)
		case 2:
			return d.Term("bad")
		}
		return d.Ack(context.Background())
	})
	patience.Until(t, "all are decided", func() bool { _, n := c.counts(); return n == 5 })
	wantGroup(t, g, events.Depth{DeadLettered: 2})
	if c.seen[1] != 3 || c.seen[2] != 1 || c.seen[3] != 1 {
		t.Errorf("deliveries %v", c.seen)
	}
	if st, err := j.State(t.Context()); err != nil || st.Events != 3 {
		t.Errorf("events that were given up are gone from the journal: %+v %v", st, err)
	}
}

func testJournalNames(t *testing.T, _ string, open func(events.JournalConfig) OpenJournal) {
	bus, j := open(events.JournalConfig{})()
	for _, name := range []string{"", "A", "a b", "a.b", "_a", "a*"} {
		if _, err := j.Group(name, events.Start{}); err == nil {
			t.Errorf("group %q is taken", name)
		}
	}
	for _, subject := range []string{"", "a..b", "a.*", "a.>"} {
		if _, err := bus.Journal(subject, events.JournalConfig{}); !errors.Is(err, events.ErrSubject) {
			t.Errorf("journal of %q: %v", subject, err)
		}
	}
}
