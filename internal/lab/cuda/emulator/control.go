package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

func compileBranch(c *compiler) {
	c.has("uni")
	c.operands(1)
	if c.operand(0).Kind != ptx.Label {
		c.fail("an operand that is no label")
		return
	}
	c.out.kind, c.out.target = kindBranch, int32(c.operand(0).Target)
}

func compileExit(c *compiler) {
	c.has("uni")
	c.operands(0)
	c.out.kind = kindExit
}

// compileTrap ends the launch.
func compileTrap(c *compiler) {
	c.operands(0)
	c.out.run = func(w *warp, in *instr, mask uint32) {
		w.find(EndCheck, in, bits.TrailingZeros32(mask), 0, "the kernel ends itself")
		w.block.stopped = true
	}
}

// compileBarrier takes barriers of a block and of a warp.
func compileBarrier(c *compiler) {
	o := c.out
	if c.at.Opcode == "bar" && c.has("warp") {
		c.has("sync")
		c.operands(1)
		o.kind, o.members = kindCollective, c.value(c.operand(0), ptx.B32)
		o.run = func(w *warp, _ *instr, _ uint32) { w.clock[w.index]++ }
		return
	}
	c.has("cta")
	o.signed = c.has("aligned") || c.at.Opcode == "bar" // all lanes come together
	switch c.one("sync", "arrive") {
	case "arrive":
		o.count = 1 // does not wait
		c.operands(2)
	case "sync":
		if len(c.at.Operands) != 2 {
			c.operands(1)
		}
	default:
		c.fail("this form is not understood")
	}
	o.kind, o.b = kindBarrier, -1
	o.a = c.value(c.operand(0), ptx.U32)
	if len(c.at.Operands) > 1 {
		o.b = c.value(c.operand(1), ptx.U32)
	}
}

// barrier is one of the sixteen of a block.
type barrier struct {
	arrived, want int
	clock         []uint64 // what those know that have come
}

// barrier has lanes come to a barrier of the block. It returns its number, and whether
// they wait there.
func (w *warp) barrier(in *instr, mask uint32) (id int, waits bool) {
	lane := bits.TrailingZeros32(mask)
	b := w.block
	number := w.r[in.a][lane]
	if number >= uint64(len(b.barriers)) {
		w.find(SyncCheck, in, lane, 0, "there is no barrier %d", number)
		return 0, false
	}
	at := &b.barriers[number]
	want := len(b.warps) * 32
	if in.b >= 0 {
		want = int(w.r[in.b][lane])
	}
	came := 32 // also of a warp that has fewer
	if mask != w.lanes {
		came = bits.OnesCount32(mask)
		if in.signed {
			w.find(SyncCheck, in, lane, 0, "lanes %#x of %#x are at barrier %d of the block, and others are not", mask, w.lanes, number)
			came = 32
		}
	}
	switch {
	case want == 0 || want%32 != 0:
		w.find(SyncCheck, in, lane, 0, "barrier %d wants %d threads, which is no number of warps", number, want)
		return 0, false
	case at.arrived > 0 && at.want != want:
		w.find(SyncCheck, in, lane, 0, "barrier %d wants %d threads, and %d for those that have come", number, want, at.want)
	}
	at.arrived += came
	at.want = want
	for i, known := range w.clock {
		at.clock[i] = max(at.clock[i], known)
	}
	if in.count == 1 {
		w.clock[w.index]++
		return 0, false
	}
	return int(number), true
}

// settle opens barriers at which all have come.
func (b *block) settle() {
	for id := range b.barriers {
		at := &b.barriers[id]
		if at.arrived == 0 || at.arrived < at.want {
			continue
		}
		for _, w := range b.warps {
			for i := range w.parts {
				if p := &w.parts[i]; p.waits && p.members == 0 && p.barrier == id {
					p.waits = false
					w.stuck = false
					w.learn(at.clock)
				}
			}
		}
		at.arrived = 0
		clear(at.clock)
	}
}

// learn takes over what others know, and begins an epoch.
func (w *warp) learn(clock []uint64) {
	for i, known := range clock {
		w.clock[i] = max(w.clock[i], known)
	}
	w.clock[w.index]++
}
