package router

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// A session stays at its worker until that costs more than leaving it, in the unit of the
// policy, and the terms say so.
func TestSession(t *testing.T) {
	const session = 2 // the worker b
	prompt := []uint64{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for _, tc := range []struct {
		policy, name string
		a, b         Candidate
		away         float64 // the term at a
		want         string
	}{
		{LeastLoaded, "as loaded as its mean allows", Candidate{InFlight: 0}, Candidate{InFlight: 2}, 2, "b"}, // a tie
		{LeastLoaded, "more loaded", Candidate{InFlight: 1}, Candidate{InFlight: 5}, 4, "b"},
		{LeastLoaded, "much more loaded", Candidate{InFlight: 0}, Candidate{InFlight: 3}, 2.5, "a"},
		{LeastLoaded, "excluded", Candidate{InFlight: 9}, Candidate{Excluded: "busy"}, 0, "a"},
		{PowerOfTwo, "more loaded", Candidate{InFlight: 1}, Candidate{InFlight: 5}, 4, "b"},
		{PowerOfTwo, "much more loaded", Candidate{InFlight: 0}, Candidate{InFlight: 3}, 2.5, "a"},
		{RoundRobin, "not its turn", Candidate{}, Candidate{InFlight: 9}, 2, "b"},
		{RoundRobin, "excluded", Candidate{}, Candidate{Excluded: "busy"}, 0, "a"},
		{Random, "whatever is drawn", Candidate{}, Candidate{InFlight: 9}, 1, "b"},
		{KV, "more is cached elsewhere", Candidate{Overlap: Overlap{Device: 10}}, Candidate{Overlap: Overlap{Device: 5}}, 10, "b"},
		{KV, "all is cached elsewhere, and nothing here", Candidate{Overlap: Overlap{Device: 10}}, Candidate{}, 10, "a"},
		{KV, "a queue that costs less than the prompt", Candidate{}, Candidate{PrefillTokens: 100}, 10, "b"},
		{KV, "a queue that costs more than the prompt twice", Candidate{}, Candidate{PrefillTokens: 1000}, 10, "a"},
	} {
		t.Run(tc.policy+", "+tc.name, func(t *testing.T) {
			p, err := NewPolicy(tc.policy)
			if err != nil {
				t.Fatal(err)
			}
			tc.a.ID, tc.a.Worker, tc.b.ID, tc.b.Worker = 1, "a", session, "b"
			for i := range 20 { // whatever the hashes of the request are
				r := Request{ID: fmt.Sprint(i), PromptTokens: 160, BlockSize: 16, Hashes: prompt, Session: session}
				d, err := p.Pick(r, View{Candidates: []Candidate{tc.a, tc.b}, Turn: uint64(i)})
				if err != nil || d.Chosen.Worker != tc.want {
					t.Fatalf("chose %q, %v: %+v", d.Chosen.Worker, err, d.Candidates)
				}
				for _, c := range d.Candidates {
					got, has := 0.0, false
					for _, term := range c.Terms {
						if term.Name == cluster.TermSession {
							got, has = term.Value, true
						}
					}
					want := map[string]float64{"a": tc.away}[c.Worker]
					if got != want || has != (tc.b.Excluded == "") || c.Excluded == "" && sum(c.Terms) != c.Cost {
						t.Errorf("%s: terms %+v, cost %v, want a session of %v", c.Worker, c.Terms, c.Cost, want)
					}
				}
			}
		})
	}
}

// Of two workers that are drawn and the session's, the session's is taken though it was not
// drawn.
func TestSessionIsConsideredWithTwo(t *testing.T) {
	p, _ := NewPolicy(PowerOfTwo)
	for i := range 100 {
		c := workers(2, 2, 2, 3, 2, 2)
		d, err := p.Pick(Request{ID: fmt.Sprint(i), Session: c[3].ID}, View{Candidates: c})
		if err != nil || d.Chosen.ID != c[3].ID {
			t.Fatalf("chose %+v, %v", d.Candidates, err)
		}
	}
}
