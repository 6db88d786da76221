package main

import (
	"fmt"
	"slices"
)

// neonVectors are the kernels that work element by element, on multiples of sixteen
// elements.
func neonVectors() string {
	g := neon{header("Norms and activations, see vector.go.")}
	g.constants()
	g.sumSquares()
	g.scaleBy()
	g.swiglu()
	g.gelu()
	g.rotate()
	g.blend()
	g.scale()
	g.widen()
	return g.String()
}

// neonConstants names the expConstants that kernels keep in the last registers.
var neonConstants = []string{
	"log2e", "half", "ln2Hi", "ln2Lo", "p0", "p1", "p2", "p3", "p4", "p5", "one", "least", "most", "inf", "bias",
}

// c is the register of a constant, once loadConstants has run.
func (g neon) c(name string) int {
	return neonRegs - len(neonConstants) + slices.Index(neonConstants, name)
}

func (g neon) constants() {
	g.line("")
	for i, name := range neonConstants {
		for _, c := range expConstants {
			if c.name == name {
				g.line("DATA constantsNEON<>+%d(SB)/4, $0x%08X // %s", 4*i, c.bits, name)
			}
		}
	}
	g.line("GLOBL constantsNEON<>(SB), RODATA|NOPTR, $%d", 4*len(neonConstants))
}

func (g neon) loadConstants(reg string) {
	g.op("MOVD", "$constantsNEON<>(SB)", reg)
	for _, name := range neonConstants {
		g.op("VLD1R.P", at(4, reg), fmt.Sprintf("[%s]", s4(g.c(name))))
	}
}

// exp replaces x by its exponential in y, with the operations of expf in package
// cpu in the same order. Large values are left out unless there is a register high
// for their mask. It spoils x, n, square, low and high.
func (g neon) exp(x, n, y, square, low, high int) {
	g.word("fcmgt", low, g.c("least"), x)
	if high >= 0 {
		g.word("fcmgt", high, x, g.c("most"))
	}
	g.word("fmul", n, x, g.c("log2e"))
	g.word("fadd", n, n, g.c("half"))
	g.word("frintm", n, n)
	g.word("fmul", y, n, g.c("ln2Hi"))
	g.word("fsub", x, x, y)
	g.word("fmul", y, n, g.c("ln2Lo"))
	g.word("fsub", x, x, y)
	g.word("fcvtzs", n, n)
	g.word("fmul", y, x, g.c("p0"))
	for _, p := range []string{"p1", "p2", "p3", "p4"} {
		g.word("fadd", y, y, g.c(p))
		g.word("fmul", y, y, x)
	}
	g.word("fadd", y, y, g.c("p5"))
	g.word("fmul", square, x, x) // y·(x·x) is not y·x·x
	g.word("fmul", y, y, square)
	g.word("fadd", y, y, x)
	g.word("fadd", y, y, g.c("one"))
	// Two powers of two, because 2 to the 128 is not a float32.
	g.word("sshr", x, n, 1)
	g.op("VSUB", s4(x), s4(n), s4(n))
	for _, power := range []int{x, n} {
		g.op("VADD", s4(g.c("bias")), s4(power), s4(power))
		g.op("VSHL", "$23", s4(power), s4(power))
		g.word("fmul", y, y, power)
	}
	g.word("bic", y, y, low)
	if high >= 0 {
		g.op("VBIT", b16(high), b16(g.c("inf")), b16(y))
	}
}

// each runs body over n elements, sixteen at a time, for the offsets of the vectors
// among them. Pointers are advanced.
func (g neon) each(n string, pointers []string, body func(off int)) {
	g.op("LSR", "$4", n)
	g.op("CBZ", n, "done")
	g.label("loop")
	for off := 0; off < 64; off += neonBytes {
		body(off)
	}
	for _, p := range pointers {
		g.op("ADD", "$64", p)
	}
	g.op("SUB", "$1", n)
	g.op("CBNZ", n, "loop")
	g.label("done")
}

// func sumSquares(x *float32, n int) float32
func (g neon) sumSquares() {
	g.function("sumSquaresNEON", 20)
	g.arg("x+0(FP)", "R0")
	g.arg("n+8(FP)", "R1")
	for v := range 4 {
		g.zero(v)
	}
	g.each("R1", []string{"R0"}, func(off int) {
		v := off / neonBytes
		g.load(off, "R0", 4+v)
		g.op("VFMLA", s4(4+v), s4(4+v), s4(v))
	})
	g.addSixteen()
	g.op("FMOVS", "F0", "ret+16(FP)")
	g.ret()
}

// func scaleBy(dst, x, weight *float32, scale float32, n int)
func (g neon) scaleBy() {
	g.function("scaleByNEON", 40)
	g.arg("dst+0(FP)", "R0")
	g.arg("x+8(FP)", "R1")
	g.arg("weight+16(FP)", "R2")
	g.splat("scale+24(FP)", 2)
	g.arg("n+32(FP)", "R3")
	g.each("R3", []string{"R0", "R1", "R2"}, func(off int) {
		g.load(off, "R1", 0)
		g.load(off, "R2", 1)
		g.word("fmul", 0, 0, 2)
		g.word("fmul", 0, 0, 1)
		g.store(0, off, "R0")
	})
	g.ret()
}

// func swiglu(gate, up *float32, n int)
func (g neon) swiglu() {
	g.function("swigluNEON", 24)
	g.arg("gate+0(FP)", "R0")
	g.arg("up+8(FP)", "R1")
	g.arg("n+16(FP)", "R2")
	g.loadConstants("R3")
	gate, up, x, y := 0, 1, 2, 4
	g.each("R2", []string{"R0", "R1"}, func(off int) {
		g.load(off, "R0", gate)
		g.load(off, "R1", up)
		g.word("fneg", x, gate)
		g.exp(x, 3, y, 5, 6, 7)
		g.word("fadd", y, y, g.c("one"))
		g.word("fdiv", gate, gate, y)
		g.word("fmul", gate, gate, up)
		g.store(gate, off, "R0")
	})
	g.ret()
}

// func gelu(x *float32, linear, cubic float32, n int)
func (g neon) gelu() {
	g.function("geluNEON", 24)
	g.arg("x+0(FP)", "R0")
	g.splat("linear+8(FP)", 8)
	g.splat("cubic+12(FP)", 9)
	g.arg("n+16(FP)", "R1")
	g.loadConstants("R2")
	v, x, y := 0, 2, 4
	g.each("R1", []string{"R0"}, func(off int) {
		g.load(off, "R0", v)
		g.word("fmul", x, v, v)
		g.word("fmul", x, x, 9)
		g.word("fadd", x, x, 8)
		g.word("fmul", x, v, x)
		g.word("fneg", x, x)
		g.exp(x, 3, y, 5, 6, 7)
		g.word("fadd", y, y, g.c("one"))
		g.word("fdiv", v, v, y)
		g.store(v, off, "R0")
	})
	g.ret()
}

// func rotate(lo, hi, cos, sin *float32, scale float32, n int)
func (g neon) rotate() {
	g.function("rotateNEON", 48)
	g.arg("lo+0(FP)", "R0")
	g.arg("hi+8(FP)", "R1")
	g.arg("cos+16(FP)", "R2")
	g.arg("sin+24(FP)", "R3")
	g.splat("scale+32(FP)", 8)
	g.arg("n+40(FP)", "R4")
	lo, hi, cos, sin, scale := 0, 1, 2, 3, 8
	g.each("R4", []string{"R0", "R1", "R2", "R3"}, func(off int) {
		for v, reg := range []string{"R0", "R1", "R2", "R3"} {
			g.load(off, reg, v)
		}
		g.word("fmul", 4, lo, cos) // lo·cos - hi·sin
		g.word("fmul", 5, hi, sin)
		g.word("fsub", 4, 4, 5)
		g.word("fmul", 4, 4, scale)
		g.word("fmul", 6, hi, cos) // hi·cos + lo·sin
		g.word("fmul", 7, lo, sin)
		g.word("fadd", 6, 6, 7)
		g.word("fmul", 6, 6, scale)
		g.store(4, off, "R0")
		g.store(6, off, "R1")
	})
	g.ret()
}

// func blend(sum, part *float32, keep, take float32, n int)
func (g neon) blend() {
	g.function("blendNEON", 32)
	g.arg("sum+0(FP)", "R0")
	g.arg("part+8(FP)", "R1")
	g.splat("keep+16(FP)", 2)
	g.splat("take+20(FP)", 3)
	g.arg("n+24(FP)", "R2")
	g.each("R2", []string{"R0", "R1"}, func(off int) {
		g.load(off, "R0", 0)
		g.load(off, "R1", 1)
		g.word("fmul", 0, 0, 2)
		g.word("fmul", 1, 1, 3)
		g.word("fadd", 0, 0, 1)
		g.store(0, off, "R0")
	})
	g.ret()
}

// func scale(dst, x *float32, factor float32, n int)
func (g neon) scale() {
	g.function("scaleNEON", 32)
	g.arg("dst+0(FP)", "R0")
	g.arg("x+8(FP)", "R1")
	g.splat("factor+16(FP)", 1)
	g.arg("n+24(FP)", "R2")
	g.each("R2", []string{"R0", "R1"}, func(off int) {
		g.load(off, "R1", 0)
		g.word("fmul", 0, 0, 1)
		g.store(0, off, "R0")
	})
	g.ret()
}

// func widenBF16(dst *float32, src *uint16, n int)
func (g neon) widen() {
	g.function("widenBF16NEON", 24)
	g.arg("dst+0(FP)", "R0")
	g.arg("src+8(FP)", "R1")
	g.arg("n+16(FP)", "R2")
	g.zero(3)
	g.each("R2", []string{"R0"}, func(off int) {
		if off%32 != 0 { // eight at a time
			return
		}
		g.op("FMOVQ.P", at(16, "R1"), f(0))
		g.op("VZIP1", h8(0), h8(3), h8(1)) // zero below each
		g.op("VZIP2", h8(0), h8(3), h8(2))
		g.storePair(1, off, "R0")
	})
	g.ret()
}
