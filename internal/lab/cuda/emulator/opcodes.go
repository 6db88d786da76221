package emulator

import "github.com/dynctl/dynctl/internal/cuda/ptx"

// op says which loop over lanes an instruction is.
type op uint8

const (
	opRun  op = iota // a function of its own
	opLane           // a function of each lane's operands
	opInteger
	opFloat32
	opCompareInteger
	opCompareFloat32
	opSelect
	opMove
	opMask       // moves the low bits
	opSignExtend // of 32 bits
	opPermute
	opPackBF16
)

// opcodes lists the supported instructions.
var opcodes = map[string]func(c *compiler){
	"add": compileAdd, "sub": compileAdd, "mul": compileMultiply, "mad": compileMultiply, "fma": compileMultiply,
	"div": compileDivide, "rem": compileDivide, "min": compileExtreme, "max": compileExtreme, "neg": compileSign, "abs": compileSign,
	"and": compileLogic, "or": compileLogic, "xor": compileLogic, "not": compileLogic, "shl": compileShift, "shr": compileShift,
	"bfi": compileField, "bfe": compileField, "popc": compileCount, "clz": compileCount, "brev": compileCount,
	"prmt": compilePermute, "shf": compileFunnel, "lop3": compileLogic3,
	"rcp": compileFunction, "sqrt": compileFunction, "rsqrt": compileFunction, "ex2": compileFunction, "lg2": compileFunction,
	"sin": compileFunction, "cos": compileFunction, "tanh": compileFunction, "copysign": compileCopysign,
	"setp": compileCompare, "set": compileSet, "selp": compileSelect, "mov": compileMove, "cvt": compileConvert, "cvta": compileConvertAddress,
	"ld": compileLoad, "st": compileStore, "atom": compileAtomic, "red": compileAtomic, "prefetch": compileNothing, "isspacep": compileIsSpace,
	"bra": compileBranch, "ret": compileExit, "exit": compileExit, "trap": compileTrap,
	"bar": compileBarrier, "barrier": compileBarrier, "membar": compileNothing, "fence": compileFence, "nanosleep": compileNothing,
	"shfl": compileShuffle, "vote": compileVote, "match": compileMatch, "redux": compileReduce, "activemask": compileActiveMask, "elect": compileElect,
	"cp": compileCopy, "mbarrier": compileMbarrier, "wgmma": compileWgmma, "setmaxnreg": compileRegisters, "griddepcontrol": compileNothing, "ldmatrix": compileLoadMatrix, "stmatrix": compileStoreMatrix, "mma": compileProduct,
}

// lanes makes the instruction one that computes each lane by a function.
func (c *compiler) lanes(t, result ptx.Type, f func(a, b, d uint64) uint64) {
	o := c.out
	o.op, o.lane, o.mask = opLane, f, ones(min(result.Bits(), 64))
	o.d = c.result(c.operand(0))
	for i, to := range []*int32{&o.a, &o.b, &o.c}[:min(3, max(0, len(c.at.Operands)-1))] {
		*to = c.value(c.operand(i+1), t)
	}
}

// compileNothing takes what has no effect here.
func compileNothing(c *compiler) {
	c.words = nil
	c.out.op, c.out.run = opRun, func(*warp, *instr, uint32) {}
}

func compileMove(c *compiler) {
	t := c.typed()
	c.operands(2)
	d, s := c.operand(0), c.operand(1)
	switch {
	case t == ptx.Pred:
		compilePredicateMove(c, d, s)
	case d.Kind == ptx.Vector:
		c.unpack(t, d, c.value(s, t))
	case s.Kind == ptx.Vector:
		n := len(s.Elements)
		c.out.run, c.out.size, c.out.d = pack, t.Bits()/max(n, 1), c.result(d)
		c.out.list = c.vector(s, n, func(o ptx.Operand) int32 { return c.value(o, c.part(t, n)) })
	default:
		c.out.op, c.out.d, c.out.a, c.out.mask = opMove, c.result(d), c.value(s, t), ones(t.Bits())
	}
}

// part is the type of one of n values in another.
func (c *compiler) part(t ptx.Type, n int) ptx.Type {
	switch {
	case n > 0 && t.Bits()/n == 32:
		return ptx.B32
	case n > 0 && t.Bits()/n == 16:
		return ptx.B16
	case n > 0 && t.Bits()/n == 8:
		return ptx.B8
	}
	c.fail("%d values of .%s", n, t)
	return ptx.B32
}

func (c *compiler) unpack(t ptx.Type, d ptx.Operand, from int32) {
	n := len(d.Elements)
	c.part(t, n)
	c.out.run, c.out.size, c.out.a = unpack, t.Bits()/max(n, 1), from
	c.out.list = c.vector(d, n, c.result)
}

// pack joins registers, the first in the low bits.
func pack(w *warp, in *instr, mask uint32) {
	var out vector
	for i, r := range in.list {
		for l, v := range &w.r[r] {
			out[l] |= v & ones(in.size) << (i * in.size)
		}
	}
	w.put(in.d, &out, mask)
}

func unpack(w *warp, in *instr, mask uint32) {
	from := w.r[in.a]
	for i, r := range in.list {
		if r == 0 {
			continue
		}
		var out vector
		for l, v := range &from {
			out[l] = v >> (i * in.size) & ones(in.size)
		}
		w.put(r, &out, mask)
	}
}

func compilePredicateMove(c *compiler, d, s ptx.Operand) {
	o := c.out
	o.p, _ = c.predicate(d)
	if s.Kind == ptx.Integer {
		value := uint32(0)
		if s.Bits != 0 {
			value = allLanes
		}
		o.run = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.p, value, mask) }
		return
	}
	o.q, o.notQ = c.predicate(s)
	o.run = func(w *warp, in *instr, mask uint32) { w.setPredicate(in.p, w.predicate(in.q, in.notQ), mask) }
}

func compileSelect(c *compiler) {
	t := c.typed()
	c.operands(4)
	o := c.out
	o.op, o.d, o.a, o.b = opSelect, c.result(c.operand(0)), c.value(c.operand(1), t), c.value(c.operand(2), t)
	o.q, o.notQ = c.predicate(c.operand(3))
}

// compilePermute takes bytes of two registers by the digits of a third.
func compilePermute(c *compiler) {
	mode := c.one("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
	t := c.typed()
	c.operands(4)
	if mode != "" || t != ptx.B32 {
		c.fail("only prmt.b32 is understood")
	}
	c.lanes(t, t, nil)
	c.out.op = opPermute
}

func permute(a, b, which uint64) uint64 {
	both := b<<32 | a
	var out uint64
	for i := range 4 {
		digit := which >> (4 * i)
		v := both >> (digit & 7 * 8) & 0xff
		if digit&8 != 0 { // its sign eight times
			v = uint64(int64(int8(v))>>7) & 0xff
		}
		out |= v << (8 * i)
	}
	return out
}

// compileActiveMask makes a mask of the lanes that are here.
func compileActiveMask(c *compiler) {
	c.typed()
	c.operands(1)
	c.out.d = c.result(c.operand(0))
	c.out.run = func(w *warp, in *instr, mask uint32) {
		var out vector
		for l := range out {
			out[l] = uint64(mask)
		}
		w.put(in.d, &out, mask)
	}
}

// compileConvertAddress turns addresses of a space into generic ones and back.
func compileConvertAddress(c *compiler) {
	to := c.has("to")
	s := c.space()
	t := c.typed()
	c.operands(2)
	if t.Bits() != 64 {
		c.fail("addresses of 32 bits are not understood")
	}
	source := c.operand(1)
	if source.Kind == ptx.Symbol && !to {
		s = spaceOf(source.Variable)
	}
	c.lanes(t, t, func(a, _, _ uint64) uint64 { return a })
	switch {
	case s == spaceShared && to:
		c.out.run = func(w *warp, in *instr, mask uint32) {
			from, out := &w.r[in.a], vector{}
			for l, a := range from {
				out[l] = a - sharedWindow
				if mask>>l&1 != 0 && (a < sharedWindow || a >= sharedWindow+mostShared+sharedBase) {
					w.find(MemoryCheck, in, l, a, "is no address of shared memory")
				}
			}
			w.put(in.d, &out, mask)
		}
		c.out.op = opRun
	case s == spaceShared:
		c.out.lane = func(a, _, _ uint64) uint64 { return a + sharedWindow }
	case s == spaceParam && !to:
		c.out.lane = func(a, _, _ uint64) uint64 { return a + paramWindow }
	}
}

func compileIsSpace(c *compiler) {
	s := c.space()
	c.operands(2)
	o := c.out
	o.p, _ = c.predicate(c.operand(0))
	o.a = c.value(c.operand(1), ptx.U64)
	o.run = func(w *warp, in *instr, mask uint32) {
		var is uint32
		for l, a := range &w.r[in.a] {
			shared := a >= sharedWindow && a < sharedWindow+mostShared
			if shared && s == spaceShared || !shared && s == spaceGlobal {
				is |= 1 << l
			}
		}
		w.setPredicate(in.p, is, mask)
	}
}

// space takes the modifier that names a space.
func (c *compiler) space() space {
	switch c.one("global", "shared", "shared::cta", "param", "const", "local") {
	case "global":
		return spaceGlobal
	case "shared", "shared::cta":
		return spaceShared
	case "param":
		return spaceParam
	case "const":
		return spaceConst
	case "local":
		c.fail(".local is not understood")
	}
	return spaceGeneric
}

func spaceOf(v *ptx.Variable) space {
	switch v.Space {
	case "shared":
		return spaceShared
	case "const":
		return spaceConst
	case "param":
		return spaceParam
	}
	return spaceGlobal
}
