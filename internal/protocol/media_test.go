package protocol

import (
	"testing"

	"github.com/dynctl/dynctl/internal/blockhash"
)

func TestSameMedia(t *testing.T) {
	one := MediaPart{Start: 3, End: 9, Rows: 6, Key: blockhash.Key{1}, Grid: Grid{T: 1, H: 2, W: 3}}
	if same := one; !SameMedia([]MediaPart{one}, []MediaPart{same}) || !SameMedia(nil, nil) || SameMedia([]MediaPart{one}, nil) {
		t.Error("the same images differ")
	}
	for name, change := range map[string]func(*MediaPart){
		"place": func(p *MediaPart) { p.Start-- },
		"end":   func(p *MediaPart) { p.End++ },
		"key":   func(p *MediaPart) { p.Key[15] = 1 },
		"grid":  func(p *MediaPart) { p.Grid = Grid{T: 1, H: 3, W: 2} },
	} {
		other := one
		change(&other)
		if SameMedia([]MediaPart{one}, []MediaPart{other}) {
			t.Errorf("another %s is the same", name)
		}
	}
}
