package router

import (
	"errors"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

var errLook = errors.New("only looking")

// look returns what a Load counts on workers 1 to 3.
func look(t *testing.T, l *Load, hashes []uint64) (seen []Candidate) {
	t.Helper()
	_, f, err := l.Choose(Request{BlockSize: 16, Hashes: hashes}, View{Candidates: []Candidate{{ID: 1}, {ID: 2}, {ID: 3}}}, func(_ Request, v View) (Decision, error) {
		seen = v.Candidates
		return Decision{}, errLook
	})
	if !errors.Is(err, errLook) {
		t.Fatal(err)
	}
	f.End()
	return seen
}

// to chooses a worker for a prompt of whole blocks.
func to(t *testing.T, l *Load, worker cluster.InstanceID, hashes ...uint64) *Flight {
	t.Helper()
	_, f, err := l.Choose(Request{PromptTokens: 16*len(hashes) + 1, BlockSize: 16, Hashes: hashes}, View{Candidates: []Candidate{{ID: worker}}}, func(_ Request, v View) (Decision, error) {
		return Decision{Chosen: v.Candidates[0]}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// Two Loads whose changes are mirrored in each other count the same, beside their own
// flights, and nothing of it is told back.
func TestMirrorsCountAlike(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	loads := []*Load{NewLoad(), NewLoad()}
	told := [2]int{}
	for i, l := range loads {
		m := NewMirror(loads[1-i])
		l.Observe(func(c cluster.FlightChange) {
			told[i]++
			if !m.Apply(c) {
				t.Errorf("%+v refused", c)
			}
		})
	}
	prefixes := [][]uint64{{1, 2, 3}, {1, 2, 4, 5}, {9}, nil}
	var open []*Flight
	changes := 0
	for range 2000 {
		changes++
		switch n := len(open); {
		case n < 5 || n < 30 && rng.IntN(2) == 0:
			open = append(open, to(t, loads[rng.IntN(2)], cluster.InstanceID(1+rng.IntN(3)), prefixes[rng.IntN(len(prefixes))]...))
		case rng.IntN(2) == 0:
			open[rng.IntN(n)].Prefilled()
		case rng.IntN(3) == 0:
			if f := open[rng.IntN(n)]; f.output < 4 { // so few that others are told of each
				f.Grow(f.output + 1)
			} else {
				changes--
			}
		default:
			i := rng.IntN(n)
			open[i].End()
			open = append(open[:i], open[i+1:]...)
		}
		for _, h := range prefixes {
			a, b := look(t, loads[0], h), look(t, loads[1], h)
			if !reflect.DeepEqual(a, b) {
				t.Fatalf("counted\n%+v and\n%+v", a, b)
			}
		}
	}
	if told[0]+told[1] != changes {
		t.Errorf("%v changes were told of %d", told, changes)
	}
	for _, f := range open {
		f.End()
	}
	if a, b := inFlight(loads[0]), inFlight(loads[1]); a+b != 0 {
		t.Errorf("%d and %d flights are left", a, b)
	}
}

func TestMirror(t *testing.T) {
	l := NewLoad()
	own := to(t, l, 1, 1, 2)
	m := NewMirror(l)
	begin := func(n uint64, w cluster.InstanceID, hashes ...uint64) cluster.FlightChange {
		return cluster.FlightChange{Kind: cluster.FlightBegin, Flight: n, Worker: w, Hashes: hashes, Uncached: 100}
	}
	change := func(n uint64, kind cluster.FlightKind) cluster.FlightChange {
		return cluster.FlightChange{Kind: kind, Flight: n}
	}
	for _, step := range []struct {
		c        cluster.FlightChange
		ok       bool
		requests int
		prefill  int
		blocks   int
		shared   int
	}{
		{begin(7, 1, 1, 2, 3), true, 2, 133, 3, 3},
		{begin(7, 1, 5), false, 2, 133, 3, 3}, // again
		{begin(8, 1, 4), true, 3, 233, 4, 3},
		{change(7, cluster.FlightPrefilled), true, 3, 133, 4, 3},
		{change(9, cluster.FlightEnd), true, 3, 133, 4, 3}, // unknown
		{change(7, cluster.FlightEnd), true, 2, 133, 3, 2},
		{change(7, cluster.FlightEnd), true, 2, 133, 3, 2},
	} {
		if ok := m.Apply(step.c); ok != step.ok {
			t.Errorf("%+v: applied %v", step.c, ok)
		}
		c := look(t, l, []uint64{1, 2, 3})[0]
		if c.InFlight != step.requests || c.PrefillTokens != step.prefill || c.ActiveBlocks != step.blocks+step.requests || c.Shared != step.shared {
			t.Errorf("after %+v: %+v", step.c, c)
		}
	}
	m.Replace([]cluster.FlightChange{begin(1, 2, 6), begin(8, 2, 6), change(8, cluster.FlightPrefilled)})
	c := look(t, l, []uint64{6})
	if c[0].InFlight != 1 || c[0].PrefillTokens != 33 || c[1].InFlight != 2 || c[1].PrefillTokens != 100 || c[1].ActiveBlocks != 1+2 || m.Len() != 2 {
		t.Errorf("replaced: %+v", c)
	}
	m.Replace(nil)
	own.End()
	if n := inFlight(l); n != 0 {
		t.Errorf("%d flights are left", n)
	}
}
