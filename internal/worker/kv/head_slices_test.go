package kv

import (
	"errors"
	"slices"
	"testing"
)

func TestSliceHeads(t *testing.T) {
	for _, tc := range []struct {
		name               string
		heads, here, there int
		want               []headSlice
	}{
		{"alike, 1", 8, 1, 1, []headSlice{{0, 0, 0, 0, 8}}},
		{"alike, 2", 8, 2, 2, []headSlice{{0, 0, 0, 0, 4}, {1, 1, 0, 0, 4}}},
		{"1 to 2", 8, 1, 2, []headSlice{{0, 0, 0, 0, 4}, {0, 1, 4, 0, 4}}},
		{"2 to 1", 8, 2, 1, []headSlice{{0, 0, 0, 0, 4}, {1, 0, 0, 4, 4}}},
		{"2 to 4", 8, 2, 4, []headSlice{{0, 0, 0, 0, 2}, {0, 1, 2, 0, 2}, {1, 2, 0, 0, 2}, {1, 3, 2, 0, 2}}},
		{"4 to 2", 8, 4, 2, []headSlice{{0, 0, 0, 0, 2}, {1, 0, 0, 2, 2}, {2, 1, 0, 0, 2}, {3, 1, 0, 2, 2}}},
		{"one head each", 2, 2, 2, []headSlice{{0, 0, 0, 0, 1}, {1, 1, 0, 0, 1}}},
		{"no multiple", 6, 2, 3, []headSlice{{0, 0, 0, 0, 2}, {0, 1, 2, 0, 1}, {1, 1, 0, 1, 1}, {1, 2, 1, 0, 2}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := sliceHeads(tc.heads, tc.here, tc.there)
			if err != nil || !slices.Equal(got, tc.want) {
				t.Errorf("got %v %v, want %v", got, err, tc.want)
			}
		})
	}
	for _, n := range [][3]int{{8, 3, 1}, {8, 1, 3}, {8, 0, 1}, {8, 1, -1}, {2, 4, 1}, {2, 1, 4}, {0, 1, 1}, {-4, 2, 2}} {
		if got, err := sliceHeads(n[0], n[1], n[2]); !errors.Is(err, ErrMismatch) {
			t.Errorf("%d heads, %d and %d ranks: got %v %v, want ErrMismatch", n[0], n[1], n[2], got, err)
		}
	}
}

// Whatever the numbers, slices are all heads in order, each within one rank on either
// side, and as few as possible.
func FuzzSliceHeads(f *testing.F) {
	for _, n := range [][3]int{{8, 1, 2}, {8, 4, 2}, {6, 2, 3}, {7, 7, 1}, {8, 3, 2}, {0, 0, 0}, {-1, 1, 1}} {
		f.Add(n[0], n[1], n[2])
	}
	f.Fuzz(func(t *testing.T, heads, here, there int) {
		if heads > 1<<12 {
			t.Skip("more heads than any model has")
		}
		got, err := sliceHeads(heads, here, there)
		if fits := heads > 0 && here > 0 && there > 0 && heads%max(here, 1) == 0 && heads%max(there, 1) == 0; fits != (err == nil) {
			t.Fatalf("%d heads, %d and %d ranks: %v", heads, here, there, err)
		}
		if err != nil {
			return
		}
		head := 0
		for i, s := range got {
			if s.heads < 1 || s.here*(heads/here)+s.fromHere != head || s.there*(heads/there)+s.fromThere != head {
				t.Fatalf("slice %d of %v does not begin with head %d", i, got, head)
			}
			if s.fromHere+s.heads > heads/here || s.fromThere+s.heads > heads/there {
				t.Fatalf("slice %d of %v goes beyond a rank", i, got)
			}
			head += s.heads
			if i > 0 && s.fromHere > 0 && s.fromThere > 0 {
				t.Fatalf("slice %d of %v begins in the middle of a rank on both sides", i, got)
			}
		}
		if head != heads {
			t.Fatalf("%v are %d heads, want %d", got, head, heads)
		}
	})
}
