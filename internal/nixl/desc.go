package nixl

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// MemType says what kind of memory a region is; values as in NIXL.
type MemType uint8

// The kinds of memory.
const (
	DRAM MemType = 0
	VRAM MemType = 1
)

// String returns NIXL's name of the memory type.
func (m MemType) String() string {
	switch m {
	case DRAM:
		return "DRAM"
	case VRAM:
		return "VRAM"
	}
	return fmt.Sprintf("MemType(%d)", uint8(m))
}

// Op is the direction of a transfer, seen from the agent that posts it.
type Op uint8

// The directions of a transfer.
const (
	Read  Op = 0 // remote memory into local memory
	Write Op = 1 // local memory into remote memory
)

// String returns "read" or "write".
func (o Op) String() string {
	switch o {
	case Read:
		return "read"
	case Write:
		return "write"
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Desc names a piece of registered memory of one agent. Addresses are assigned
// by the agent when the memory is registered; they are not pointers and are never
// used again after the region is gone, so an outdated descriptor is refused
// rather than served from other memory.
type Desc struct {
	Addr  uint64
	Len   uint64 // bytes
	DevID uint64 // GPU index; 0 for DRAM
}

// End is the first address after the piece. It does not overflow for descriptors
// that have passed a check of this package.
func (d Desc) End() uint64 { return d.Addr + d.Len }

// Covers reports whether o lies inside d on the same device.
func (d Desc) Covers(o Desc) bool {
	return d.DevID == o.DevID && o.valid() && d.valid() && o.Addr >= d.Addr && o.End() <= d.End()
}

// String returns "addr+len", in hexadecimal and decimal.
func (d Desc) String() string {
	if d.DevID != 0 {
		return fmt.Sprintf("%#x+%d@%d", d.Addr, d.Len, d.DevID)
	}
	return fmt.Sprintf("%#x+%d", d.Addr, d.Len)
}

func (d Desc) valid() bool {
	return d.Len > 0 && d.Len <= math.MaxInt64 && d.Addr <= math.MaxUint64-d.Len
}

// TotalBytes sums the lengths of valid descriptors; ok is false when one is
// empty or wraps around, or when the sum does.
func TotalBytes(descs []Desc) (total uint64, ok bool) {
	for _, d := range descs {
		if !d.valid() || total > math.MaxInt64-d.Len {
			return 0, false
		}
		total += d.Len
	}
	return total, true
}

// SliceDescs returns the descriptors of n bytes from offset off of the list taken
// as one stream of bytes. The range must lie inside the list.
func SliceDescs(descs []Desc, off, n uint64) []Desc {
	var out []Desc
	for _, d := range descs {
		if n == 0 {
			break
		}
		if off >= d.Len {
			off -= d.Len
			continue
		}
		take := min(d.Len-off, n)
		out = append(out, Desc{Addr: d.Addr + off, Len: take, DevID: d.DevID})
		off, n = 0, n-take
	}
	return out
}

// SliceSegments returns n bytes from offset off of pieces of memory taken as one
// stream of bytes. The range must lie inside.
func SliceSegments(segs [][]byte, off, n uint64) [][]byte {
	var out [][]byte
	for _, s := range segs {
		if n == 0 {
			break
		}
		if off >= uint64(len(s)) {
			off -= uint64(len(s))
			continue
		}
		take := min(uint64(len(s))-off, n)
		out = append(out, s[off:off+take])
		off, n = 0, n-take
	}
	return out
}

// mergePairs joins neighbors that are contiguous on both sides, so that a run of
// blocks costs one descriptor. The lists pair up element by element.
func mergePairs(local, remote []Desc) (l, r []Desc) {
	l, r = make([]Desc, 0, len(local)), make([]Desc, 0, len(remote))
	for i := range local {
		l, r = appendPair(l, r, local[i], remote[i])
	}
	return l, r
}

// appendPair appends a pair to lists that mergePairs made, or to their last one.
func appendPair(ls, rs []Desc, l, r Desc) (_, _ []Desc) {
	if n := len(ls) - 1; n >= 0 && adjacent(ls[n], l) && adjacent(rs[n], r) {
		ls[n].Len += l.Len
		rs[n].Len += r.Len
		return ls, rs
	}
	return append(ls, l), append(rs, r)
}

// adjacent reports whether b follows a without a gap.
func adjacent(a, b Desc) bool { return a.End() == b.Addr && a.DevID == b.DevID }

// mergeSorted returns the union of the pieces in address order, with neighbors
// and overlaps joined.
func mergeSorted(descs []Desc) []Desc {
	s := slices.Clone(descs)
	slices.SortFunc(s, compareDesc)
	out := s[:0]
	for _, d := range s {
		if n := len(out) - 1; n >= 0 && out[n].DevID == d.DevID && d.Addr <= out[n].End() {
			if d.End() > out[n].End() {
				out[n].Len = d.End() - out[n].Addr
			}
			continue
		}
		out = append(out, d)
	}
	return out
}

// compareDesc orders by device, address and length.
func compareDesc(a, b Desc) int {
	return cmp.Or(cmp.Compare(a.DevID, b.DevID), cmp.Compare(a.Addr, b.Addr), cmp.Compare(a.Len, b.Len))
}

// coveringPiece returns the index of the piece of a list made by mergeSorted that
// d lies in, or -1.
func coveringPiece(sorted []Desc, d Desc) int {
	i, found := slices.BinarySearchFunc(sorted, d, func(e, t Desc) int {
		if e.DevID != t.DevID {
			return cmp.Compare(e.DevID, t.DevID)
		}
		return cmp.Compare(e.Addr, t.Addr)
	})
	if !found {
		i--
	}
	if i < 0 || !sorted[i].Covers(d) {
		return -1
	}
	return i
}
