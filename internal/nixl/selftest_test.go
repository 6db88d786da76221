package nixl

import (
	"bytes"
	"testing"
)

// A path that moves bytes to another place, or leaves out some, does not pass for one that works.
func TestRandomPatterns(t *testing.T) {
	const piece = 16
	b, other := make([]byte, 20_003), make([]byte, 20_003)
	fillRandom(b)
	fillRandom(other)
	first := bytes.Clone(b)
	seen := map[[piece]byte]int{}
	for i := range len(b) - piece + 1 {
		window := [piece]byte(b[i:])
		if at, there := seen[window]; there {
			t.Fatalf("the bytes at %d are those at %d", i, at)
		}
		seen[window] = i
	}
	if bytes.Equal(b[:piece], other[:piece]) || bytes.Equal(b[len(b)-piece:], make([]byte, piece)) {
		t.Error("two patterns are alike")
	}
	if fillRandom(b); bytes.Equal(b[:piece], first[:piece]) || bytes.Equal(b[:piece], make([]byte, piece)) {
		t.Error("a later pattern is like one before")
	}
}
