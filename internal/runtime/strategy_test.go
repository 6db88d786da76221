package runtime

import (
	"slices"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

func TestParseStrategy(t *testing.T) {
	for _, s := range Strategies {
		if got, err := ParseStrategy(string(s)); got != s || err != nil {
			t.Errorf("%s: %s %v", s, got, err)
		}
	}
	for _, bad := range []string{"", "direct", "Random"} {
		if s, err := ParseStrategy(bad); err == nil {
			t.Errorf("%q is %s", bad, s)
		}
	}
}

func TestPick(t *testing.T) {
	among := []cluster.Instance{{InstanceID: 10}, {InstanceID: 11}, {InstanceID: 12}}
	loads := map[cluster.InstanceID]int{10: 5, 11: 1, 12: 3}
	for _, tc := range []struct {
		name  string
		s     Strategy
		turn  uint64
		draws []int
		loads map[cluster.InstanceID]int
		want  int
	}{
		{"random", Random, 0, []int{2}, loads, 2},
		{"the first turn", RoundRobin, 0, nil, loads, 0},
		{"the last turn", RoundRobin, 2, nil, loads, 2},
		{"turns begin again", RoundRobin, 4, nil, loads, 1},
		{"after 2^64 turns", RoundRobin, 1<<64 - 1, nil, loads, 0},
		{"of two, the second is less loaded", PowerOfTwo, 0, []int{0, 1}, loads, 2},
		{"of two, the first is less loaded", PowerOfTwo, 0, []int{2, 0}, loads, 2},
		{"of two equal ones, the first", PowerOfTwo, 0, []int{1, 0}, nil, 1},
		{"the second is never the first", PowerOfTwo, 0, []int{0, 0}, loads, 1},
		{"the least loaded", LeastLoaded, 0, nil, loads, 1},
		{"the least loaded, whatever the turn", LeastLoaded, 2, nil, loads, 1},
		{"of equal ones, one in turn", LeastLoaded, 2, nil, nil, 2},
		{"of two equal ones, the next in turn", LeastLoaded, 1, nil, map[cluster.InstanceID]int{10: 0, 11: 4, 12: 0}, 2},
	} {
		draws := slices.Clone(tc.draws)
		c := choice{turn: tc.turn, load: func(id cluster.InstanceID) int { return tc.loads[id] }, rand: func(n int) int {
			d := draws[0]
			draws = draws[1:]
			if d >= n {
				t.Fatalf("%s: draw of %d below %d", tc.name, d, n)
			}
			return d
		}}
		if got := tc.s.pick(among, c); got != tc.want || len(draws) != 0 {
			t.Errorf("%s: instance %d, want %d; %d draws left", tc.name, got, tc.want, len(draws))
		}
	}
	for _, s := range Strategies {
		if got := s.pick(among[:1], choice{turn: 7, load: func(cluster.InstanceID) int { return 9 }}); got != 0 {
			t.Errorf("%s of one: %d", s, got)
		}
	}
}
