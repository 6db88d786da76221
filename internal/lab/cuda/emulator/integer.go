package emulator

import (
	"math/bits"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// arithmetic is the operation of opInteger and opFloat32.
type arithmetic uint8

const (
	doAdd arithmetic = iota
	doSub
	doMultiply
	doMultiplyAdd
	doWide // twice the bits
	doWideAdd
	doHigh // the upper half of that
	doHighAdd
	doMin
	doMax
	doDivide
	doRemainder
	doAnd
	doOr
	doXor
	doNot
	doNegate
	doAbs
	doShiftLeft
	doShiftRight
)

// integers makes the instruction arithmetic of whole numbers, whose result has the type
// result.
func (c *compiler) integers(do arithmetic, t, result ptx.Type) {
	o := c.out
	o.op, o.compare, o.count = opInteger, comparison(do), int(t)
	o.mask = ones(min(result.Bits(), 64))
	o.d = c.result(c.operand(0))
	if w := c.width(c.operand(0)); c.operand(0).Kind == ptx.InRegister && w < result.Bits() {
		c.fail("the result has %d bits, and its register %d", result.Bits(), w)
	}
	for i, to := range []*int32{&o.a, &o.b, &o.c}[:min(3, max(0, len(c.at.Operands)-1))] {
		of := t
		if i == 1 && (do == doShiftLeft || do == doShiftRight) {
			of = ptx.U32
		}
		if i == 2 && result.Bits() > t.Bits() {
			of = result
		}
		*to = c.value(c.operand(i+1), of)
	}
}

// wider has twice the bits.
func (c *compiler) wider(t ptx.Type) ptx.Type {
	switch t {
	case ptx.U16:
		return ptx.U32
	case ptx.S16:
		return ptx.S32
	case ptx.U32:
		return ptx.U64
	case ptx.S32:
		return ptx.S64
	}
	c.fail(".wide of .%s", t)
	return ptx.U64
}

func compileAdd(c *compiler) {
	t := c.typedRounded()
	if t.Kind() == ptx.Float {
		compileFloatAdd(c, t)
		return
	}
	c.operands(3)
	do := doAdd
	if c.at.Opcode == "sub" {
		do = doSub
	}
	c.integers(do, t, t)
}

func compileMultiply(c *compiler) {
	how := c.one("lo", "hi", "wide")
	t := c.typedRounded()
	if t.Kind() == ptx.Float {
		compileFloatMultiply(c, t)
		return
	}
	do, result := doMultiply, t
	switch how {
	case "hi":
		do = doHigh
	case "wide":
		do, result = doWide, c.wider(t)
	case "":
		c.fail("none of .lo, .hi and .wide")
	}
	if c.at.Opcode == "mad" {
		do++ // the one that adds
		c.operands(4)
	} else {
		c.operands(3)
	}
	c.integers(do, t, result)
}

func compileDivide(c *compiler) {
	if c.at.Opcode == "div" {
		if how := c.one("approx", "full"); how != "" {
			compileFloatDivide(c, c.typedRounded())
			return
		}
	}
	t := c.typedRounded()
	if t.Kind() == ptx.Float {
		compileFloatDivide(c, t)
		return
	}
	c.operands(3)
	do := doDivide
	if c.at.Opcode == "rem" {
		do = doRemainder
	}
	c.integers(do, t, t)
}

func compileExtreme(c *compiler) {
	nan := c.has("NaN")
	t := c.typedRounded()
	c.operands(3)
	least := c.at.Opcode == "min"
	switch {
	case t.Kind() == ptx.Float:
		compileFloatExtreme(c, t, least, nan)
	case least:
		c.integers(doMin, t, t)
	default:
		c.integers(doMax, t, t)
	}
}

func compileSign(c *compiler) {
	t := c.typedRounded()
	c.operands(2)
	abs := c.at.Opcode == "abs"
	switch {
	case t.Kind() == ptx.Float:
		compileFloatSign(c, t, abs)
	case abs:
		c.integers(doAbs, t, t)
	default:
		c.integers(doNegate, t, t)
	}
}

func compileLogic(c *compiler) {
	t := c.typed()
	do := map[string]arithmetic{"and": doAnd, "or": doOr, "xor": doXor, "not": doNot}[c.at.Opcode]
	if do == doNot {
		c.operands(2)
	} else {
		c.operands(3)
	}
	if t != ptx.Pred {
		c.integers(do, t, t)
		return
	}
	o := c.out
	o.p, _ = c.predicate(c.operand(0))
	a, notA := c.predicate(c.operand(1))
	b, notB := a, notA
	if do != doNot {
		b, notB = c.predicate(c.operand(2))
	}
	o.run = func(w *warp, in *instr, mask uint32) {
		x, y := w.predicate(a, notA), w.predicate(b, notB)
		switch do {
		case doAnd:
			x &= y
		case doOr:
			x |= y
		case doXor:
			x ^= y
		default:
			x = ^x
		}
		w.setPredicate(in.p, x, mask)
	}
}

func compileShift(c *compiler) {
	t := c.typed()
	c.operands(3)
	if c.at.Opcode == "shl" {
		c.integers(doShiftLeft, t, t)
	} else {
		c.integers(doShiftRight, t, t)
	}
}

// integer computes for all lanes, also those that do not take part.
func integer[T int16 | uint16 | int32 | uint32 | int64 | uint64](in *instr, d, a, b, c *vector) {
	mask := in.mask
	switch arithmetic(in.compare) {
	case doAdd:
		for i := range d {
			d[i] = uint64(T(a[i])+T(b[i])) & mask
		}
	case doSub:
		for i := range d {
			d[i] = uint64(T(a[i])-T(b[i])) & mask
		}
	case doMultiply:
		for i := range d {
			d[i] = uint64(T(a[i])*T(b[i])) & mask
		}
	case doMultiplyAdd:
		for i := range d {
			d[i] = uint64(T(a[i])*T(b[i])+T(c[i])) & mask
		}
	case doWide: // at most 32 bits, or this would not be there
		for i := range d {
			d[i] = uint64(int64(T(a[i]))*int64(T(b[i]))) & mask
		}
	case doWideAdd:
		for i := range d {
			d[i] = (uint64(int64(T(a[i]))*int64(T(b[i]))) + c[i]) & mask
		}
	case doHigh:
		for i := range d {
			d[i] = high(T(a[i]), T(b[i])) & mask
		}
	case doHighAdd:
		for i := range d {
			d[i] = (high(T(a[i]), T(b[i])) + c[i]) & mask
		}
	case doMin:
		for i := range d {
			d[i] = uint64(min(T(a[i]), T(b[i]))) & mask
		}
	case doMax:
		for i := range d {
			d[i] = uint64(max(T(a[i]), T(b[i]))) & mask
		}
	case doDivide:
		for i := range d {
			if T(b[i]) == 0 {
				d[i] = mask // not specified
			} else {
				d[i] = uint64(T(a[i])/T(b[i])) & mask
			}
		}
	case doRemainder:
		for i := range d {
			if T(b[i]) == 0 {
				d[i] = mask
			} else {
				d[i] = uint64(T(a[i])%T(b[i])) & mask
			}
		}
	case doAnd:
		for i := range d {
			d[i] = a[i] & b[i] & mask
		}
	case doOr:
		for i := range d {
			d[i] = (a[i] | b[i]) & mask
		}
	case doXor:
		for i := range d {
			d[i] = (a[i] ^ b[i]) & mask
		}
	case doNot:
		for i := range d {
			d[i] = ^a[i] & mask
		}
	case doNegate:
		for i := range d {
			d[i] = uint64(-T(a[i])) & mask
		}
	case doAbs:
		for i := range d {
			d[i] = uint64(max(T(a[i]), -T(a[i]))) & mask
		}
	case doShiftLeft: // by more than there is: zero
		for i := range d {
			d[i] = uint64(T(a[i])<<uint32(b[i])) & mask
		}
	case doShiftRight:
		for i := range d {
			d[i] = uint64(T(a[i])>>uint32(b[i])) & mask
		}
	}
}

// high is the upper half of a product.
func high[T int16 | uint16 | int32 | uint32 | int64 | uint64](a, b T) uint64 {
	switch any(a).(type) {
	case int16, uint16:
		return uint64(int64(a)*int64(b)) >> 16
	case int32:
		return uint64(int64(a) * int64(b) >> 32)
	case uint32:
		return uint64(a) * uint64(b) >> 32
	}
	h, _ := bits.Mul64(uint64(a), uint64(b))
	if T(0)-1 < 0 { // signed: take away what the signs added
		if a < 0 {
			h -= uint64(b)
		}
		if b < 0 {
			h -= uint64(a)
		}
	}
	return h
}

// integers of an instruction, by its type.
func runInteger(in *instr, d, a, b, c *vector) {
	switch ptx.Type(in.count) {
	case ptx.S32:
		integer[int32](in, d, a, b, c)
	case ptx.U32, ptx.B32:
		integer[uint32](in, d, a, b, c)
	case ptx.S64:
		integer[int64](in, d, a, b, c)
	case ptx.U64, ptx.B64:
		integer[uint64](in, d, a, b, c)
	case ptx.S16:
		integer[int16](in, d, a, b, c)
	default:
		integer[uint16](in, d, a, b, c)
	}
}
