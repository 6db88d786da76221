package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// together makes an instruction one of lanes that wait for each other; the operand has
// their mask.
func (c *compiler) together(i int) {
	c.has("sync")
	c.out.kind, c.out.members = kindCollective, c.value(c.operand(i), ptx.B32)
}

// resultPair takes a result with a predicate behind a bar, if it is there.
func (c *compiler) resultPair() {
	d := c.operand(0)
	if d.Kind == ptx.Pair {
		c.out.p, _ = c.predicate(d.Elements[1])
		d = d.Elements[0]
	}
	c.out.d = c.result(d)
}

func compileShuffle(c *compiler) {
	o := c.out
	c.operands(5)
	c.together(4)
	mode := c.one("up", "down", "bfly", "idx")
	t := c.typed()
	if mode == "" || t.Bits() != 32 {
		c.fail("this form is not understood")
	}
	c.resultPair()
	o.a, o.b, o.c = c.value(c.operand(1), t), c.value(c.operand(2), ptx.B32), c.value(c.operand(3), ptx.B32)
	o.run = func(w *warp, in *instr, mask uint32) {
		a, b, clamps := &w.r[in.a], &w.r[in.b], &w.r[in.c]
		var out vector
		var valid uint32
		for l := range out {
			if mask>>l&1 == 0 {
				continue
			}
			by, clamp, segment := int(b[l]&31), int(clamps[l]&31), int(clamps[l]>>8&31)
			least := l & segment
			most := least | clamp&^segment
			var from int
			var ok bool
			switch mode {
			case "up":
				from = l - by
				ok = from >= most
			case "down":
				from = l + by
				ok = from <= most
			case "bfly":
				from = l ^ by
				ok = from <= most
			default:
				from = least | by&^segment
				ok = from <= most
			}
			if !ok {
				from = l
			}
			valid |= bit(ok) << l
			if mask>>from&1 == 0 {
				w.find(SyncCheck, in, l, 0, "takes the value of lane %d, which does not take part", from)
				continue
			}
			out[l] = a[from]
		}
		w.put(in.d, &out, mask)
		if in.p != 0 {
			w.setPredicate(in.p, valid, mask)
		}
	}
}

func compileVote(c *compiler) {
	o := c.out
	c.operands(3)
	c.together(2)
	mode := c.one("all", "any", "uni", "ballot")
	t := c.typed()
	if mode == "ballot" != (t == ptx.B32) || mode == "" {
		c.fail("this form is not understood")
		return
	}
	if mode == "ballot" {
		o.d = c.result(c.operand(0))
	} else {
		o.p, _ = c.predicate(c.operand(0))
	}
	o.q, o.notQ = c.predicate(c.operand(1))
	o.run = func(w *warp, in *instr, mask uint32) {
		votes := w.predicate(in.q, in.notQ) & mask
		var is bool
		switch mode {
		case "all":
			is = votes == mask
		case "any":
			is = votes != 0
		case "uni":
			is = votes == 0 || votes == mask
		default:
			w.fill(in.d, uint64(votes), mask)
			return
		}
		w.setPredicate(in.p, -bit(is), mask)
	}
}

// fill writes the same to some lanes of a register.
func (w *warp) fill(d int32, v uint64, mask uint32) {
	for m := mask; m != 0; m &= m - 1 {
		w.r[d][bits.TrailingZeros32(m)] = v
	}
}

func compileMatch(c *compiler) {
	o := c.out
	c.operands(3)
	c.together(2)
	all := c.one("any", "all") == "all"
	t := c.typed()
	c.resultPair()
	o.a = c.value(c.operand(1), t)
	o.run = func(w *warp, in *instr, mask uint32) {
		a := &w.r[in.a]
		var out vector
		for l := range out {
			for m := mask; m != 0; m &= m - 1 {
				if o := bits.TrailingZeros32(m); a[o] == a[l] {
					out[l] |= 1 << o
				}
			}
			if all && uint32(out[l]) != mask {
				out[l] = 0
			}
		}
		w.put(in.d, &out, mask)
		if in.p != 0 {
			w.setPredicate(in.p, -bit(out[bits.TrailingZeros32(mask)] != 0), mask)
		}
	}
}

func compileReduce(c *compiler) {
	o := c.out
	c.operands(3)
	c.together(2)
	do := c.one("add", "min", "max", "and", "or", "xor")
	t := c.typed()
	f := combine(t, do)
	if f == nil || t.Bits() != 32 || t.Kind() == ptx.Float {
		c.fail("this form is not understood")
		return
	}
	o.d, o.a = c.result(c.operand(0)), c.value(c.operand(1), t)
	o.run = func(w *warp, in *instr, mask uint32) {
		a := &w.r[in.a]
		v := a[bits.TrailingZeros32(mask)]
		for m := mask & (mask - 1); m != 0; m &= m - 1 {
			v = f(v, a[bits.TrailingZeros32(m)], 0)
		}
		w.fill(in.d, v, mask)
	}
}

// compileElect chooses the first lane.
func compileElect(c *compiler) {
	c.operands(2)
	c.together(1)
	c.resultPair()
	c.out.run = func(w *warp, in *instr, mask uint32) {
		first := bits.TrailingZeros32(mask)
		w.fill(in.d, uint64(first), mask)
		w.setPredicate(in.p, 1<<first, mask)
	}
}
