package route

import (
	"slices"
	"testing"
	"time"

	"github.com/dynctl/dynctl/internal/engine"
)

// What a worker tells the router are the hashes that the workload's blocks have, and what
// it finds is what it told.
func TestWorkersHashAsTheWorkload(t *testing.T) {
	requests := cut(t)[:40]
	s, err := newSimulation(Config{Requests: requests, Policy: Own().Settings[0], Workers: 1, Blocks: 4000, Speed: 1, Timing: H100}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.share()
	if err := s.run(s.arrive); err != nil {
		t.Fatal(err)
	}
	want := map[uint64]bool{}
	for _, r := range requests {
		for _, h := range r.chain {
			want[h] = true
		}
	}
	got, err := s.workers[0].engine.Engine.Resident(t.Context(), func() {})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(want) || slices.ContainsFunc(got, func(h uint64) bool { return !want[h] }) {
		t.Errorf("%d blocks are cached, want the %d of all prompts and answers", len(got), len(want))
	}
	if lru, _ := Ideal(requests, 4000); s.result().Reuse() != lru {
		t.Errorf("one worker without evictions reuses %.4f, the ideal is %.4f", s.result().Reuse(), lru)
	}
}

// A later prompt that continues an answer finds its blocks. Other answers are new.
func TestAnswersThatAreContinued(t *testing.T) {
	at := func(i int, tokens, output int, blocks ...uint64) Request {
		return Request{At: time.Duration(i) * time.Hour, Tokens: tokens, Output: output, blocks: blocks}
	}
	for name, tc := range map[string]struct {
		requests []Request
		reused   []int // blocks
	}{
		"continued":            {[]Request{at(0, 600, 1000, 1, 2), at(1, 2000, 1, 1, 3, 4, 5)}, []int{0, 3}},
		"twice":                {[]Request{at(0, 600, 1000, 1, 2), at(1, 2000, 1, 1, 3, 4, 5), at(2, 2000, 1, 1, 6, 7, 8)}, []int{0, 3, 1}},
		"turn after turn":      {[]Request{at(0, 600, 500, 1, 2), at(1, 1200, 500, 1, 3, 4), at(2, 2100, 1, 1, 3, 5, 6, 7)}, []int{0, 2, 3}},
		"too short":            {[]Request{at(0, 600, 1000, 1, 2), at(1, 1500, 1, 1, 3, 4)}, []int{0, 1}},
		"of another's blocks":  {[]Request{at(0, 600, 1, 1, 2), at(1, 600, 1000, 1, 3), at(2, 600, 1, 1, 4), at(3, 2000, 1, 1, 5, 6, 7)}, []int{0, 1, 1, 1}},
		"part of a block":      {[]Request{at(0, 700, 500, 1, 2), at(1, 1030, 1, 1, 2, 3)}, []int{0, 2}},
		"whole prompt":         {[]Request{at(0, 1024, 1, 1, 2), at(1, 1024, 1, 1, 2)}, []int{0, 1}},
		"the same without end": {[]Request{at(0, 600, 1000, 1, 2), at(1, 600, 1000, 1, 2)}, []int{0, 1}},
	} {
		number(tc.requests)
		s, err := newSimulation(Config{Requests: tc.requests, Policy: Own().Settings[0], Workers: 1, Blocks: 100, Speed: 1, Timing: H100}, 1)
		if err != nil {
			t.Fatal(err)
		}
		s.share()
		var got []int
		s.answer = func(j *job, o engine.Output) error {
			if o.First != nil {
				got = append(got, o.First.Cached/BlockSize)
			}
			return nil
		}
		if err := s.run(s.arrive); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, tc.reused) {
			t.Errorf("%s: %v blocks are reused, want %v", name, got, tc.reused)
		}
	}
}

// A step takes the time of its work. What it gives comes at its end, and the router hears
// of blocks 5 ms later, of those that made room 5 ms after its begin.
func TestStepsTakeTime(t *testing.T) {
	first := H100.step(batch{prompt: 1000, pairs: 500_000})
	second := H100.step(batch{prompt: 1500, pairs: 1_125_000, decode: 1, context: 1001})
	requests := []Request{{Tokens: 1000, Output: 2, blocks: []uint64{1, 2}}, {At: first / 2, Tokens: 1500, Output: 1, blocks: []uint64{3, 4, 5}}, {At: time.Hour, Tokens: 2000, Output: 1, blocks: []uint64{6, 7, 8, 9}}}
	number(requests)
	s, err := newSimulation(Config{Requests: requests, Policy: Own().Settings[0], Workers: 1, Blocks: 5, Speed: 1, Timing: H100}, 1)
	if err != nil {
		t.Fatal(err)
	}
	s.share()
	knows := func(at time.Duration, request, want int) {
		s.at(at, func() error {
			got := 0
			if s.index.Lookup(requests[request].Hashes, &s.match); len(s.match.Overlaps) > 0 {
				got = s.match.Overlaps[0].Total()
			}
			if got != want {
				t.Errorf("at %s the index knows %d blocks of request %d, want %d", at, got, request, want)
			}
			return nil
		})
	}
	knows(first+eventDelay-1, 0, 0)
	knows(first+eventDelay+1, 0, 1)
	knows(time.Hour+eventDelay-1, 0, 1)
	knows(time.Hour+eventDelay-1, 1, 2)
	knows(time.Hour+eventDelay+1, 1, 1) // four of five blocks are needed, two are free
	var got []engine.FirstToken
	s.answer = func(_ *job, o engine.Output) error {
		if o.First != nil {
			got = append(got, *o.First)
		}
		return nil
	}
	if err := s.run(s.arrive); err != nil {
		t.Fatal(err)
	}
	last := H100.step(batch{prompt: 2000, pairs: 2_000_000})
	for i, want := range [][2]time.Duration{{0, first}, {first - first/2, second}, {0, last}} {
		if f := got[i]; f.Queued != want[0] || f.Prefill != want[1] {
			t.Errorf("request %d: waited %s, computed %s, want %v", i, f.Queued, f.Prefill, want)
		}
	}
	if r := s.result(); r.Span != time.Hour+last || r.Computed != 4500 || s.workers[0].rate == 0 {
		t.Errorf("%+v", r)
	}
}

// Sequences that outgrow a cache are preempted, and all are answered in the end.
func TestReplayPreempts(t *testing.T) {
	var requests []Request
	for i := range 8 {
		requests = append(requests, Request{Tokens: 1000, Output: 3000, blocks: []uint64{uint64(2 * i), uint64(2*i + 1)}})
	}
	number(requests)
	r, err := Play(Config{Requests: requests, Policy: Own().Settings[0], Workers: 1, Blocks: 20, Speed: 1, Timing: H100})
	if err != nil || r.Preempted == 0 || len(requests) != r.Requests {
		t.Errorf("%+v %v", r, err)
	}
	if _, err := Play(Config{Requests: requests, Policy: Own().Settings[0], Workers: 1, Blocks: 7, Speed: 1, Timing: H100}); err == nil {
		t.Error("a request that does not fit is served")
	}
}
