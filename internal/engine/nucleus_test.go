package engine

import "testing"

// Every probability has a bin, the least likely the last one.
func TestBinsOfProbabilities(t *testing.T) {
	for p, want := range map[float32]int{1: 0, 0.5: 4, 0: numBins - 1, 1e-30: numBins - 1} {
		if got := bin(p); got != want {
			t.Errorf("bin(%g) = %d, want %d", p, got, want)
		}
	}
	if least := leastOf(numBins - 1); least != 0 {
		t.Errorf("the last bin begins at %g", least)
	}
	for _, p := range []float32{1, 0.9, 0.3, 1e-6, 1e-17} {
		if b := bin(p); leastOf(b) > p || b > 0 && leastOf(b-1) <= p {
			t.Errorf("%g is in bin %d, which begins at %g", p, b, leastOf(b))
		}
	}
}
