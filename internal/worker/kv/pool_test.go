package kv

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/kvlayout"
	"github.com/dynctl/dynctl/internal/nixl"
)

// poolShape has regions of 16 tokens by 16 dimensions.
func poolShape(heads int) kvlayout.Shape {
	return kvlayout.Shape{Layers: 3, KVHeads: heads, HeadDim: 16, BlockSize: 16, DType: "bf16"}
}

// memPool is a pool in memory whose addresses are those of a table.
type memPool struct {
	*pool
	shape kvlayout.Shape // of a rank
	mem   [][]byte
}

const rankApart = 1 << 40 // between the addresses of ranks

func newMemPool(t *testing.T, shape kvlayout.Shape, n, blocks int) memPool {
	t.Helper()
	m := memPool{shape: shape.Rank(n)}
	var ranks []nixl.Desc
	for i := range n {
		m.mem = append(m.mem, make([]byte, blocks*int(m.shape.BlockBytes())))
		ranks = append(ranks, nixl.Desc{Addr: uint64(i+1) * rankApart, Len: uint64(len(m.mem[i]))})
	}
	var err error
	if m.pool, err = newPool(shape, ranks); err != nil {
		t.Fatal(err)
	}
	return m
}

// bytes is the memory of a descriptor, which must lie within one block of one rank.
func (m memPool) bytes(t *testing.T, d nixl.Desc) []byte {
	t.Helper()
	rank, off, size := int(d.Addr/rankApart)-1, d.Addr%rankApart, uint64(m.shape.BlockBytes())
	if rank < 0 || rank >= len(m.mem) || off+d.Len > uint64(len(m.mem[rank])) || off/size != (off+d.Len-1)/size {
		t.Fatalf("%s is not within a block of %d ranks", d, len(m.mem))
	}
	return m.mem[rank][off : off+d.Len]
}

// eachWord visits every eighth byte of every region by what it is a part of.
func (m memPool) eachWord(block int32, visit func(word []byte, layer, kv, head, at int)) {
	for rank, mem := range m.mem {
		for head := range m.shape.KVHeads {
			for layer := range m.shape.Layers {
				for kv := range 2 {
					region := mem[int(block)*int(m.shape.BlockBytes())+m.shape.Region(layer, kv, head):][:m.shape.RegionBytes()]
					for at := 0; at < len(region); at += 8 {
						visit(region[at:at+8], layer, kv, rank*m.shape.KVHeads+head, at)
					}
				}
			}
		}
	}
}

// word is what stands at a place of the n-th block of a prompt.
func word(n, layer, kv, head, at int) uint64 {
	return uint64(n+1)<<40 | uint64(layer)<<32 | uint64(kv)<<28 | uint64(head)<<16 | uint64(at)
}

// descsOf lists what a selection selects.
func descsOf(s selection) (out []nixl.Desc) {
	var all []nixl.Desc
	for _, r := range s.runs {
		for i := range r.Count {
			d := r.First
			d.Addr += uint64(i) * r.Stride
			all = append(all, d)
		}
	}
	for _, i := range s.index {
		out = append(out, all[i])
	}
	return out
}

// Between any two degrees every layer, head and token of a block comes to where the other
// side looks for it, and nothing else is touched; a block takes as few pieces as ranks
// allow.
func TestPoolsPair(t *testing.T) {
	const heads = 12
	for _, n := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {2, 4}, {4, 2}, {1, 4}, {4, 1}, {4, 4}, {2, 3}, {6, 4}, {12, 1}} {
		t.Run(fmt.Sprintf("%d to %d", n[0], n[1]), func(t *testing.T) {
			from, to := newMemPool(t, poolShape(heads), n[0], 7), newMemPool(t, poolShape(heads), n[1], 9)
			mine, theirs := []int32{6, 0, 1, 2}, []int32{3, 8, 5, 6}
			for i, b := range mine {
				from.eachWord(b, func(w []byte, layer, kv, head, at int) {
					binary.LittleEndian.PutUint64(w, word(i, layer, kv, head, at))
				})
			}
			here, there, err := from.pair(mine, to.pool, theirs)
			if err != nil {
				t.Fatal(err)
			}
			src, dst := descsOf(here), descsOf(there)
			pieces, _ := sliceHeads(heads, n[0], n[1])
			if len(src) != len(dst) || len(src) != len(pieces)*len(mine) {
				t.Fatalf("%d and %d pieces for %d blocks, want %d for each", len(src), len(dst), len(mine), len(pieces))
			}
			for i := range src {
				copy(to.bytes(t, dst[i]), from.bytes(t, src[i]))
			}
			for b := range int32(9) {
				n := slices.Index(theirs, b)
				to.eachWord(b, func(w []byte, layer, kv, head, at int) {
					want := word(n, layer, kv, head, at)
					if n < 0 {
						want = 0
					}
					if got := binary.LittleEndian.Uint64(w); got != want {
						t.Fatalf("block %d, layer %d, side %d, head %d at %d: %#x, want %#x", b, layer, kv, head, at, got, want)
					}
				})
			}
			if all, _ := nixl.TotalBytes(to.descs(theirs)); all != uint64(len(theirs))*uint64(poolShape(heads).BlockBytes()) {
				t.Errorf("a ticket for %d blocks covers %d bytes", len(theirs), all)
			}
			for _, d := range dst {
				if !slices.ContainsFunc(to.descs(theirs), func(c nixl.Desc) bool { return c.Covers(d) }) {
					t.Errorf("%s is written and not covered by the ticket", d)
				}
			}
		})
	}
}

// A pool is refused that is not what it should be, by what is wrong with it.
func TestPoolRefused(t *testing.T) {
	shape := poolShape(4)
	part := uint64(shape.BlockBytes()) / 2
	region := func(label string, blocks uint64) nixl.RemoteRegion {
		return nixl.RemoteRegion{Label: label, Base: nixl.Desc{Addr: 4096, Len: blocks * part}}
	}
	for _, tc := range []struct {
		name    string
		regions []nixl.RemoteRegion
		want    string // in the error; empty: accepted
	}{
		{"two ranks, in any order, among others", []nixl.RemoteRegion{region("kv.tp2.r1", 3), region("scratch", 9), region("kv.tp2.r0", 3)}, ""},
		{"none", []nixl.RemoteRegion{region("scratch", 3)}, "no region holds KV"},
		{"an old label", []nixl.RemoteRegion{region("kv", 6)}, "no region holds KV"},
		{"one is missing", []nixl.RemoteRegion{region("kv.tp2.r1", 3), region("scratch", 3)}, "1 of 2 ranks"},
		{"twice", []nixl.RemoteRegion{region("kv.tp2.r1", 3), region("kv.tp2.r1", 3)}, "two regions"},
		{"of two degrees", []nixl.RemoteRegion{region("kv.tp2.r1", 3), region("kv.tp1.r0", 6)}, `"kv.tp1.r0" is one of 1 ranks`},
		{"more than there are", []nixl.RemoteRegion{region("kv.tp1000000000.r1", 3)}, "among 1 regions"},
		{"unequal", []nixl.RemoteRegion{region("kv.tp2.r0", 3), region("kv.tp2.r1", 2)}, "rank 1 of 2 has"},
		{"no whole blocks", []nixl.RemoteRegion{region("kv.tp1.r0", 3)}, "a block takes"},
		{"too many for the heads", slices.Collect(func(yield func(nixl.RemoteRegion) bool) {
			for i := range 8 {
				yield(region(rankLabel(i, 8), 1))
			}
		}), "8 ranks do not share 4 KV heads"},
	} {
		ranks, err := ranksOf(tc.regions)
		if err == nil {
			_, err = newPool(shape, ranks)
		}
		if tc.want == "" {
			if err != nil {
				t.Errorf("%s: %v", tc.name, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: err = %v, want %q", tc.name, err, tc.want)
		}
	}

	p := newMemPool(t, shape, 2, 3)
	for _, b := range []int32{-1, 3, math.MaxInt32, math.MinInt32} {
		for _, pair := range [][2][]int32{{{b}, {0}}, {{0}, {b}}} {
			if _, _, err := p.pair(pair[0], p.pool, pair[1]); !errors.Is(err, nixl.ErrInvalidParam) {
				t.Errorf("blocks %v and %v of 3: err = %v, want ErrInvalidParam", pair[0], pair[1], err)
			}
		}
	}
}

// Labels of ranks are read as they are written, and nothing else is one.
func FuzzRankLabel(f *testing.F) {
	for _, s := range []string{"kv", "kv.tp1.r0", "kv.tp4.r3", "kv.tp4.r4", "kv.tp04.r1", "kv.tp4.r-1", "kv.tp4.r1.r2", "kv.tp99999999999999999999.r0"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, label string) {
		rank, n, ok := parseRankLabel(label)
		if ok && (rank < 0 || rank >= n || rankLabel(rank, n) != label) {
			t.Errorf("%q is rank %d of %d", label, rank, n)
		}
		regions := []nixl.RemoteRegion{{Label: label, Base: nixl.Desc{Addr: 1, Len: 1}}}
		if ranks, err := ranksOf(regions); (err == nil) != (label == rankLabel(0, 1)) {
			t.Errorf("%q: %v %v", label, ranks, err)
		}
	})
}
