package natsconn

import (
	"testing"
	"time"
)

// The pauses grow from half of the first to the longest, and differ between clients.
func TestReconnectDelay(t *testing.T) {
	seen := map[time.Duration]bool{}
	for range 100 {
		for attempts, want := range map[int]time.Duration{0: firstRetry, 1: firstRetry, 2: 2 * firstRetry, 4: 8 * firstRetry, 6: longestRetry, 1000: longestRetry} {
			if d := reconnectDelay(attempts); d < want/2 || d > want {
				t.Fatalf("attempt %d: %s, want %s to %s", attempts, d, want/2, want)
			}
		}
		seen[reconnectDelay(6)] = true
	}
	if len(seen) < 50 {
		t.Errorf("%d different pauses of 100", len(seen))
	}
}
