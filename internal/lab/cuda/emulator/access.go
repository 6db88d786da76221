package emulator

import (
	"bytes"
	"math/bits"
	"slices"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// element takes .v2 or .v4 and the type of ld and st.
func (c *compiler) element() ptx.Type {
	o := c.out
	o.count = 1
	switch c.one("v2", "v4") {
	case "v2":
		o.count = 2
	case "v4":
		o.count = 4
	}
	t := c.typed()
	o.size = t.Bits() / 8
	o.signed = t.Kind() == ptx.Signed
	if o.size == 0 || o.size > 8 || o.size*o.count > 16 {
		c.fail("%d values of .%s", o.count, t)
	}
	return t
}

// hints takes modifiers that change nothing but speed, or that order what is in order here.
func (c *compiler) hints() {
	c.words = slices.DeleteFunc(c.words, func(w string) bool {
		switch w {
		case "L1::no_allocate", "L1::evict_first", "L1::evict_last", "L1::evict_normal", "L2::64B", "L2::128B", "L2::256B",
			"ca", "cg", "cs", "lu", "cv", "wb", "wt", "volatile", "weak", "relaxed", "acquire", "release", "acq_rel", "cta", "cluster", "gpu", "sys":
			return true
		}
		return false
	})
}

// watch makes pieces of shared memory small enough for an access.
func (c *compiler) watch(n int) {
	if c.out.space == spaceShared || c.out.space == spaceGeneric {
		c.k.granule = min(c.k.granule, uint(bits.TrailingZeros(uint(n))))
	}
}

func compileLoad(c *compiler) {
	o := c.out
	o.space, o.cached = c.space(), c.has("nc")
	c.hints()
	t := c.element()
	c.operands(2)
	o.list = c.vector(c.operand(0), o.count, c.result)
	o.a, o.imm = c.memory(c.operand(1))
	o.mask = ^uint64(0)
	if d := c.operand(0); d.Kind == ptx.InRegister {
		o.mask = ones(c.width(d))
	} else if len(d.Elements) > 0 {
		o.mask = ones(c.width(d.Elements[0]))
	}
	if t.Bits() > 64 || ones(t.Bits())&^o.mask != 0 {
		c.fail("a register that is too small")
	}
	c.watch(o.size * o.count)
	o.run = load
}

func compileStore(c *compiler) {
	o := c.out
	o.space = c.space()
	c.hints()
	t := c.element()
	c.operands(2)
	o.a, o.imm = c.memory(c.operand(0))
	o.list = c.vector(c.operand(1), o.count, func(o ptx.Operand) int32 { return c.value(o, t) })
	c.watch(o.size * o.count)
	if o.space == spaceParam || o.space == spaceConst {
		c.fail("memory of that space cannot be written")
	}
	o.run = store
}

// reach returns the bytes of an access, nil with a finding where it may not be.
func (w *warp) reach(in *instr, lane int, address uint64, n int, writes bool) []byte {
	s := in.space
	if s == spaceGeneric {
		if address >= sharedWindow {
			s, address = spaceShared, address-sharedWindow
		} else {
			s = spaceGlobal
		}
	}
	switch s {
	case spaceShared:
		return w.shared(in, lane, address, n, writes)
	case spaceParam:
		if args := w.block.grid.launch.Args; address+uint64(n) <= uint64(len(args)) && address&uint64(n-1) == 0 {
			return args[address:][:n]
		}
		w.find(MemoryCheck, in, lane, address, "%d bytes are not among the parameters", n)
		return nil
	}
	_, b := w.global(in, lane, address, n, writes)
	return b
}

func load(w *warp, in *instr, mask uint32) {
	addresses := w.r[in.a] // a result may be the address
	n := in.size * in.count
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		b := w.reach(in, l, addresses[l]+in.imm, n, false)
		if b == nil {
			continue
		}
		for i, r := range in.list {
			v := get(b[i*in.size:][:in.size])
			if in.signed {
				v = uint64(signExtend(v, in.size*8)) & in.mask
			}
			w.r[r][l] = v
		}
	}
}

func store(w *warp, in *instr, mask uint32) {
	var buffer [16]byte
	n := in.size * in.count
	for m := mask; m != 0; m &= m - 1 {
		l := bits.TrailingZeros32(m) & 31
		b := w.reach(in, l, w.r[in.a][l]+in.imm, n, true)
		if b == nil {
			continue
		}
		for i, r := range in.list {
			set64(buffer[i*in.size:][:in.size], w.r[r][l])
		}
		if w.conflict.is && !bytes.Equal(b, buffer[:n]) {
			w.raced(in, l)
		}
		w.conflict.is = false
		copy(b, buffer[:n])
	}
}

func compileAtomic(c *compiler) {
	o := c.out
	o.space = c.space()
	c.hints()
	do := c.one("add", "min", "max", "inc", "dec", "and", "or", "xor", "exch", "cas")
	c.has("noftz")
	t := c.typed()
	o.size, o.count = t.Bits()/8, 1
	if o.size < 2 || o.size > 8 {
		c.fail(".%s is not understood", t)
		return
	}
	i := 0
	if c.at.Opcode == "atom" {
		o.d = c.result(c.operand(0))
		i = 1
	}
	o.a, o.imm = c.memory(c.operand(i))
	o.b = c.value(c.operand(i+1), t)
	n := i + 2
	if do == "cas" {
		o.c = c.value(c.operand(n), t)
		n++
	}
	c.operands(n)
	c.watch(o.size)
	f := combine(t, do)
	if f == nil {
		c.fail("this form is not understood")
	}
	o.run = func(w *warp, in *instr, mask uint32) {
		addresses, b, d := w.r[in.a], w.r[in.b], w.r[in.c]
		// Lanes come one after the other, in some order.
		turn := w.random().IntN(32)
		for i := range 32 {
			l := (i + turn) % 32
			if mask>>l&1 == 0 {
				continue
			}
			address := addresses[l] + in.imm
			lock := lockOf(address)
			lock.Lock()
			w.how = byAtomic
			if at := w.reach(in, l, address, in.size, true); at != nil {
				old := get(at)
				set64(at, f(old, b[l], d[l]))
				if in.d != 0 {
					w.r[in.d][l] = old
				}
			}
			w.how = 0
			lock.Unlock()
			if w.conflict.is {
				w.raced(in, l)
			}
		}
	}
}

// combine returns the function of an atomic instruction on the old value and its operands.
func combine(t ptx.Type, do string) func(old, b, c uint64) uint64 {
	mask := ones(t.Bits())
	signed := t.Kind() == ptx.Signed
	less := func(a, b uint64) bool {
		if signed {
			return signExtend(a, t.Bits()) < signExtend(b, t.Bits())
		}
		return a < b
	}
	if t.Kind() == ptx.Float {
		l, small := layoutOf(t)
		switch {
		case do == "exch":
			return func(_, b, _ uint64) uint64 { return b }
		case do == "add" && t == ptx.F32:
			return func(old, b, _ uint64) uint64 { return bits32(float(old) + float(b)) }
		case do == "add" && small:
			add := func(x, y uint64) uint64 { return l.narrow(exactSum(l.widen(x), l.widen(y)), "rn", false) }
			if t.Bits() == 16 {
				return func(old, b, _ uint64) uint64 { return add(old, b) }
			}
			return func(old, b, _ uint64) uint64 { return add(old&0xffff, b&0xffff) | add(old>>16, b>>16)<<16 }
		}
		return nil
	}
	switch do {
	case "add":
		return func(old, b, _ uint64) uint64 { return (old + b) & mask }
	case "and":
		return func(old, b, _ uint64) uint64 { return old & b }
	case "or":
		return func(old, b, _ uint64) uint64 { return old | b }
	case "xor":
		return func(old, b, _ uint64) uint64 { return old ^ b }
	case "exch":
		return func(_, b, _ uint64) uint64 { return b }
	case "cas":
		return func(old, b, c uint64) uint64 {
			if old == b {
				return c
			}
			return old
		}
	case "min":
		return func(old, b, _ uint64) uint64 {
			if less(b, old) {
				return b
			}
			return old
		}
	case "max":
		return func(old, b, _ uint64) uint64 {
			if less(old, b) {
				return b
			}
			return old
		}
	case "inc":
		return func(old, b, _ uint64) uint64 {
			if old >= b {
				return 0
			}
			return old + 1
		}
	case "dec":
		return func(old, b, _ uint64) uint64 {
			if old == 0 || old > b {
				return b
			}
			return old - 1
		}
	}
	return nil
}
