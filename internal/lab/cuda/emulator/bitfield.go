package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// compileField puts bits into a value, or takes some out.
func compileField(c *compiler) {
	t := c.typed()
	size := t.Bits()
	if size != 32 && size != 64 {
		c.fail(".%s is not understood", t)
		return
	}
	if c.at.Opcode == "bfe" {
		c.operands(4)
		signed := t.Kind() == ptx.Signed
		c.lanes(t, t, func(a, at, n uint64) uint64 {
			at, n = at&0xff, n&0xff
			if n == 0 {
				return 0
			}
			if !signed {
				return a >> at & maskBits(n)
			}
			v := signExtend(a, size)
			top := min(at+n-1, uint64(size-1)) // the bit that is repeated
			return uint64(int64(uint64(v)<<(63-top)) >> (63 - top) >> min(at, 63))
		})
		c.out.b, c.out.c = c.value(c.operand(2), ptx.U32), c.value(c.operand(3), ptx.U32)
		return
	}
	c.operands(5)
	o := c.out
	o.d, o.list = c.result(c.operand(0)), []int32{c.value(c.operand(1), t), c.value(c.operand(2), t), c.value(c.operand(3), ptx.U32), c.value(c.operand(4), ptx.U32)}
	o.mask = ones(min(t.Bits(), 64))
	o.run = func(w *warp, in *instr, mask uint32) {
		a, b, at, n := &w.r[in.list[0]], &w.r[in.list[1]], &w.r[in.list[2]], &w.r[in.list[3]]
		var out vector
		for l := range out {
			field := maskBits(n[l]&0xff) << (at[l] & 0xff) & in.mask
			out[l] = b[l]&^field | a[l]<<(at[l]&0xff)&field
		}
		w.put(in.d, &out, mask)
	}
}

// maskBits has n ones, 64 at most.
func maskBits(n uint64) uint64 {
	if n >= 64 {
		return ^uint64(0)
	}
	return 1<<n - 1
}

func signExtend(v uint64, size int) int64 { return int64(v<<(64-size)) >> (64 - size) }

func compileCount(c *compiler) {
	t := c.typed()
	c.operands(2)
	size := t.Bits()
	var f func(a, _, _ uint64) uint64
	result := ptx.U32
	switch c.at.Opcode {
	case "popc":
		f = func(a, _, _ uint64) uint64 { return uint64(bits.OnesCount64(a)) }
	case "clz":
		f = func(a, _, _ uint64) uint64 { return uint64(bits.LeadingZeros64(a) - (64 - size)) }
	default:
		result = t
		f = func(a, _, _ uint64) uint64 { return bits.Reverse64(a) >> (64 - size) }
	}
	c.lanes(t, result, f)
}

// compileFunnel shifts two registers as one and keeps one half.
func compileFunnel(c *compiler) {
	left := c.one("l", "r") == "l"
	wrap := c.one("wrap", "clamp") == "wrap"
	t := c.typed()
	c.operands(4)
	c.lanes(t, t, func(a, b, n uint64) uint64 {
		if wrap {
			n &= 31
		}
		n = min(n, 32)
		both := b<<32 | a
		if left {
			return both << n >> 32 & 0xffffffff
		}
		return both >> n & 0xffffffff
	})
}

// compileLogic3 combines three values by a table of eight bits.
func compileLogic3(c *compiler) {
	t := c.typed()
	c.operands(5)
	table := c.operand(4)
	if table.Kind != ptx.Integer || t != ptx.B32 {
		c.fail("only lop3.b32 with a number is understood")
	}
	c.lanes(t, t, func(x, y, z uint64) uint64 {
		var out uint64
		for i := range uint64(8) {
			if table.Bits>>i&1 == 0 {
				continue
			}
			out |= (x ^ (i>>2&1 - 1)) & (y ^ (i>>1&1 - 1)) & (z ^ (i&1 - 1))
		}
		return out
	})
}
