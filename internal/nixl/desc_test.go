package nixl

import (
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

func TestDescCovers(t *testing.T) {
	d := Desc{Addr: 100, Len: 50}
	for _, c := range []struct {
		name string
		o    Desc
		want bool
	}{
		{"itself", d, true},
		{"first byte", Desc{Addr: 100, Len: 1}, true},
		{"last byte", Desc{Addr: 149, Len: 1}, true},
		{"empty", Desc{Addr: 110}, false},
		{"one before", Desc{Addr: 99, Len: 2}, false},
		{"one behind", Desc{Addr: 149, Len: 2}, false},
		{"other device", Desc{Addr: 100, Len: 1, DevID: 1}, false},
		{"wraps around", Desc{Addr: 120, Len: math.MaxUint64 - 20}, false},
	} {
		if got := d.Covers(c.o); got != c.want {
			t.Errorf("%s: Covers(%s) = %v", c.name, c.o, got)
		}
	}
}

func TestTotalBytes(t *testing.T) {
	for _, c := range []struct {
		name  string
		descs []Desc
		total uint64
		ok    bool
	}{
		{"none", nil, 0, true},
		{"two", []Desc{{Addr: 1, Len: 2}, {Addr: 9, Len: 3}}, 5, true},
		{"empty one", []Desc{{Addr: 1}}, 0, false},
		{"sum wraps", []Desc{{Addr: 1, Len: math.MaxInt64}, {Addr: 1, Len: math.MaxInt64}}, 0, false},
		{"address wraps", []Desc{{Addr: math.MaxUint64, Len: 2}}, 0, false},
	} {
		if total, ok := TotalBytes(c.descs); total != c.total || ok != c.ok {
			t.Errorf("%s: TotalBytes() = %d, %v", c.name, total, ok)
		}
	}
}

func TestMergePairs(t *testing.T) {
	local := []Desc{{Addr: 0, Len: 8}, {Addr: 8, Len: 8}, {Addr: 16, Len: 8}, {Addr: 24, Len: 8}}
	remote := []Desc{{Addr: 100, Len: 8}, {Addr: 108, Len: 8}, {Addr: 200, Len: 8}, {Addr: 208, Len: 8, DevID: 1}}
	l, r := mergePairs(local, remote)
	wantL := []Desc{{Addr: 0, Len: 16}, {Addr: 16, Len: 8}, {Addr: 24, Len: 8}}
	wantR := []Desc{{Addr: 100, Len: 16}, {Addr: 200, Len: 8}, {Addr: 208, Len: 8, DevID: 1}}
	if !reflect.DeepEqual(l, wantL) || !reflect.DeepEqual(r, wantR) {
		t.Errorf("mergePairs() = %v, %v", l, r)
	}
}

// TestPieces compares merged lists with a map of bytes.
func TestPieces(t *testing.T) {
	const seed, space = 11, 200
	rnd := rand.New(rand.NewPCG(seed, seed))
	for round := range 500 {
		var descs []Desc
		var covered [space + 40]bool
		for range rnd.IntN(12) + 1 {
			d := Desc{Addr: rnd.Uint64N(space), Len: rnd.Uint64N(20) + 1}
			descs = append(descs, d)
			for i := d.Addr; i < d.End(); i++ {
				covered[i] = true
			}
		}
		merged := mergeSorted(descs)
		for range 50 {
			d := Desc{Addr: rnd.Uint64N(space), Len: rnd.Uint64N(30) + 1}
			want := !slices.Contains(covered[d.Addr:d.End()], false)
			if got := coveringPiece(merged, d) >= 0; got != want {
				t.Fatalf("round %d (seed %d): %v covers %s: got %v, want %v", round, seed, merged, d, got, want)
			}
		}
	}
}

func TestSlices(t *testing.T) {
	const seed = 5
	rnd := rand.New(rand.NewPCG(seed, seed))
	for range 300 {
		var descs []Desc
		var segs [][]byte
		var stream []byte // what the segments hold, one after the other
		for i := range rnd.IntN(6) + 1 {
			b := make([]byte, rnd.IntN(9)+1)
			for k := range b {
				b[k] = byte(rnd.Uint32())
			}
			segs, stream = append(segs, b), append(stream, b...)
			descs = append(descs, Desc{Addr: uint64(i) * 1000, Len: uint64(len(b))})
		}
		off := rnd.Uint64N(uint64(len(stream)))
		n := rnd.Uint64N(uint64(len(stream))-off) + 1
		var got []byte
		for _, s := range SliceSegments(segs, off, n) {
			got = append(got, s...)
		}
		if string(got) != string(stream[off:off+n]) {
			t.Fatalf("SliceSegments(%d, %d) = %v of %v", off, n, got, stream)
		}
		var back []byte
		for _, d := range SliceDescs(descs, off, n) {
			back = append(back, segs[d.Addr/1000][d.Addr%1000:][:d.Len]...)
		}
		if string(back) != string(got) {
			t.Fatalf("SliceDescs(%d, %d) names other bytes", off, n)
		}
	}
}
