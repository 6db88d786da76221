package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// mbarrier is a barrier in shared memory, for threads and for bytes of asynchronous copies.
// The object is here; what lies in shared memory nobody may look at.
type mbarrier struct {
	count   int // arrivals of a phase
	missing int // of the current one
	bytes   int // that are announced and have not come
	phase   uint64
	by      stamp // who initialized it
	fenced  bool  // copies may use it
	clock   []uint64
	ended   []uint64 // what those knew that ended the phase before
}

// mostBytes that a phase may wait for, by the PTX ISA.
const mostBytes = 1<<20 - 1

func compileMbarrier(c *compiler) {
	o := c.out
	shared := c.one("shared", "shared::cta")
	c.hints() // orders and scopes
	what := c.one("init", "inval", "arrive", "expect_tx", "try_wait", "test_wait")
	both := what == "arrive" && c.has("expect_tx")
	parity := c.has("parity")
	if c.typed() != ptx.B64 || shared == "" || (what == "try_wait" || what == "test_wait") != parity {
		c.fail("this form is not understood")
		return
	}
	n := 0 // of the address
	if what == "arrive" || parity {
		n = 1
	}
	o.a, o.imm = c.memory(c.operand(n))
	o.b = c.constant(1)
	if what != "arrive" || len(c.at.Operands) > 2 { // arrivals, bytes or a parity
		if what != "inval" {
			o.b = c.value(c.operand(n+1), ptx.U32)
		}
	}
	if what == "arrive" {
		o.d = c.result(c.operand(0))
	}
	if parity {
		o.p, _ = c.predicate(c.operand(0))
	}
	o.run = func(w *warp, in *instr, mask uint32) {
		for m := mask; m != 0; m &= m - 1 {
			l := bits.TrailingZeros32(m) & 31
			address, v := w.r[in.a][l]+in.imm, int(w.r[in.b][l])
			if what == "init" {
				w.initialize(in, l, address, v)
				continue
			}
			b := w.mbarrier(in, l, address)
			if b == nil {
				continue
			}
			switch what {
			case "inval":
				delete(w.block.mbarriers, address)
			case "expect_tx":
				w.expect(b, in, l, address, v)
			case "arrive":
				arrivals := v
				if both {
					w.expect(b, in, l, address, v)
					arrivals = 1
				}
				w.r[in.d][l] = b.phase
				w.arriveAt(b, in, l, address, arrivals)
			default:
				w.poll(b, in, l, uint64(v))
			}
		}
	}
}

// initialize makes a barrier.
func (w *warp) initialize(in *instr, lane int, address uint64, count int) {
	n := len(w.block.warps)
	switch {
	case address&7 != 0 || address < sharedBase || address+8 > sharedBase+uint64(len(w.block.shared)):
		w.find(MemoryCheck, in, lane, address, "is no place for an mbarrier")
	case count < 1 || count >= 1<<20:
		w.find(SyncCheck, in, lane, address, "an mbarrier for %d arrivals", count)
	case w.block.mbarriers[address] != nil:
		w.find(SyncCheck, in, lane, address, "an mbarrier is there already")
	default:
		w.block.mbarriers[address] = &mbarrier{
			count: count, missing: count, by: newStamp(w.clock[w.index], w.index, lane, 0), clock: make([]uint64, n), ended: make([]uint64, n),
		}
	}
}

// mbarrier finds a barrier that the lane may use.
func (w *warp) mbarrier(in *instr, lane int, address uint64) *mbarrier {
	b := w.block.mbarriers[address]
	if b == nil {
		w.find(SyncCheck, in, lane, address, "no mbarrier was initialized there")
		return nil
	}
	if !w.knows(b.by.warp(), b.by.lane(), b.by.epoch(), lane) {
		w.find(RaceCheck, in, lane, address, "is used, and %s initialized it without a barrier between", w.block.thread(b.by))
	}
	return b
}

func (w *warp) expect(b *mbarrier, in *instr, lane int, address uint64, bytes int) {
	if b.bytes += bytes; b.bytes > mostBytes {
		w.find(SyncCheck, in, lane, address, "the mbarrier waits for %d bytes, more than it can count", b.bytes)
	}
}

func (w *warp) arriveAt(b *mbarrier, in *instr, lane int, address uint64, n int) {
	if b.missing -= n; b.missing < 0 {
		w.find(SyncCheck, in, lane, address, "more arrivals than the %d that the mbarrier is for", b.count)
		b.missing = 0
	}
	for i, known := range w.clock {
		b.clock[i] = max(b.clock[i], known)
	}
	w.clock[w.index]++ // what comes later, those who wait do not know of
	w.block.turn(b)
}

// turn ends the phase of a barrier if all has come.
func (b *block) turn(m *mbarrier) {
	b.idle = 0
	if m.missing > 0 || m.bytes != 0 {
		return
	}
	m.phase++
	m.missing = m.count
	copy(m.ended, m.clock)
}

// patienceOfPolls limits the polls of a block's warps in vain while nothing else
// happens.
const patienceOfPolls = 1 << 13

// poll asks whether the phase of a parity has ended. The more often it is in vain, the more
// copies come.
func (w *warp) poll(b *mbarrier, in *instr, lane int, parity uint64) {
	ended := b.phase&1 != parity&1
	w.setPredicate(in.p, -bit(ended), 1<<lane)
	if ended {
		w.learn(b.ended)
		return
	}
	if w.yields { // one lane's poll is enough
		return
	}
	w.yields = true
	if w.block.land() {
		return
	}
	if w.block.idle++; w.block.idle > patienceOfPolls {
		w.find(EndCheck, in, lane, 0, "waits for an mbarrier, whose phase %d lacks %d arrivals and %d bytes", b.phase, b.missing, b.bytes)
		w.block.stopped = true
	}
}

// compileFence takes fences. Memory is in order here; what counts is that the units of
// copies and products see what threads wrote.
func compileFence(c *compiler) {
	async := c.has("proxy") && c.one("async", "async.shared::cta") != ""
	async = c.has("mbarrier_init") || async
	c.words = nil
	c.out.run = func(w *warp, _ *instr, mask uint32) {
		if !async {
			return
		}
		for _, b := range w.block.mbarriers {
			if b.by.warp() == w.index && mask>>b.by.lane()&1 != 0 {
				b.fenced = true
			}
		}
		w.show(mask)
	}
}
