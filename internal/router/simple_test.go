package router

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Dynamo's spellings name the same policies.
func TestSpellings(t *testing.T) {
	for theirs, own := range map[string]string{"round_robin": RoundRobin, "power_of_two": PowerOfTwo, "least_loaded": LeastLoaded, "kv": KV, "random": Random, "direct": Direct} {
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
		{Direct, map[string][2]int{"worker-1": {3000, 3000}}},
	} {
		p, err := NewPolicy(tc.policy)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for i := range 3000 {
			d, err := p.Pick(Request{ID: fmt.Sprint(i), Worker: "worker-1"}, View{Candidates: workers(3, 0, 1)})
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

// The costs of the original, computed by hand.
func TestOriginal(t *testing.T) {
	r := Request{ID: "r", PromptTokens: 64, BlockSize: 16, Hashes: []uint64{1, 2, 3, 4}}
	c := []Candidate{{ID: 1, PrefillTokens: 32, InFlight: 3, ActiveBlocks: 5, Shared: 2, Overlap: Overlap{Device: 1, Host: 1, Disk: 1}}, {ID: 2}}
	k := DefaultKnobs
	k.OverlapWeight, k.PrefillScale, k.CreditDecay, k.RequestWeight = 2, 3, 1, 0.5
	for _, tc := range []struct {
		name  string
		price Price
		a, b  float64
	}{
		{"0.8", Original08(DefaultKnobs), 2 + 1 + 7, 4 + 4},
		{"0.8 with a weight", Original08(k), 2*(2+1) + 7, 2*4 + 4},
		{"1.5", Original15(DefaultKnobs), 2 + (4 - 1 - 0.75 - 0.25) + 7, 4 + 4},
		{"1.5 with knobs", Original15(k), 3*(2+4-1/1.5-0.75-0.25) + 7 + 1.5, 3*4 + 4},
	} {
		got := tc.price(r, View{}, c)
		if a, b := sum(got[0]), sum(got[1]); a-tc.a > 1e-9 || tc.a-a > 1e-9 || b != tc.b {
			t.Errorf("%s: costs %v and %v, want %v and %v: %v", tc.name, a, b, tc.a, tc.b, []([]cluster.CostTerm){got[0], got[1]})
		}
	}
}
