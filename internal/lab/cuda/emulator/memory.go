package emulator

import (
	"encoding/binary"
	"math/bits"
	"sort"
	"sync"
	"sync/atomic"
)

// Memory is that of a device. It does not change while a kernel runs.
type Memory interface {
	// Find returns the allocation that has an address, nil if none does. It is called by
	// several goroutines at once.
	Find(address uint64) *Allocation
}

// Allocation is a piece of device memory.
type Allocation struct {
	Address uint64
	Bytes   []byte
	// Written are the bytes that hold something; nil for all of them.
	Written *Bitmap
	// Read and Changed get the bytes that kernels touch, where somebody wants to know.
	Read, Changed *Bitmap
}

// Bitmap has a bit for each byte of an allocation. What was never set takes no memory.
// Goroutines may use it at once.
type Bitmap struct {
	n     int
	pages []atomic.Pointer[bitmapPage]
}

type bitmapPage [512]atomic.Uint64

const pageBits = 512 * 64

// NewBitmap has no bit set for so many bytes.
func NewBitmap(n int) *Bitmap {
	return &Bitmap{n, make([]atomic.Pointer[bitmapPage], (n+pageBits-1)/pageBits)}
}

// Add sets n bits from one on.
func (b *Bitmap) Add(from, n int) {
	for n > 0 {
		at := &b.pages[from/pageBits]
		p := at.Load()
		if p == nil {
			at.CompareAndSwap(nil, new(bitmapPage))
			p = at.Load()
		}
		m := min(n, 64-from%64)
		set := ones(m) << (from % 64)
		if w := &p[from%pageBits/64]; w.Load()&set != set {
			w.Or(set)
		}
		from, n = from+m, n-m
	}
}

// First is the first of n bits from one on that is set, or not set; -1 for none.
func (b *Bitmap) First(from, n int, is bool) int {
	for n > 0 {
		p := b.pages[from/pageBits].Load()
		m := min(n, 64-from%64)
		var v uint64
		if p != nil {
			v = p[from%pageBits/64].Load()
		} else if is {
			m = min(n, pageBits-from%pageBits)
		}
		if !is {
			v = ^v
		}
		if v = v >> (from % 64) & ones(min(m, 64)); v != 0 {
			return from + bits.TrailingZeros64(v)
		}
		from, n = from+m, n-m
	}
	return -1
}

// Runs calls f for each row of bits that are set.
func (b *Bitmap) Runs(f func(from, n int)) {
	for at := 0; at < b.n; {
		from := b.First(at, b.n-at, true)
		if from < 0 {
			return
		}
		at = b.First(from, b.n-from, false)
		if at < 0 {
			at = b.n
		}
		f(from, at-from)
	}
}

// global finds device memory for an access of a lane; nil, with a finding, where it may
// not be.
func (w *warp) global(in *instr, lane int, address uint64, n int, writes bool) (m *Allocation, bytes []byte) {
	m = w.block.last
	off := address - m.Address
	if off > uint64(len(m.Bytes)) || uint64(len(m.Bytes))-off < uint64(n) {
		if m = w.block.allocation(address); m == nil {
			w.find(MemoryCheck, in, lane, address, "%d bytes of no allocation", n)
			return nil, nil
		}
		if off = address - m.Address; uint64(len(m.Bytes))-off < uint64(n) {
			w.find(MemoryCheck, in, lane, address, "%d bytes, of which the last are behind an allocation of %d bytes at %#x", n, len(m.Bytes), m.Address)
			return nil, nil
		}
		w.block.last = m
	}
	if address&uint64(n-1) != 0 {
		w.find(MemoryCheck, in, lane, address, "is no multiple of %d", n)
		return nil, nil
	}
	at := int(off)
	if writes {
		if m.Changed != nil {
			m.Changed.Add(at, n)
		}
		if m.Written != nil {
			m.Written.Add(at, n)
		}
	} else {
		if m.Read != nil {
			m.Read.Add(at, n)
		}
		if m.Written != nil {
			if first := m.Written.First(at, n, false); first >= 0 {
				w.find(UninitializedCheck, in, lane, m.Address+uint64(first), "device memory was not written")
				m.Written.Add(at, n) // once is enough
			}
		}
	}
	return m, m.Bytes[at : at+n : at+n]
}

// allocation finds memory of the module or of the device.
func (b *block) allocation(address uint64) *Allocation {
	m := &b.kernel.module.variables
	if address < moduleBase || address-moduleBase >= uint64(len(m.Bytes)) {
		m = b.grid.launch.Memory.Find(address)
	}
	if m == nil || address < m.Address || address-m.Address >= uint64(len(m.Bytes)) {
		return nil
	}
	return m
}

// Allocations are a memory, in the order of their addresses.
type Allocations []*Allocation

// Find implements Memory.
func (a Allocations) Find(address uint64) *Allocation {
	i := sort.Search(len(a), func(i int) bool { return a[i].Address > address })
	if i == 0 || address-a[i-1].Address >= uint64(len(a[i-1].Bytes)) {
		return nil
	}
	return a[i-1]
}

// atomics keeps blocks that run at once from changing the same bytes.
var atomics [64]sync.Mutex

func lockOf(address uint64) *sync.Mutex { return &atomics[address/8%uint64(len(atomics))] }

// get reads a value of 1, 2, 4 or 8 bytes.
func get(b []byte) uint64 {
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(binary.LittleEndian.Uint16(b))
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	}
	return binary.LittleEndian.Uint64(b)
}

func set64(b []byte, v uint64) {
	switch len(b) {
	case 1:
		b[0] = byte(v)
	case 2:
		binary.LittleEndian.PutUint16(b, uint16(v))
	case 4:
		binary.LittleEndian.PutUint32(b, uint32(v))
	default:
		binary.LittleEndian.PutUint64(b, v)
	}
}
