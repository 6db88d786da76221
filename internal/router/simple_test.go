package router

import (
	"fmt"
	"testing"
)

// Dynamo's spellings name the same policies.
func TestSpellings(t *testing.T) {
	for theirs, own := range map[string]string{"round_robin": RoundRobin, "power_of_two": PowerOfTwo, "least_loaded": LeastLoaded, "kv": KV, "random": Random} {
		if p, err := NewPolicy(theirs); err != nil || p.Name() != own {
			t.Errorf("%s: %v %v", theirs, p, err)
		}
	}
}

func TestSimplePolicies(t *testing.T) {
	for _, tc := range []struct {
		policy string
		want   map[string][2]int // bounds of 3000 choices among workers with 3, 0 and 1 in flight
	}{
		{Random, map[string][2]int{"worker-1": {900, 1100}, "worker-2": {900, 1100}, "worker-3": {900, 1100}}},
		{PowerOfTwo, map[string][2]int{"worker-1": {0, 0}, "worker-2": {1900, 2100}, "worker-3": {900, 1100}}},
	} {
		p, err := NewPolicy(tc.policy)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for i := range 3000 {
			d, err := p.Pick(Request{ID: fmt.Sprint(i)}, View{Candidates: workers(3, 0, 1)})
			if err != nil {
				t.Fatal(err)
			}
			got[d.Chosen.Worker]++
		}
		for w, bounds := range tc.want {
			if got[w] < bounds[0] || got[w] > bounds[1] {
				t.Errorf("%s: %v, want %s between %v", tc.policy, got, w, bounds)
			}
		}
	}
}

// Of equals, the chosen one stands first.
func TestChosenStandsFirst(t *testing.T) {
	for _, name := range Policies() {
		p, _ := NewPolicy(name)
		for i := range 50 {
			c := workers(0, 0, 0, 0)
			c[i%4].Excluded = "draining"
			d, err := p.Pick(Request{ID: fmt.Sprint(i)}, View{Candidates: c, Turn: uint64(i)})
			if err != nil || d.Candidates[0].ID != d.Chosen.ID || d.Candidates[3].Excluded == "" || d.Candidates[3].Terms != nil {
				t.Fatalf("%s: chose %s, %v: %+v", name, d.Chosen.Worker, err, d.Candidates)
			}
		}
	}
}
