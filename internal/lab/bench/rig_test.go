package bench

import (
	"errors"
	"testing"
	"time"
)

func TestOverlap(t *testing.T) {
	start := time.Now()
	marks := func(first, last, step int) (out []mark) {
		for ms := first; ms <= last; ms += step {
			out = append(out, mark{start.Add(time.Duration(ms) * time.Millisecond), 1})
		}
		return out
	}
	for _, tc := range []struct {
		name   string
		seqs   [][]mark
		tokens int
		d      time.Duration
		err    error
	}{
		{"one sequence", [][]mark{marks(0, 100, 10)}, 10, 100 * time.Millisecond, nil},
		{"the first token does not count", [][]mark{marks(0, 10, 10)}, 1, 10 * time.Millisecond, nil},
		{"late start and early end", [][]mark{marks(0, 100, 10), marks(20, 80, 10)}, 6 + 6, 60 * time.Millisecond, nil},
		{"one after the other", [][]mark{marks(0, 40, 10), marks(50, 90, 10)}, 0, 0, errNoOverlap},
		{"one never began", [][]mark{marks(0, 40, 10), nil}, 0, 0, errNoOverlap},
		{"one token", [][]mark{marks(0, 0, 1)}, 0, 0, errNoOverlap},
		{"none", nil, 0, 0, errNoOverlap},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tokens, d, err := overlap(tc.seqs)
			if tokens != tc.tokens || d != tc.d || !errors.Is(err, tc.err) {
				t.Errorf("got %d tokens in %s, %v; want %d in %s, %v", tokens, d, err, tc.tokens, tc.d, tc.err)
			}
		})
	}
}

// Tokens that arrived together count with the moment of their arrival.
func TestOverlapCountsTokensNotArrivals(t *testing.T) {
	at := time.Now()
	n, _, err := overlap([][]mark{{{at, 1}, {at.Add(time.Millisecond), 3}, {at.Add(2 * time.Millisecond), 2}}})
	if n != 5 || err != nil {
		t.Errorf("got %d, %v, want 5", n, err)
	}
}
