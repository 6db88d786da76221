package router

import (
	"fmt"
	"math"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestConstraints(t *testing.T) {
	c := Constraints{Required: []string{"a", "b"}, Preferred: map[string]float64{"b": 1.5, "c": -0.5, "d": 4}}
	for _, tc := range []struct {
		taints     []string
		lacks      string
		preference float64
	}{
		{nil, "a", 0}, {[]string{"b"}, "a", 1.5}, {[]string{"x", "a", "c"}, "b", -0.5}, {[]string{"c", "b", "a"}, "", 1},
	} {
		lacks, bad := c.Lacks(tc.taints)
		if lacks != tc.lacks || bad != (tc.lacks != "") || c.Preference(tc.taints) != tc.preference {
			t.Errorf("%v: lacks %q, preference %v, want %q and %v", tc.taints, lacks, c.Preference(tc.taints), tc.lacks, tc.preference)
		}
	}
	if _, lacks := (Constraints{}).Lacks(nil); lacks || (Constraints{}).Preference([]string{"a"}) != 0 {
		t.Error("no constraints constrain")
	}
}

// A preference changes the cost by its factor, in the terms, and outweighs load to that
// extent; without one there is no term.
func TestPreference(t *testing.T) {
	for _, tc := range []struct {
		policy string
		a, b   Candidate
		want   string
		term   float64 // of b
	}{
		{LeastLoaded, Candidate{}, Candidate{Preference: 1}, "b", math.Exp(-math.Tanh(1)) - 1},
		{LeastLoaded, Candidate{InFlight: 1}, Candidate{InFlight: 3, Preference: 10}, "b", 4 * (math.Exp(-math.Tanh(10)) - 1)},
		{LeastLoaded, Candidate{InFlight: 1}, Candidate{InFlight: 6, Preference: 10}, "a", 7 * (math.Exp(-math.Tanh(10)) - 1)},
		{LeastLoaded, Candidate{InFlight: 1}, Candidate{Preference: -10}, "a", math.Exp(-math.Tanh(-10)) - 1},
		{LeastLoaded, Candidate{InFlight: 3}, Candidate{Preference: -10}, "b", math.Exp(-math.Tanh(-10)) - 1},
		{KV, Candidate{}, Candidate{Preference: 0.1}, "b", math.NaN()},
		{KV, Candidate{Overlap: Overlap{Device: 9}}, Candidate{Preference: 1}, "a", math.NaN()},
	} {
		p, err := NewPolicy(tc.policy)
		if err != nil {
			t.Fatal(err)
		}
		tc.a.ID, tc.a.Worker, tc.b.ID, tc.b.Worker = 1, "a", 2, "b"
		for i := range 20 {
			r := Request{ID: fmt.Sprint(i), PromptTokens: 160, BlockSize: 16, Hashes: []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}}
			d, err := p.Pick(r, View{Candidates: []Candidate{tc.a, tc.b}})
			if err != nil || d.Chosen.Worker != tc.want {
				t.Fatalf("%s: chose %q, %v: %+v", tc.policy, d.Chosen.Worker, err, d.Candidates)
			}
			for _, c := range d.Candidates {
				last := c.Terms[len(c.Terms)-1]
				if last.Name != cluster.TermTaints || sum(c.Terms) != c.Cost || c.Worker == "a" && last.Value != 0 {
					t.Fatalf("%s: terms %+v, cost %v", tc.policy, c.Terms, c.Cost)
				}
				if c.Worker == "b" && !math.IsNaN(tc.term) && math.Abs(last.Value-tc.term) > 1e-12 {
					t.Fatalf("%s: term %v, want %v", tc.policy, last.Value, tc.term)
				}
			}
		}
	}
	d, err := policies[LeastLoaded].Pick(Request{ID: "r"}, View{Candidates: []Candidate{{ID: 1, Worker: "a"}}})
	if err != nil || len(d.Weighed) != 1 {
		t.Errorf("%v: weighed %v", err, d.Weighed)
	}
}
