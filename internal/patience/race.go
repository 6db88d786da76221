package patience

import "testing"

// OneGoroutine skips a test of code that runs in one goroutine, under the race detector: that
// finds nothing there, and takes ten times as long.
func OneGoroutine(t testing.TB) {
	t.Helper()
	if RaceDetector {
		t.Skip("one goroutine computes, and shares nothing")
	}
}

// Rounds returns how many of n rounds a test runs in which the same goroutines meet with other
// data: all, but a fifth and at least two under the race detector.
func Rounds(n int) int {
	if RaceDetector {
		return min(n, max(2, n/5))
	}
	return n
}
