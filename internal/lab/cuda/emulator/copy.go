package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// copies are a lane's asynchronous copies that it has not waited for.
type copies struct {
	open   []pending
	groups [][]pending
}

// pending is an asynchronous copy. It reads as late as it may.
type pending struct {
	to   uint64 // shared address
	from []byte // what it reads
	room int    // bytes that it writes; those that it does not read become zeros
}

// compileCopy takes asynchronous copies to shared memory.
func compileCopy(c *compiler) {
	if !c.has("async") {
		c.fail("this form is not understood")
		return
	}
	switch {
	case c.has("bulk"):
		if !c.has("tensor") {
			c.fail("this form is not understood")
			return
		}
		compileCopyTensor(c)
	case c.has("commit_group"):
		c.operands(0)
		c.out.run = func(w *warp, _ *instr, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				l := &w.copies[bits.TrailingZeros32(m)]
				l.groups, l.open = append(l.groups, l.open), nil
			}
		}
	case c.has("wait_group"):
		c.operands(1)
		n := c.operand(0)
		if n.Kind != ptx.Integer {
			c.fail("an operand that is no number")
		}
		c.out.run = func(w *warp, _ *instr, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				w.finish(bits.TrailingZeros32(m), int(min(n.Bits, 1<<30)))
			}
		}
	case c.has("wait_all"):
		c.operands(0)
		c.out.run = func(w *warp, _ *instr, mask uint32) {
			for m := mask; m != 0; m &= m - 1 {
				lane := bits.TrailingZeros32(m)
				l := &w.copies[lane]
				l.groups, l.open = append(l.groups, l.open), nil
				w.finish(lane, 0)
			}
		}
	default:
		compileCopyOf(c)
	}
}

func compileCopyOf(c *compiler) {
	o := c.out
	level := c.one("ca", "cg")
	shared := c.one("shared", "shared::cta")
	global := c.has("global")
	c.hints()
	o.a, o.imm = c.memory(c.operand(0))
	from, add := c.memory(c.operand(1))
	size := c.operand(2)
	if level == "" || shared == "" || !global || size.Kind != ptx.Integer || size.Bits != 16 && (level == "cg" || size.Bits != 4 && size.Bits != 8) {
		c.fail("this form is not understood")
		return
	}
	o.size, o.space = int(size.Bits), spaceShared
	o.b, o.c = from, c.constant(size.Bits)
	if len(c.at.Operands) > 3 {
		c.operands(4)
		o.c = c.value(c.operand(3), ptx.U32)
	}
	c.watch(o.size)
	o.run = func(w *warp, in *instr, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			w.copyLater(in, l, w.r[in.a][l]+in.imm, w.r[from][l]+add, int(min(w.r[in.c][l], uint64(in.size))))
		}
	}
}

// copyLater begins a copy of some bytes to the in.size bytes of a place.
func (w *warp) copyLater(in *instr, lane int, to, from uint64, n int) {
	p := pending{to: to, room: in.size}
	if from&uint64(in.size-1) != 0 {
		w.find(MemoryCheck, in, lane, from, "is no multiple of %d", in.size)
		return
	}
	if n > 0 {
		// What is read must be there now; it is read later.
		if n&(n-1) != 0 {
			w.find(MemoryCheck, in, lane, from, "%d bytes to copy", n)
			return
		}
		if _, p.from = w.global(in, lane, from, n, false); p.from == nil {
			return
		}
	}
	w.how = byCopy
	target := w.shared(in, lane, to, in.size, true)
	w.how = 0
	if w.conflict.is {
		w.raced(in, lane)
	}
	if target == nil {
		return
	}
	for i := range target {
		target[i] = poison
	}
	l := &w.copies[lane]
	l.open = append(l.open, p)
}

// finish ends all copies of a lane but those of its newest groups.
func (w *warp) finish(lane, newest int) {
	l := &w.copies[lane]
	for len(l.groups) > newest {
		for _, p := range l.groups[0] {
			w.arrived(lane, p)
		}
		l.groups = l.groups[1:]
	}
}

// arrived ends a copy: what it wrote was written now, by who waited.
func (w *warp) arrived(lane int, p pending) {
	s := &w.block.shadow
	off := int(p.to - sharedBase)
	clear(w.block.shared[off : off+p.room])
	copy(w.block.shared[off:], p.from)
	for g := off >> s.shift; g <= (off+p.room-1)>>s.shift; g++ {
		if s.writes[g]&byCopy != 0 {
			s.writes[g] = newStamp(w.clock[w.index], w.index, lane, 0)
		}
	}
}
