package kvlayout

import "testing"

// Regions follow each other without gaps, at multiples of 64 bytes, and each rank's heads are
// one piece of the block.
func TestRegionsFillTheBlock(t *testing.T) {
	for dtype, region := range map[string]int{"f32": 32 * 48 * 4, "bf16": 32 * 48 * 2, "int8": 32*48 + 4*32} {
		s := Shape{Layers: 3, KVHeads: 4, HeadDim: 40, BlockSize: 20, DType: dtype}
		if s.RegionBytes() != region || region%64 != 0 {
			t.Errorf("%s: regions of %d bytes, want %d", dtype, s.RegionBytes(), region)
		}
		next := 0
		for head := range s.KVHeads {
			for layer := range s.Layers {
				for kv := range 2 {
					if got := s.Region(layer, kv, head); got != next {
						t.Fatalf("%s: head %d, layer %d, kv %d is at %d, want %d", dtype, head, layer, kv, got, next)
					}
					next += region
				}
			}
		}
		if s.BlockBytes() != int64(next) || 2*s.Rank(2).BlockBytes() != s.BlockBytes() || s.Region(0, 0, 2) != int(s.Rank(2).BlockBytes()) {
			t.Errorf("%s: a block of %d bytes, of two ranks %d each", dtype, s.BlockBytes(), s.Rank(2).BlockBytes())
		}
		if s.ScaleOffset() != 32*s.RowBytes() || s.RowBytes() != 48*s.ElemBytes() {
			t.Errorf("%s: rows of %d bytes, scales at %d", dtype, s.RowBytes(), s.ScaleOffset())
		}
	}
	if f, b := (Shape{DType: "f32"}), (Shape{DType: "bf16"}); f.Layout() == b.Layout() {
		t.Error("types of elements have the same layout")
	}
}
