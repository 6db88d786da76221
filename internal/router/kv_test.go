package router

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// The choice weighs what is cached against what waits.
func TestKV(t *testing.T) {
	p, err := NewPolicy(KV)
	if err != nil {
		t.Fatal(err)
	}
	hashes := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	r := Request{ID: "r", PromptTokens: 165, BlockSize: 16, Hashes: hashes}
	for _, tc := range []struct {
		name string
		a, b Candidate
		want string
	}{
		{"the longer overlap", Candidate{Overlap: Overlap{Device: 3}}, Candidate{Overlap: Overlap{Device: 6}}, "b"},
		{"all tiers count", Candidate{Overlap: Overlap{Device: 3}}, Candidate{Overlap: Overlap{Device: 1, Host: 2, Disk: 1}}, "b"},
		{"a queue that costs more than computing", Candidate{Overlap: Overlap{Device: 10}, PrefillTokens: 1000}, Candidate{}, "b"},
		{"a queue that costs less", Candidate{Overlap: Overlap{Device: 10}, PrefillTokens: 400}, Candidate{}, "a"},
		{"a prompt that is being computed there", Candidate{Overlap: Overlap{Device: 2}, PrefillTokens: 100, ActiveBlocks: 10, Shared: 10}, Candidate{Overlap: Overlap{Device: 2}}, "a"},
		{"requests that decode", Candidate{ActiveBlocks: 40, InFlight: 2}, Candidate{ActiveBlocks: 39, InFlight: 3}, "b"},
		{"shared blocks count once", Candidate{ActiveBlocks: 40, Shared: 10, Overlap: Overlap{Device: 10}}, Candidate{ActiveBlocks: 31, Overlap: Overlap{Device: 10}}, "a"},
		{"the share of the pool counts", Candidate{ActiveBlocks: 40, KVBlocks: 4000}, Candidate{ActiveBlocks: 30, KVBlocks: 1000}, "a"},
		{"what decoding reads counts", Candidate{ActiveBlocks: 40, InFlight: 20, KVBlocks: 1000}, Candidate{ActiveBlocks: 50, InFlight: 1, KVBlocks: 1000}, "b"},
		{"the best is excluded", Candidate{Overlap: Overlap{Device: 10}, Excluded: "draining"}, Candidate{PrefillTokens: 1000}, "b"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.a.ID, tc.a.Worker, tc.b.ID, tc.b.Worker = 1, "a", 2, "b"
			d, err := p.Pick(r, View{Candidates: []Candidate{tc.a, tc.b}})
			if err != nil || d.Chosen.Worker != tc.want || d.Candidates[0].Worker != tc.want {
				t.Errorf("chose %s, %v: %+v", d.Chosen.Worker, err, d.Candidates)
			}
		})
	}
}

// Prompts with the same beginning that come at once are computed once; others spread.
func TestKVGroupsBursts(t *testing.T) {
	p, _ := NewPolicy(KV)
	l := NewLoad()
	send := func(id string, first uint64) string {
		r := Request{ID: id, PromptTokens: 165, BlockSize: 16}
		for k := range uint64(10) {
			r.Hashes = append(r.Hashes, first+k)
		}
		d, _, err := l.Choose(r, View{Candidates: workers(0, 0, 0, 0)}, p.Pick)
		if err != nil {
			t.Fatal(err)
		}
		return d.Chosen.Worker
	}
	same, other := map[string]int{}, map[string]int{}
	for i := range 6 {
		same[send(fmt.Sprint("same", i), 1000)]++
	}
	for i := range 9 {
		other[send(fmt.Sprint("other", i), uint64(10+100*i))]++
	}
	if len(same) != 1 || len(other) != 4 {
		t.Errorf("equal prompts went to %v, others to %v", same, other)
	}
	for w, n := range other { // the equal ones take one worker as long as one prompt
		if n > 3 || same[w] > 0 && n != 1 {
			t.Errorf("%s got %d of the others: %v", w, n, other)
		}
	}
}

// A hot prefix does not keep its prompts when its worker has a queue and others are idle.
func TestKVLetsGo(t *testing.T) {
	p, _ := NewPolicy(KV)
	l := NewLoad()
	at := map[string]int{}
	for i := range 400 {
		r := Request{ID: fmt.Sprint(i), PromptTokens: 1600, BlockSize: 16}
		for k := range uint64(50) {
			r.Hashes = append(r.Hashes, 1000+k) // half of each prompt is the same
		}
		for k := range uint64(50) {
			r.Hashes = append(r.Hashes, uint64(10_000+100*i)+k)
		}
		v := View{Candidates: workers(0, 0, 0, 0)}
		v.Candidates[2].Overlap.Device = 50
		d, _, err := l.Choose(r, v, p.Pick)
		if err != nil {
			t.Fatal(err)
		}
		at[d.Chosen.Worker]++
	}
	for w, n := range at {
		if n < 80 || n > 120 {
			t.Errorf("%s got %d of 400: %v", w, n, at)
		}
	}
}

// Prompts shorter than a block share nothing and differ in nothing: each goes to the worker
// with the fewest requests.
func TestShortPromptsSpread(t *testing.T) {
	l := NewLoad()
	p, _ := NewPolicy(KV)
	all := make([]Candidate, 4)
	for i := range all {
		all[i] = Candidate{ID: cluster.InstanceID(i + 1), KVBlocks: 4096}
	}
	for n := range 40 {
		r := Request{ID: fmt.Sprint("short ", n), PromptTokens: 5, BlockSize: 64}
		d, f, err := l.Choose(r, View{Candidates: slices.Clone(all)}, p.Pick)
		if err != nil {
			t.Fatal(err)
		}
		f.Prefilled()
		if d.Chosen.InFlight != n/len(all) {
			t.Fatalf("request %d went to a worker with %d others", n, d.Chosen.InFlight)
		}
	}
}
