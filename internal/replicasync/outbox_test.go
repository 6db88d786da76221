package replicasync

import (
	"errors"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// Changes leave in batches; beyond the queue's bound they are dropped, counted, and a new
// epoch says so.
func TestOutbox(t *testing.T) {
	s := newSender(t, 1)
	counts := newCounts()
	s.out.lost = counts.Lost
	lost := func() float64 { return counts.value(t, `dropped_total{reason="lost"}`) }
	for range 300 {
		s.begin(cluster.RoleDecode, 1, 1)
	}
	first, more := s.out.take()
	second, rest := s.out.take()
	if len(first.Changes) != batchMost || first.First != 0 || !more || len(second.Changes) != 300-batchMost || second.First != batchMost || rest {
		t.Errorf("%d changes from %d, then %d from %d", len(first.Changes), first.First, len(second.Changes), second.First)
	}
	empty, _ := s.out.take()
	if len(empty.Changes) != 0 || empty.First != 300 || empty.Epoch != first.Epoch {
		t.Errorf("position %+v", empty)
	}
	for range queueMost {
		s.begin(cluster.RoleDecode, 1, 1)
	}
	if m, _ := s.out.take(); m.Epoch != first.Epoch || lost() != 0 {
		t.Errorf("epoch %d, %g lost", m.Epoch, lost())
	}
	for range batchMost + 1 {
		s.begin(cluster.RoleDecode, 1, 1)
	}
	<-s.out.wake
	m, _ := s.out.take()
	if m.Epoch != first.Epoch+1 || m.First != 0 || len(m.Changes) != 0 || lost() != queueMost+1 {
		t.Errorf("after a loss: epoch %d at %d, %g lost", m.Epoch-first.Epoch, m.First, lost())
	}
	changes, epoch, next := s.out.snapshot()
	if want := 300 + queueMost + batchMost + 1; len(changes) != want || epoch != m.Epoch || next != 0 {
		t.Errorf("%d flights are open, want %d; position %d of epoch %d", len(changes), want, next, epoch)
	}
	// What could not be published is a loss, once.
	s.begin(cluster.RoleDecode, 1, 1)
	s.begin(cluster.RoleDecode, 1, 1)
	m, _ = s.out.take()
	s.out.unpublished(m)
	s.out.unpublished(m)
	if again, _ := s.out.take(); again.Epoch != m.Epoch+1 || lost() != queueMost+3 {
		t.Errorf("epoch %d after %d, %g lost", again.Epoch, m.Epoch, lost())
	}
	s.out.unpublished(cluster.FlightEvents{Epoch: m.Epoch + 1}) // a position: another one follows
	if again, _ := s.out.take(); again.Epoch != m.Epoch+1 {
		t.Error("a lost position is no loss")
	}
}

// Flights that have ended leave nothing behind.
func TestOutboxForgets(t *testing.T) {
	s := newSender(t, 1)
	for range 10 {
		f := s.begin(cluster.RoleDecode, 1, 1)
		f.Prefilled()
		f.Grow(2)
		f.End()
	}
	if len(s.out.open) != 0 {
		t.Errorf("%d flights are kept", len(s.out.open))
	}
}

// Prompts of any length fit into messages that others accept.
func TestLongPrompts(t *testing.T) {
	patience.OneGoroutine(t)
	s := newSender(t, 1)
	long := make([]uint64, 3*hashesMost)
	for i := range long {
		long[i] = 1<<63 + uint64(i)
	}
	for range batchMost {
		s.begin(cluster.RoleDecode, 1, long...).Prefilled()
	}
	total := 0
	for more := true; more; {
		var m cluster.FlightEvents
		m, more = s.out.take()
		b, err := protocol.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got, err := decode(b)
		if err != nil || len(b) > 1<<20 {
			t.Fatalf("%d bytes: %v", len(b), err)
		}
		for _, c := range got.Changes {
			if c.Kind == cluster.FlightBegin && (len(c.Hashes) != hashesMost || c.Hashes[hashesMost-1] != long[hashesMost-1]) {
				t.Fatalf("%d hashes", len(c.Hashes))
			}
		}
		total += len(got.Changes)
	}
	if total != 2*batchMost {
		t.Errorf("%d changes", total)
	}
}

// An answer has as many flights and hashes as its reader takes.
func TestLargeSnapshot(t *testing.T) {
	patience.OneGoroutine(t)
	s := newSender(t, 1)
	hashes := make([]uint64, hashesMost)
	for range flightsMost + 100 {
		s.begin(cluster.RoleDecode, 1, hashes...)
	}
	changes, _, _ := s.out.snapshot()
	sum := 0
	for _, c := range changes {
		sum += len(c.Hashes)
	}
	if len(changes) != flightsMost || sum != answerHashes {
		t.Errorf("%d flights with %d hashes", len(changes), sum)
	}
}

func TestMalformed(t *testing.T) {
	good := cluster.FlightChange{Kind: cluster.FlightBegin, Phase: cluster.RoleDecode, Flight: 1, Worker: 2, Hashes: []uint64{1}, Uncached: 3}
	end := cluster.FlightChange{Kind: cluster.FlightEnd, Phase: cluster.RolePrefill, Flight: 1}
	grown := cluster.FlightChange{Kind: cluster.FlightGrown, Phase: cluster.RoleDecode, Flight: 1, Blocks: 2}
	with := func(c cluster.FlightChange, change func(*cluster.FlightChange)) []cluster.FlightChange {
		change(&c)
		return []cluster.FlightChange{c}
	}
	if err := check([]cluster.FlightChange{good, grown, end}); err != nil {
		t.Fatal(err)
	}
	for name, changes := range map[string][]cluster.FlightChange{
		"no number":         with(good, func(c *cluster.FlightChange) { c.Flight = 0 }),
		"kind":              with(good, func(c *cluster.FlightChange) { c.Kind = "pause" }),
		"phase":             with(good, func(c *cluster.FlightChange) { c.Phase = "encode" }),
		"no worker":         with(good, func(c *cluster.FlightChange) { c.Worker = 0 }),
		"negative":          with(good, func(c *cluster.FlightChange) { c.Uncached = -1 }),
		"too long":          with(good, func(c *cluster.FlightChange) { c.Uncached = uncachedMost + 1 }),
		"too many hashes":   with(good, func(c *cluster.FlightChange) { c.Hashes = make([]uint64, hashesMost+1) }),
		"end of a phase":    with(end, func(c *cluster.FlightChange) { c.Phase = "" }),
		"end with worker":   with(end, func(c *cluster.FlightChange) { c.Worker = 2 }),
		"end with hashes":   with(end, func(c *cluster.FlightChange) { c.Hashes = []uint64{1} }),
		"end with blocks":   with(end, func(c *cluster.FlightChange) { c.Blocks = 1 }),
		"begin with blocks": with(good, func(c *cluster.FlightChange) { c.Blocks = 1 }),
		"grown by nothing":  with(grown, func(c *cluster.FlightChange) { c.Blocks = 0 }),
		"grown too long":    with(grown, func(c *cluster.FlightChange) { c.Blocks = blocksMost + 1 }),
		"grown elsewhere":   with(grown, func(c *cluster.FlightChange) { c.Worker = 2 }),
		"end with tokens":   with(end, func(c *cluster.FlightChange) { c.Uncached = 1 }),
		"too many changes":  make([]cluster.FlightChange, batchMost+1),
	} {
		b, err := protocol.Marshal(cluster.FlightEvents{Frontend: 1, Epoch: 1, Changes: changes})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string][]byte{"no message": {0xc1}, "empty": nil, "too long": make([]byte, messageMost+1)} {
		if _, err := decode(b); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b, err := protocol.Marshal(cluster.FlightEvents{Frontend: 1, First: 1 << 63})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := decode(b); !errors.Is(err, errMalformed) {
		t.Errorf("position: %v", err)
	}
}

// Whatever arrives is refused or counted within the bounds, and is forgotten as a whole.
func FuzzMessage(f *testing.F) {
	for _, m := range []cluster.FlightEvents{
		{Frontend: 1, Epoch: 1},
		{Frontend: 1, Epoch: 1, Changes: []cluster.FlightChange{
			{Kind: cluster.FlightBegin, Phase: cluster.RoleDecode, Flight: 1, Worker: 2, Hashes: []uint64{1, 1}, Uncached: 3},
			{Kind: cluster.FlightPrefilled, Phase: cluster.RoleDecode, Flight: 1},
			{Kind: cluster.FlightGrown, Phase: cluster.RoleDecode, Flight: 1, Blocks: 3},
			{Kind: cluster.FlightEnd, Phase: cluster.RoleDecode, Flight: 1},
		}},
	} {
		b, err := protocol.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decode(b)
		if err != nil {
			return
		}
		now := time.Now()
		l := loads()
		p := newPeer(cluster.Instance{InstanceID: m.Frontend}, l, testMetrics(), now)
		if err := p.answer([]protocol.FlightsPage{{Frontend: m.Frontend, Epoch: m.Epoch, Next: m.First}}, now); err != nil {
			t.Fatal(err)
		}
		p.message(m, now)
		if p.next != m.First+uint64(len(m.Changes)) || p.flights() > batchMost {
			t.Fatalf("%d flights, position %d", p.flights(), p.next)
		}
		p.forget()
		for _, w := range []*router.Load{l[cluster.RoleDecode], l[cluster.RolePrefill]} {
			for _, c := range m.Changes {
				if n := w.InFlight(c.Worker); n != 0 {
					t.Fatalf("%d flights are left at %d", n, c.Worker)
				}
			}
		}
	})
}
