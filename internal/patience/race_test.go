package patience_test

import (
	"testing"

	"github.com/dynctl/dynctl/internal/patience"
)

func TestRounds(t *testing.T) {
	for n, less := range map[int]int{0: 0, 1: 1, 3: 2, 10: 2, 100: 20} {
		want := n
		if patience.RaceDetector {
			want = less
		}
		if got := patience.Rounds(n); got != want {
			t.Errorf("%d of %d rounds, want %d", got, n, want)
		}
	}
}

func TestOneGoroutine(t *testing.T) {
	skipped := true
	t.Run("test", func(t *testing.T) {
		defer func() { skipped = t.Skipped() }()
		patience.OneGoroutine(t)
	})
	if skipped != patience.RaceDetector {
		t.Errorf("skipped: %t, under the race detector: %t", skipped, patience.RaceDetector)
	}
}
