package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// TensorMap describes an array in device memory of which copies bring boxes.
type TensorMap struct {
	Address uint64
	Value   int      // bytes
	Sizes   []uint64 // of the dimensions, the innermost first
	Strides []uint64 // bytes from one to the next, of all dimensions but the first
	Box     []uint32
	Swizzle int // bytes of a row whose 16-byte chunks are exchanged: 0, 32, 64 or 128
}

// swizzled returns the address of a byte of shared memory when rows of so many bytes are
// swizzled: bits of the row number change those of the chunk.
func swizzled(address uint64, bytes int) uint64 {
	switch bytes {
	case 32:
		return address ^ address>>3&0x10
	case 64:
		return address ^ address>>3&0x30
	case 128:
		return address ^ address>>3&0x70
	}
	return address
}

// arrival is a copy of a box that has not come.
type arrival struct {
	in      *instr
	w       *warp
	lane    int
	m       *TensorMap
	at      []int64 // coordinates of its first value
	to      uint64
	barrier *mbarrier
	epoch   uint64
}

// compileCopyTensor takes copies of boxes from device memory, after cp.async.bulk.tensor.
func compileCopyTensor(c *compiler) {
	o := c.out
	dimensions := 0
	switch c.one("1d", "2d", "3d", "4d", "5d") {
	case "1d":
		dimensions = 1
	case "2d":
		dimensions = 2
	case "3d":
		dimensions = 3
	case "4d":
		dimensions = 4
	case "5d":
		dimensions = 5
	}
	ok := c.one("shared::cluster", "shared::cta") != ""
	ok = c.has("global") && ok
	c.has("tile")
	ok = c.has("mbarrier::complete_tx::bytes") && ok
	source := c.operand(1)
	if !ok || dimensions == 0 || source.Kind != ptx.Memory || len(source.Elements) != 2 {
		c.fail("this form is not understood")
		return
	}
	c.operands(3)
	o.a, o.imm = c.memory(c.operand(0))
	from, add := c.base(source)
	o.list = c.vector(source.Elements[1], dimensions, func(o ptx.Operand) int32 { return c.value(o, ptx.S32) })
	var offset uint64
	o.c, offset = c.memory(c.operand(2))
	o.b, o.space = from, spaceShared
	o.run = func(w *warp, in *instr, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			a := arrival{in: in, w: w, lane: l, to: w.r[in.a][l] + in.imm}
			for _, r := range in.list {
				a.at = append(a.at, int64(int32(w.r[r][l])))
			}
			if a.m = w.tensorMap(in, l, w.r[from][l]+add); a.m == nil {
				continue
			}
			address := w.r[in.c][l] + offset
			if a.barrier = w.mbarrier(in, l, address); a.barrier == nil {
				continue
			}
			if !a.barrier.fenced {
				w.find(SyncCheck, in, l, address, "a copy uses the mbarrier, and no fence came after it was initialized")
			}
			w.depart(a)
		}
	}
}

// paramWindow is the first generic address of parameters.
const paramWindow = 1 << 61

// tensorMap reads a map among the parameters.
func (w *warp) tensorMap(in *instr, lane int, address uint64) *TensorMap {
	const size, align = 128, 64
	args, off := w.block.grid.launch.Args, address-paramWindow
	decode := w.block.grid.launch.TensorMap
	if address < paramWindow || off%align != 0 || off+size > uint64(len(args)) || decode == nil {
		w.find(MemoryCheck, in, lane, address, "is no address of a tensor map among the parameters")
		return nil
	}
	m, err := decode(args[off:][:size])
	if err != nil {
		w.find(MemoryCheck, in, lane, address, "%v", err)
		return nil
	}
	row := m.Value
	if len(m.Box) > 0 {
		row *= int(m.Box[0])
	}
	n := len(in.list)
	if len(m.Sizes) != n || len(m.Box) != n || len(m.Strides) != n-1 || m.Swizzle > 0 && row != m.Swizzle {
		w.find(MemoryCheck, in, lane, address, "a tensor map of %d dimensions with rows of %d bytes, swizzled by %d", len(m.Sizes), row, m.Swizzle)
		return nil
	}
	return m
}

// rows of the box: how many there are, and the bytes of each.
func (a *arrival) rows() (n, bytes int) {
	n = 1
	for _, b := range a.m.Box[1:] {
		n *= int(b)
	}
	return n, int(a.m.Box[0]) * a.m.Value
}

// depart begins a copy: from now on nobody may use the place.
func (w *warp) depart(a arrival) {
	n, row := a.rows()
	total := n * row
	align := max(128, 8*a.m.Swizzle)
	if a.to%uint64(align) != 0 || a.to < sharedBase || a.to+uint64(total) > sharedBase+uint64(len(w.block.shared)) {
		w.find(MemoryCheck, a.in, a.lane, a.to, "is no place for a box of %d bytes, swizzled by %d", total, a.m.Swizzle)
		return
	}
	if a.barrier.bytes < total && a.barrier.missing == a.barrier.count {
		w.find(SyncCheck, a.in, a.lane, 0, "an unannounced copy of %d bytes: the phase may end without it", total)
	}
	w.how = byCopy
	for at := 0; at < total; at += 16 {
		w.sawWrite(a.in, a.lane, a.to+uint64(at), 16)
		if w.conflict.is {
			w.raced(a.in, a.lane)
		}
	}
	w.how = 0
	off := a.to - sharedBase
	for i := range w.block.shared[off:][:total] {
		w.block.shared[off+uint64(i)] = poison
	}
	a.epoch = w.clock[w.index]
	w.clock[w.index]++
	w.block.arrivals = append(w.block.arrivals, a)
	w.block.idle = 0
}

// land has one of the copies that are under way come, whichever.
func (b *block) land() bool {
	if len(b.arrivals) == 0 {
		return false
	}
	i := b.random.IntN(len(b.arrivals))
	a := b.arrivals[i]
	b.arrivals[i] = b.arrivals[len(b.arrivals)-1]
	b.arrivals = b.arrivals[:len(b.arrivals)-1]
	n, row := a.rows()
	at := append([]int64(nil), a.at...)
	for r := range n {
		rest := r
		for d := 1; d < len(at); d++ {
			at[d] = a.at[d] + int64(rest%int(a.m.Box[d]))
			rest /= int(a.m.Box[d])
		}
		b.landRow(&a, at, a.to+uint64(r*row), row)
	}
	s := &b.shadow
	for off := a.to - sharedBase; off < a.to-sharedBase+uint64(n*row); off += 1 << s.shift {
		if g := off >> s.shift; s.writes[g]&byCopy != 0 {
			s.writes[g] = newStamp(a.epoch, a.w.index, a.lane, 0)
		}
	}
	a.barrier.bytes -= n * row
	a.barrier.clock[a.w.index] = max(a.barrier.clock[a.w.index], a.epoch)
	b.turn(a.barrier)
	return true
}

// landRow copies a row of a box, with zeros for what is outside of the array.
func (b *block) landRow(a *arrival, at []int64, to uint64, bytes int) {
	address, inside := a.m.Address, true
	for d := 1; d < len(at); d++ {
		inside = inside && at[d] >= 0 && uint64(at[d]) < a.m.Sizes[d]
		address += uint64(at[d]) * a.m.Strides[d-1]
	}
	for i := 0; i < bytes; i += a.m.Value {
		x := at[0] + int64(i/a.m.Value)
		place := b.shared[swizzled(to+uint64(i), a.m.Swizzle)-sharedBase:][:a.m.Value]
		clear(place)
		if !inside || x < 0 || uint64(x) >= a.m.Sizes[0] {
			continue
		}
		if _, from := a.w.global(a.in, a.lane, address+uint64(x)*uint64(a.m.Value), a.m.Value, false); from != nil {
			copy(place, from)
		}
	}
}
