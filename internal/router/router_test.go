package router

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func workers(inFlight ...int) []Candidate {
	var out []Candidate
	for i, n := range inFlight {
		out = append(out, Candidate{ID: cluster.InstanceID(100 - i), Worker: cluster.WorkerName(i + 1), InFlight: n})
	}
	return out
}

// inFlight counts what a Load has booked, and checks that idle workers hold nothing.
func inFlight(l *Load) (n int) {
	for _, w := range l.workers.all {
		if w.requests == 0 && (w.blocks != nil || w.output != 0 || w.prefill != 0 || w.prefills != 0) {
			return -1
		}
		n += w.requests
	}
	return n
}

// sum adds up the terms of a cost.
func sum(terms []cluster.CostTerm) (cost float64) {
	for _, t := range terms {
		cost += t.Value
	}
	return cost
}

// Every policy keeps these promises.
func TestPolicies(t *testing.T) {
	for _, name := range []string{RoundRobin, LeastLoaded} {
		t.Run(name, func(t *testing.T) {
			p, err := NewPolicy(name)
			if err != nil || p.Name() != name {
				t.Fatalf("policy %v: %v", p, err)
			}
			t.Run("no candidates", func(t *testing.T) {
				if _, err := p.Pick(Request{}, View{Candidates: nil}); !errors.Is(err, ErrNoWorkers) {
					t.Errorf("got %v, want ErrNoWorkers", err)
				}
			})
			t.Run("all excluded", func(t *testing.T) {
				c := workers(0, 0)
				c[0].Excluded, c[1].Excluded = "draining", "lost"
				d, err := p.Pick(Request{}, View{Candidates: c})
				if !errors.Is(err, ErrAllExcluded) || len(d.Candidates) != 2 || d.Candidates[0].Excluded == "" {
					t.Errorf("got %+v %v, want ErrAllExcluded and both reasons", d, err)
				}
			})
			t.Run("never an excluded one, the chosen is listed first", func(t *testing.T) {
				for range 100 {
					c := workers(3, 0, 1, 0)
					c[1].Excluded = "draining"
					d, err := p.Pick(Request{}, View{Candidates: c})
					if err != nil || d.Chosen.Worker == "worker-2" {
						t.Fatalf("chose %q %v", d.Chosen.Worker, err)
					}
					if len(d.Weighed) != 1 || d.Weighed[0] != map[string]string{RoundRobin: cluster.TermTurn, LeastLoaded: cluster.TermLoad}[name] {
						t.Fatalf("decided by %q", d.Weighed)
					}
					if d.Candidates[0].Worker != d.Chosen.Worker || d.Candidates[3].Worker != "worker-2" || d.Policy != name {
						t.Fatalf("decision %+v", d)
					}
				}
			})
		})
	}
	if _, err := NewPolicy("magic"); err == nil {
		t.Error("an unknown policy is accepted")
	}
}

func TestRoundRobinTakesTurns(t *testing.T) {
	p, _ := NewPolicy(RoundRobin)
	got := map[string]int{}
	last := ""
	for turn := range uint64(12) {
		d, err := p.Pick(Request{}, View{Candidates: workers(9, 0, 0), Turn: turn})
		if err != nil {
			t.Fatal(err)
		}
		if d.Chosen.Worker == last {
			t.Errorf("%s twice in a row", last)
		}
		last = d.Chosen.Worker
		got[last]++
	}
	for w, n := range got {
		if n != 4 {
			t.Errorf("%s was chosen %d times of 12", w, n)
		}
	}
}

func TestLeastLoaded(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	seen := map[string]int{}
	for i := range 2000 {
		d, err := p.Pick(Request{ID: fmt.Sprintf("%024x", i)}, View{Candidates: workers(2, 1, 5, 1)})
		if err != nil {
			t.Fatal(err)
		}
		seen[d.Chosen.Worker]++
	}
	// The chance that fair coins fail this is below one in a million.
	if len(seen) != 2 || seen["worker-2"] < 880 || seen["worker-4"] < 880 {
		t.Errorf("chose %v, want each of the least loaded half of the time and nobody else", seen)
	}
}

// Frontends that see the same candidates, in any order, decide alike.
func TestLeastLoadedIsReplayed(t *testing.T) {
	a, _ := NewPolicy(LeastLoaded)
	b, _ := NewPolicy(LeastLoaded)
	for i := range 200 {
		r := Request{ID: fmt.Sprintf("request-%d", i)}
		c := workers(1, 0, 0, 0, 3, 0)
		first, err := a.Pick(r, View{Candidates: c})
		if err != nil {
			t.Fatal(err)
		}
		slices.Reverse(c)
		if again, err := b.Pick(r, View{Candidates: c}); err != nil || !reflect.DeepEqual(again, first) {
			t.Fatalf("%s: %+v %v, then %+v", r.ID, first, err, again)
		}
	}
}

func TestLoadSpreadsABurst(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	l := NewLoad()
	var flights []*Flight
	for range 30 {
		_, f, err := l.Choose(Request{}, View{Candidates: workers(0, 0, 0)}, p.Pick)
		if err != nil {
			t.Fatal(err)
		}
		flights = append(flights, f)
	}
	for _, c := range workers(0, 0, 0) {
		if n := l.InFlight(c.ID); n != 10 {
			t.Errorf("%s has %d in flight, want 10", c.Worker, n)
		}
	}
	for _, f := range flights {
		f.End()
		f.End() // a second call changes nothing
	}
	if n := inFlight(l); n != 0 {
		t.Errorf("%d flights are left", n)
	}
}

// A request that finds no worker counts nowhere, and requests at the same time see
// each other.
func TestLoadIsConsistent(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	l := NewLoad()
	if _, f, err := l.Choose(Request{}, View{}, p.Pick); !errors.Is(err, ErrNoWorkers) || f == nil {
		t.Errorf("nobody there: %v", err)
	} else {
		f.End()
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 200 {
				d, f, err := l.Choose(Request{}, View{Candidates: workers(0, 0, 0)}, p.Pick)
				if err != nil || l.InFlight(d.Chosen.ID) < 1 {
					t.Errorf("chose %+v, %d in flight: %v", d.Chosen, l.InFlight(d.Chosen.ID), err)
				}
				if d.Chosen.InFlight > 8/3+1 {
					t.Errorf("%d in flight on the chosen one of three, with eight requests", d.Chosen.InFlight)
				}
				f.End()
			}
		})
	}
	wg.Wait()
	if n := inFlight(l); n != 0 {
		t.Errorf("%d flights are left", n)
	}
}

// Workers come and go between the turns: everybody who stays gets turns.
func TestRoundRobinWithChangingWorkers(t *testing.T) {
	p, _ := NewPolicy(RoundRobin)
	got := map[string]int{}
	for i := range 300 {
		c := workers(0, 0, 0, 0)
		if i%3 > 0 {
			c = c[:2+i%3]
		}
		d, err := p.Pick(Request{}, View{Candidates: c, Turn: uint64(i)})
		if err != nil {
			t.Fatal(err)
		}
		if d.Candidates[0].Cost != 0 {
			t.Fatalf("the chosen one has cost %v", d.Candidates[0].Cost)
		}
		got[d.Chosen.Worker]++
	}
	for _, w := range []string{"worker-1", "worker-2", "worker-3"} {
		if got[w] < 40 {
			t.Errorf("%s got %d turns of 300: %v", w, got[w], got)
		}
	}
}

// Prompts in flight count until their first token, blocks until the end, and a block that
// two requests share counts once.
func TestLoadCountsTokensAndBlocks(t *testing.T) {
	p, _ := NewPolicy(LeastLoaded)
	l := NewLoad()
	one := func() View { return View{Candidates: workers(0)} }
	seen := func(r Request) (c Candidate) {
		v := one()
		l.mu.Lock()
		defer l.mu.Unlock()
		l.fill(r, v)
		return v.Candidates[0]
	}
	a := Request{ID: "a", PromptTokens: 50, BlockSize: 16, Hashes: []uint64{1, 2, 3}}
	b := Request{ID: "b", PromptTokens: 64, BlockSize: 16, Hashes: []uint64{1, 2, 7, 8}}
	_, fa, err := l.Choose(a, one(), p.Pick)
	if err != nil {
		t.Fatal(err)
	}
	if c := seen(b); c.InFlight != 1 || c.PrefillTokens != 50 || c.ActiveBlocks != 3+1 || c.Shared != 2 || c.Uncached(b) != 32 {
		t.Errorf("after the first prompt: %+v, %d uncached", c, c.Uncached(b))
	}
	v := one()
	v.Candidates[0].Overlap = Overlap{Device: 1, Host: 1, Disk: 1}
	_, fb, err := l.Choose(b, v, p.Pick)
	if err != nil {
		t.Fatal(err)
	}
	if c := seen(b); c.Prefills != 2 || c.PrefillTokens != 50+16 || c.ActiveBlocks != 5+2 || c.Shared != 4 || c.Uncached(b) != 1 {
		t.Errorf("after the second prompt: %+v, %d uncached", c, c.Uncached(b))
	}
	fa.Prefilled()
	fa.Prefilled()
	if c := seen(a); c.InFlight != 2 || c.Prefills != 1 || c.PrefillTokens != 16 || c.ActiveBlocks != 5+2 {
		t.Errorf("with the first token: %+v", c)
	}
	fa.End()
	fa.Prefilled() // too late
	if c := seen(a); c.InFlight != 1 || c.PrefillTokens != 16 || c.ActiveBlocks != 4+1 || c.Shared != 2 {
		t.Errorf("after the first end: %+v", c)
	}
	fb.End()
	if c := seen(a); !reflect.DeepEqual(c, one().Candidates[0]) || inFlight(l) != 0 {
		t.Errorf("after the end: %+v", c)
	}
}

// The blocks of outputs are in use until the end. Others are told of them in steps that grow
// with the sequence.
func TestLoadCountsOutput(t *testing.T) {
	l := NewLoad()
	told := []int{}
	l.Observe(func(c cluster.FlightChange) {
		if c.Kind == cluster.FlightGrown {
			told = append(told, c.Blocks)
		}
	})
	f := to(t, l, 1, 1, 2, 3, 4)
	active := func() int { return look(t, l, []uint64{1})[0].ActiveBlocks }
	for blocks := range 41 {
		f.Grow(blocks)
		f.Grow(blocks - 1)
		if n := active(); n != 4+1+blocks {
			t.Fatalf("%d blocks of output: %d in use", blocks, n)
		}
	}
	if want := []int{1, 2, 3, 4, 6, 8, 10, 12, 15, 18, 22, 26, 31, 36}; !slices.Equal(told, want) {
		t.Errorf("told of %v, want %v", told, want)
	}
	f.End()
	f.Grow(50)
	if n := active(); n != 0 || inFlight(l) != 0 {
		t.Errorf("%d blocks are in use after the end", n)
	}
}

// The terms of a cost add up to it.
func TestTermsAddUp(t *testing.T) {
	for _, name := range Policies() {
		p, _ := NewPolicy(name)
		d, err := p.Pick(Request{ID: "r", PromptTokens: 100, BlockSize: 16, Hashes: []uint64{1, 2, 3, 4, 5, 6}}, View{Candidates: workers(2, 1, 5, 1), Turn: 2})
		if err != nil {
			t.Fatal(err)
		}
		for i, c := range d.Candidates {
			if len(c.Terms) == 0 || len(c.Terms) != len(d.Weighed) || sum(c.Terms) != c.Cost || c.Cost < d.Candidates[0].Cost {
				t.Errorf("%s: candidate %d: terms %v, cost %v, weighed %v", name, i, c.Terms, c.Cost, d.Weighed)
			}
		}
	}
}

// A request on an idle worker costs no growth of the map of its blocks.
func BenchmarkChooseIdle(b *testing.B) {
	r := Request{ID: "r", PromptTokens: 10_000, BlockSize: 16}
	for i := range uint64(625) {
		r.Hashes = append(r.Hashes, (i+1)*0x9e3779b97f4a7c15)
	}
	p, err := NewPolicy(KV)
	if err != nil {
		b.Fatal(err)
	}
	l := NewLoad()
	v := View{Candidates: []Candidate{{ID: 1, Worker: "w"}}}
	b.ReportAllocs()
	for b.Loop() {
		_, f, err := l.Choose(r, v, p.Pick)
		if err != nil {
			b.Fatal(err)
		}
		f.End()
	}
}

// BenchmarkChoose is a decision among many workers: a quarter of them holds half of a prompt
// of 10,000 tokens, and 64 requests are in flight.
func BenchmarkChoose(b *testing.B) {
	for _, policy := range []string{KV, LeastLoaded} {
		for _, workers := range []int{8, 128, 1000} {
			b.Run(fmt.Sprintf("%s/%d workers", policy, workers), func(b *testing.B) {
				p, err := NewPolicy(policy)
				if err != nil {
					b.Fatal(err)
				}
				l := NewLoad()
				v := View{Candidates: make([]Candidate, workers)}
				for i := range v.Candidates {
					v.Candidates[i] = Candidate{ID: cluster.InstanceID(i + 1), Worker: cluster.WorkerName(i + 1), KVBlocks: 10_000}
					if i%4 == 0 {
						v.Candidates[i].Overlap.Device = 300
					}
				}
				requests := make([]Request, 64)
				for i := range requests {
					requests[i] = Request{ID: fmt.Sprintf("request-%d", i), PromptTokens: 10_000, BlockSize: 16}
					for k := range uint64(625) {
						requests[i].Hashes = append(requests[i].Hashes, (k+1)*0x9e3779b97f4a7c15+uint64(i%8))
					}
				}
				for _, r := range requests {
					if _, _, err := l.Choose(r, v, p.Pick); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					if _, err := l.Preview(requests[i%64], v, p.Pick); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
