package nixl

import (
	"bytes"
	"testing"
)

// A path that moves bytes to another place, or leaves out some, does not pass for one that works.
func TestRandomPatterns(t *testing.T) {
	b, other := make([]byte, 40*patternBlock+100), make([]byte, 40*patternBlock+100)
	fillRandom(b)
	fillRandom(other)
	seen := map[[patternBlock]byte]int{}
	for i := range len(b) - patternBlock + 1 {
		window := [patternBlock]byte(b[i:])
		if at, there := seen[window]; there {
			t.Fatalf("the bytes at %d are those at %d", i, at)
		}
		seen[window] = i
	}
	end := len(b) - 100
	if bytes.Equal(b[8:patternBlock], other[8:patternBlock]) || bytes.Equal(b[end+8:], make([]byte, 100-8)) {
		t.Error("two patterns are alike")
	}
}
