package replicasync

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/patience"
	"github.com/dynctl/dynctl/internal/protocol"
	"github.com/dynctl/dynctl/internal/router"
)

// position is a place in the changes of a frontend.
type position struct{ epoch, next uint64 }

// Whatever is lost, late or comes twice, a frontend that says it is up to date counts what
// the other one counted at that position, and it gets up to date in the end.
func TestPeerCountsWhatItsFrontendCounted(t *testing.T) {
	const id = 77
	for seed := range uint64(12) {
		s := newSender(t, seed)
		all := loads()
		now := time.Now()
		p := newPeer(cluster.Instance{InstanceID: id}, all, testMetrics(), now)
		was := map[position][2][]router.Candidate{}
		note := func() {
			_, epoch, next := s.out.snapshot()
			was[position{epoch, next}] = state(t, s.loads)
		}
		note()
		var wire []cluster.FlightEvents
		var answers [][]protocol.FlightsPage
		compared := 0
		check := func() {
			if !p.known || !p.missing.IsZero() {
				return
			}
			want, ok := was[position{p.epoch, p.next}]
			if !ok {
				t.Fatalf("seed %d: applied up to %d of epoch %d, which the frontend never had", seed, p.next, p.epoch)
			}
			compared++
			if got := state(t, all); !reflect.DeepEqual(got, want) {
				t.Fatalf("seed %d: at %d counted\n%+v, want\n%+v", seed, p.next, got, want)
			}
		}
		step := func(faulty bool) {
			now = now.Add(20 * time.Millisecond)
			for range s.rng.IntN(4) {
				s.work()
				note()
			}
			if s.rng.IntN(2) == 0 {
				m, _ := s.out.take()
				m.Frontend = id
				switch r := s.rng.IntN(20); {
				case faulty && r == 0: // lost on the way
				case faulty && r == 1:
					s.out.unpublished(m)
					note()
				case faulty && r == 2:
					wire = append(wire, m, m)
				default:
					wire = append(wire, m)
				}
			}
			if len(wire) > 0 && s.rng.IntN(3) > 0 {
				p.message(wire[0], now)
				wire = wire[1:]
				check()
			}
			if p.due(now) {
				p.asking = true
				if faulty && s.rng.IntN(3) == 0 {
					p.failed(now)
				} else {
					answers = append(answers, s.page(id))
				}
			}
			if len(answers) > 0 && s.rng.IntN(3) == 0 {
				if err := p.answer(answers[0], now); err != nil {
					t.Fatal(err)
				}
				answers = answers[1:]
				check()
			}
		}
		for range 2000 {
			step(true)
		}
		for range 200 { // in peace
			step(false)
		}
		for i := 0; i < 1000 && !(len(s.out.queue) == 0 && len(wire) == 0 && p.known && p.missing.IsZero()); i++ {
			m, _ := s.out.take()
			m.Frontend = id
			for _, w := range append(wire, m) {
				p.message(w, now)
			}
			wire = nil
			if now = now.Add(time.Second); p.due(now) {
				p.asking = true
				if err := p.answer(s.page(id), now); err != nil {
					t.Fatal(err)
				}
			}
		}
		if got, want := state(t, all), state(t, s.loads); !reflect.DeepEqual(got, want) || compared < 200 {
			t.Fatalf("seed %d: in the end counted\n%+v, want\n%+v (%d compared)", seed, got, want, compared)
		}
		if p.gaps == 0 || p.snapshots < 5 {
			t.Errorf("seed %d: %d gaps, %d snapshots", seed, p.gaps, p.snapshots)
		}
		p.forget()
		for _, l := range all {
			for _, c := range counted(t, l) {
				if c.InFlight+c.PrefillTokens+c.ActiveBlocks+c.Shared != 0 {
					t.Fatalf("seed %d: left %+v", seed, c)
				}
			}
		}
	}
}

// A frontend that is silent is asked after three seconds; if it does not answer, its
// flights are forgotten two seconds later. One that answers keeps them.
func TestSilentFrontend(t *testing.T) {
	const id = 5
	s := newSender(t, 1)
	s.begin(cluster.RoleDecode, 2, 1, 2)
	now := time.Now()
	at := func(ms int) time.Time { return now.Add(time.Duration(ms) * time.Millisecond) }
	fresh := func() (*peer, map[cluster.Role]*router.Load) {
		all := loads()
		p := newPeer(cluster.Instance{InstanceID: id}, all, testMetrics(), now)
		if !p.due(now) {
			t.Fatal("a new frontend is not asked")
		}
		p.asking = true
		if err := p.answer(s.page(id), now); err != nil {
			t.Fatal(err)
		}
		if p.flights() != 1 || all[cluster.RoleDecode].InFlight(2) != 1 {
			t.Fatalf("%d flights", p.flights())
		}
		return p, all
	}
	p, all := fresh()
	for _, ms := range []int{50, 1000, 2990} {
		if p.due(at(ms)) {
			t.Errorf("asked after %d ms", ms)
		}
	}
	for ms := 3000; ms < 5000; ms += 100 {
		if p.due(at(ms)) {
			p.asking = true
			p.failed(at(ms))
		}
		if all[cluster.RoleDecode].InFlight(2) != 1 {
			t.Fatalf("forgotten after %d ms", ms)
		}
	}
	p.due(at(5000))
	if n := all[cluster.RoleDecode].InFlight(2); n != 0 || p.flights() != 0 {
		t.Errorf("%d flights are kept of a frontend that is gone", n)
	}
	if !p.due(at(5500)) { // it is asked for all again
		t.Error("not asked again")
	}

	p, all = fresh()
	for ms := 0; ms < 20000; ms += 100 {
		if p.due(at(ms)) {
			p.asking = true
			if err := p.answer(s.page(id), at(ms)); err != nil {
				t.Fatal(err)
			}
		}
		if all[cluster.RoleDecode].InFlight(2) != 1 {
			t.Fatalf("after %d ms the flights of a frontend that answers are forgotten", ms)
		}
	}
	if p.snapshots < 5 || p.snapshots > 8 {
		t.Errorf("asked %d times in 20 s", p.snapshots)
	}

	p, _ = fresh()
	for ms := 0; ms < 20000; ms += 1000 {
		if p.due(at(ms)) {
			t.Fatal("asked though it tells its position")
		}
		m, _ := s.out.take()
		p.message(cluster.FlightEvents{Frontend: id, Epoch: m.Epoch, First: m.First}, at(ms))
	}
}

// What comes while the answer is on its way continues it: one question is enough.
func TestTailContinuesSnapshot(t *testing.T) {
	const id = 5
	s := newSender(t, 1)
	all := loads()
	now := time.Now()
	p := newPeer(cluster.Instance{InstanceID: id}, all, testMetrics(), now)
	send := func() {
		m, _ := s.out.take()
		m.Frontend = id
		p.message(m, now)
	}
	s.begin(cluster.RoleDecode, 1, 1)
	if !p.due(now) {
		t.Fatal("a new frontend is not asked")
	}
	p.asking = true
	send()
	s.begin(cluster.RoleDecode, 1, 1)
	pages := s.page(id)
	send() // the answer contains it
	s.begin(cluster.RoleDecode, 1, 1)
	send()
	if err := p.answer(pages, now); err != nil {
		t.Fatal(err)
	}
	if n := all[cluster.RoleDecode].InFlight(1); n != 3 || p.due(now) || p.snapshots != 1 || p.gaps != 0 {
		t.Errorf("%d flights, asked again: %v, %d snapshots, %d gaps", n, p.due(now), p.snapshots, p.gaps)
	}
}

// Messages that wait for an answer are bounded; those beyond it are asked for.
func TestHeldMessagesAreBounded(t *testing.T) {
	patience.OneGoroutine(t)
	const id = 5
	now := time.Now()
	for _, hashes := range []int{0, hashesMost} {
		s := newSender(t, 1)
		all := loads()
		p := newPeer(cluster.Instance{InstanceID: id}, all, testMetrics(), now)
		p.asking = true
		pages := s.page(id)
		want := heldMost / 3
		if hashes > 0 {
			want = heldMost / (hashesMost + 2)
		}
		c := cluster.FlightChange{Kind: cluster.FlightPrefilled, Phase: cluster.RoleDecode, Flight: 1, Hashes: make([]uint64, hashes)}
		sent := 0
		for ; sent < heldMost; sent++ {
			m := cluster.FlightEvents{Frontend: id, Epoch: pages[0].Epoch, First: uint64(sent), Changes: []cluster.FlightChange{c}}
			if hashes == 0 {
				m.First, m.Changes = uint64(2*sent), []cluster.FlightChange{c, c}
			}
			p.message(m, now)
		}
		if len(p.held) != want {
			t.Errorf("%d messages are held, want %d", len(p.held), want)
		}
		if err := p.answer(pages, now); err != nil {
			t.Fatal(err)
		}
		if len(p.held) != 0 || p.due(now) {
			t.Errorf("%d messages are held after the answer", len(p.held))
		}
		p.message(cluster.FlightEvents{Frontend: id, Epoch: pages[0].Epoch, First: uint64(2 * sent)}, now)
		if !p.due(now) || p.gaps == 0 {
			t.Error("the loss is not noticed")
		}
	}
}

// The counts of a frontend are bounded, and answers that are not its own change nothing.
func TestBoundsOfAPeer(t *testing.T) {
	const id = 5
	all := loads()
	count := newCounts()
	now := time.Now()
	p := newPeer(cluster.Instance{InstanceID: id}, all, count.ReplicaSync, now)
	begin := func(n int) cluster.FlightChange {
		return cluster.FlightChange{Kind: cluster.FlightBegin, Phase: cluster.RoleDecode, Flight: uint64(n), Worker: 1, Hashes: []uint64{1}, Uncached: 1}
	}
	for name, pages := range map[string][]protocol.FlightsPage{
		"none":              {},
		"another frontend":  {{Frontend: 6, Epoch: 1}},
		"another epoch":     {{Frontend: id, Epoch: 1}, {Frontend: id, Epoch: 2}},
		"another position":  {{Frontend: id, Epoch: 1}, {Frontend: id, Epoch: 1, Next: 3}},
		"malformed changes": {{Frontend: id, Epoch: 1, Changes: []cluster.FlightChange{{Kind: "x", Flight: 1, Phase: cluster.RoleDecode}}}},
	} {
		if err := p.answer(pages, now); !errors.Is(err, errMalformed) || p.known {
			t.Errorf("%s: %v, known %v", name, err, p.known)
		}
	}
	if err := p.answer([]protocol.FlightsPage{{Frontend: id, Epoch: 1, Next: 0}}, now); err != nil {
		t.Fatal(err)
	}
	next := 0
	send := func(c cluster.FlightChange) {
		p.message(cluster.FlightEvents{Frontend: id, Epoch: 1, First: uint64(next), Changes: []cluster.FlightChange{c}}, now)
		next++
	}
	for i := range flightsMost + 10 {
		send(begin(i + 1))
	}
	if n := all[cluster.RoleDecode].InFlight(1); n != flightsMost || count.value(t, `dropped_total{reason="excess"}`) != 10 {
		t.Errorf("%d flights, %g beyond the bound", n, count.value(t, `dropped_total{reason="excess"}`))
	}
	send(cluster.FlightChange{Kind: cluster.FlightEnd, Phase: cluster.RoleDecode, Flight: flightsMost + 3}) // not counted
	send(cluster.FlightChange{Kind: cluster.FlightEnd, Phase: cluster.RoleDecode, Flight: 3})
	send(begin(4)) // again
	if n := all[cluster.RoleDecode].InFlight(1); n != flightsMost-1 || count.value(t, `dropped_total{reason="malformed"}`) != 1 {
		t.Errorf("%d flights, %g malformed", n, count.value(t, `dropped_total{reason="malformed"}`))
	}
	var page protocol.FlightsPage
	var pages []protocol.FlightsPage
	for i := range flightsMost + 5 {
		page.Changes = append(page.Changes, begin(i+1))
		if len(page.Changes) == batchMost || i == flightsMost+4 {
			page.Frontend, page.Epoch = id, 9
			pages = append(pages, page)
			page.Changes = nil
		}
	}
	if err := p.answer(pages, now); err != nil || all[cluster.RoleDecode].InFlight(1) != flightsMost {
		t.Errorf("%v, %d flights", err, all[cluster.RoleDecode].InFlight(1))
	}
}
