package main

import (
	"fmt"
	"math"
)

// vectors are the kernels that work element by element, on multiples of sixteen
// elements.
func vectors(a isa) string {
	t := header("Norms and activations, see vector.go.")
	g := &vectorGen{text: t, isa: a}
	g.constants()
	g.sumSquares()
	g.scaleBy()
	g.swiglu()
	g.gelu()
	g.rotate()
	g.blend()
	g.scale()
	g.widen()
	return t.String()
}

type vectorGen struct {
	*text
	isa
}

// constant is a value in all lanes.
type constant struct {
	name string
	bits uint32
}

// expConstants holds the constants of expf in package cpu, as bits of float32.
var expConstants = []constant{
	{"log2e", bits(1.44269504088896341)}, {"half", bits(0.5)}, {"ln2Hi", bits(0.693359375)}, {"ln2Lo", bits(-2.12194440e-4)},
	{"p0", bits(1.9875691500e-4)}, {"p1", bits(1.3981999507e-3)}, {"p2", bits(8.3334519073e-3)},
	{"p3", bits(4.1665795894e-2)}, {"p4", bits(1.6666665459e-1)}, {"p5", bits(5.0000001201e-1)},
	{"one", bits(1)}, {"least", bits(-87.33654)}, {"most", bits(88.72283)},
	{"inf", 0x7F800000}, {"negInf", 0xFF800000}, {"sign", 0x80000000}, {"bias", 127},
}

// kvConstants holds the further constants of the attention kernels.
var kvConstants = []constant{
	{"belowHalf", 0x7FFF}, {"quiet", 0x400000}, {"magnitude", 0x7FFFFFFF}, {"high", 0xFFFF0000},
}

func bits(v float32) uint32 { return math.Float32bits(v) }

func (g *vectorGen) constants(more ...constant) {
	g.line("")
	for _, c := range append(expConstants, more...) {
		for i := range g.lanes {
			g.line("DATA %s%s<>+%d(SB)/4, $0x%08X", c.name, g.isa.name, 4*i, c.bits)
		}
		g.line("GLOBL %s%s<>(SB), RODATA|NOPTR, $%d", c.name, g.isa.name, g.bytes())
	}
}

// c is a constant in all lanes.
func (g *vectorGen) c(name string) string { return fmt.Sprintf("%s%s<>(SB)", name, g.isa.name) }

func (g *vectorGen) wide() bool { return g.lanes == 16 }

// Predicates of comparisons.
const (
	less         = "$1"
	greater      = "$14"
	greaterEqual = "$13"
)

// mask names a mask: a mask register, or a vector register where there are none.
func (g *vectorGen) mask(k, v int) string {
	if g.wide() {
		return fmt.Sprintf("K%d", k)
	}
	return g.v(v)
}

// choose sets dst to yes where the mask is set, and to no elsewhere.
func (g *vectorGen) choose(mask, yes, no, dst string) {
	if g.wide() {
		g.op("VBLENDMPS", yes, no, mask, dst)
	} else {
		g.op("VBLENDVPS", mask, yes, no, dst)
	}
}

func (g *vectorGen) both(m, n, dst string) {
	if g.wide() {
		g.op("KANDW", m, n, dst)
	} else {
		g.op("VANDPS", m, n, dst)
	}
}

// exp replaces x by its exponential in y, with the operations of expf in package
// cpu in the same order. It spoils x and n.
func (g *vectorGen) exp(x, n, y string, least, most string) {
	g.op("VCMPPS", less, g.c("least"), x, least)
	if most != "" {
		g.op("VCMPPS", greater, g.c("most"), x, most)
	}
	g.op("VMULPS", g.c("log2e"), x, n)
	g.op("VADDPS", g.c("half"), n, n)
	if g.wide() {
		g.op("VRNDSCALEPS", "$1", n, n)
	} else {
		g.op("VROUNDPS", "$1", n, n)
	}
	g.op("VMULPS", g.c("ln2Hi"), n, y)
	g.op("VSUBPS", y, x, x)
	g.op("VMULPS", g.c("ln2Lo"), n, y)
	g.op("VSUBPS", y, x, x)
	g.op("VCVTTPS2DQ", n, n)
	g.op("VMULPS", g.c("p0"), x, y)
	for _, p := range []string{"p1", "p2", "p3", "p4"} {
		g.op("VADDPS", g.c(p), y, y)
		g.op("VMULPS", x, y, y)
	}
	g.op("VADDPS", g.c("p5"), y, y)
	// y = y·(x·x) + x + 1; the square needs a register, and y·(x·x) is not y·x·x.
	sq := g.v(g.regs - 1)
	g.op("VMULPS", x, x, sq)
	g.op("VMULPS", sq, y, y)
	g.op("VADDPS", x, y, y)
	g.op("VADDPS", g.c("one"), y, y)
	// Two powers of two, because 2 to the 128 is not a float32.
	g.op("VPSRAD", "$1", n, x)
	g.op("VPSUBD", x, n, n)
	g.op("VPADDD", g.c("bias"), n, n)
	g.op("VPADDD", g.c("bias"), x, x)
	g.op("VPSLLD", "$23", n, n)
	g.op("VPSLLD", "$23", x, x)
	g.op("VMULPS", x, y, y)
	g.op("VMULPS", n, y, y)
	g.op("VXORPS", sq, sq, sq)
	g.choose(least, sq, y, y)
	if most != "" {
		g.choose(most, g.c("inf"), y, y)
	}
}

// each runs body over n elements, sixteen at a time. Pointers are advanced.
func (g *vectorGen) each(n string, pointers []string, body func(off int)) {
	g.op("SHRQ", "$4", n)
	g.op("JZ", "done")
	g.label("loop")
	for off := 0; off < 64; off += g.bytes() {
		body(off)
	}
	for _, p := range pointers {
		g.op("ADDQ", "$64", p)
	}
	g.op("DECQ", n)
	g.op("JNZ", "loop")
	g.label("done")
}

func at(off int, reg string) string { return fmt.Sprintf("%d(%s)", off, reg) }

func (g *vectorGen) name(base string) string { return base + g.isa.name }

// func sumSquares(x *float32, n int) float32
func (g *vectorGen) sumSquares() {
	g.function(g.name("sumSquares"), 20)
	g.op("MOVQ", "x+0(FP)", "SI")
	g.op("MOVQ", "n+8(FP)", "CX")
	g.op("VXORPS", g.v(0), g.v(0), g.v(0))
	g.op("VXORPS", g.v(1), g.v(1), g.v(1))
	g.each("CX", []string{"SI"}, func(off int) {
		acc := off / g.bytes()
		g.op("VMOVUPS", at(off, "SI"), g.v(2))
		g.op("VFMADD231PS", g.v(2), g.v(2), g.v(acc))
	})
	if g.wide() {
		g.op("VEXTRACTF64X4", "$1", "Z0", "Y1")
	}
	g.op("VADDPS", "Y1", "Y0", "Y0")
	g.op("VEXTRACTF128", "$1", "Y0", "X1")
	g.op("VADDPS", "X1", "X0", "X0")
	g.op("VMOVHLPS", "X0", "X0", "X1")
	g.op("VADDPS", "X1", "X0", "X0")
	g.op("VMOVSHDUP", "X0", "X1")
	g.op("VADDSS", "X1", "X0", "X0")
	g.op("VMOVSS", "X0", "ret+16(FP)")
	g.ret()
}

// func scaleBy(dst, x, weight *float32, scale float32, n int)
func (g *vectorGen) scaleBy() {
	g.function(g.name("scaleBy"), 40)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "x+8(FP)", "SI")
	g.op("MOVQ", "weight+16(FP)", "DX")
	g.op("VBROADCASTSS", "scale+24(FP)", g.v(1))
	g.op("MOVQ", "n+32(FP)", "CX")
	g.each("CX", []string{"DI", "SI", "DX"}, func(off int) {
		g.op("VMULPS", at(off, "SI"), g.v(1), g.v(0))
		g.op("VMULPS", at(off, "DX"), g.v(0), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	})
	g.ret()
}

// func swiglu(gate, up *float32, n int)
func (g *vectorGen) swiglu() {
	g.function(g.name("swiglu"), 24)
	g.op("MOVQ", "gate+0(FP)", "DI")
	g.op("MOVQ", "up+8(FP)", "SI")
	g.op("MOVQ", "n+16(FP)", "CX")
	g.each("CX", []string{"DI", "SI"}, func(off int) {
		g.op("VMOVUPS", at(off, "DI"), g.v(0))
		g.op("VXORPS", g.c("sign"), g.v(0), g.v(1))
		g.exp(g.v(1), g.v(2), g.v(3), g.mask(1, 4), g.mask(2, 5))
		g.op("VADDPS", g.c("one"), g.v(3), g.v(3))
		g.op("VDIVPS", g.v(3), g.v(0), g.v(0))
		g.op("VMULPS", at(off, "SI"), g.v(0), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	})
	g.ret()
}

// func gelu(x *float32, linear, cubic float32, n int)
func (g *vectorGen) gelu() {
	g.function(g.name("gelu"), 24)
	g.op("MOVQ", "x+0(FP)", "DI")
	g.op("VBROADCASTSS", "linear+8(FP)", g.v(8))
	g.op("VBROADCASTSS", "cubic+12(FP)", g.v(9))
	g.op("MOVQ", "n+16(FP)", "CX")
	g.each("CX", []string{"DI"}, func(off int) {
		g.op("VMOVUPS", at(off, "DI"), g.v(0))
		g.op("VMULPS", g.v(0), g.v(0), g.v(1))
		g.op("VMULPS", g.v(9), g.v(1), g.v(1))
		g.op("VADDPS", g.v(8), g.v(1), g.v(1))
		g.op("VMULPS", g.v(0), g.v(1), g.v(1))
		g.op("VXORPS", g.c("sign"), g.v(1), g.v(1))
		g.exp(g.v(1), g.v(2), g.v(3), g.mask(1, 4), g.mask(2, 5))
		g.op("VADDPS", g.c("one"), g.v(3), g.v(3))
		g.op("VDIVPS", g.v(3), g.v(0), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	})
	g.ret()
}

// func rotate(lo, hi, cos, sin *float32, scale float32, n int)
func (g *vectorGen) rotate() {
	g.function(g.name("rotate"), 48)
	g.op("MOVQ", "lo+0(FP)", "DI")
	g.op("MOVQ", "hi+8(FP)", "SI")
	g.op("MOVQ", "cos+16(FP)", "DX")
	g.op("MOVQ", "sin+24(FP)", "BX")
	g.op("VBROADCASTSS", "scale+32(FP)", g.v(8))
	g.op("MOVQ", "n+40(FP)", "CX")
	g.each("CX", []string{"DI", "SI", "DX", "BX"}, func(off int) {
		g.op("VMOVUPS", at(off, "DI"), g.v(0))
		g.op("VMOVUPS", at(off, "SI"), g.v(1))
		g.op("VMOVUPS", at(off, "DX"), g.v(2))
		g.op("VMOVUPS", at(off, "BX"), g.v(3))
		g.op("VMULPS", g.v(2), g.v(0), g.v(4)) // lo·cos - hi·sin
		g.op("VMULPS", g.v(3), g.v(1), g.v(5))
		g.op("VSUBPS", g.v(5), g.v(4), g.v(4))
		g.op("VMULPS", g.v(8), g.v(4), g.v(4))
		g.op("VMULPS", g.v(2), g.v(1), g.v(6)) // hi·cos + lo·sin
		g.op("VMULPS", g.v(3), g.v(0), g.v(7))
		g.op("VADDPS", g.v(7), g.v(6), g.v(6))
		g.op("VMULPS", g.v(8), g.v(6), g.v(6))
		g.op("VMOVUPS", g.v(4), at(off, "DI"))
		g.op("VMOVUPS", g.v(6), at(off, "SI"))
	})
	g.ret()
}

// func blend(sum, part *float32, keep, take float32, n int)
func (g *vectorGen) blend() {
	g.function(g.name("blend"), 32)
	g.op("MOVQ", "sum+0(FP)", "DI")
	g.op("MOVQ", "part+8(FP)", "SI")
	g.op("VBROADCASTSS", "keep+16(FP)", g.v(2))
	g.op("VBROADCASTSS", "take+20(FP)", g.v(3))
	g.op("MOVQ", "n+24(FP)", "CX")
	g.each("CX", []string{"DI", "SI"}, func(off int) {
		g.op("VMULPS", at(off, "DI"), g.v(2), g.v(0))
		g.op("VMULPS", at(off, "SI"), g.v(3), g.v(1))
		g.op("VADDPS", g.v(1), g.v(0), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	})
	g.ret()
}

// func widenBF16(dst *float32, src *uint16, n int)
func (g *vectorGen) widen() {
	g.function(g.name("widenBF16"), 24)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "src+8(FP)", "SI")
	g.op("MOVQ", "n+16(FP)", "CX")
	g.op("SHRQ", "$4", "CX")
	g.op("JZ", "done")
	g.label("loop")
	for off := 0; off < 64; off += g.bytes() {
		g.op("VPMOVZXWD", at(off/2, "SI"), g.v(0))
		g.op("VPSLLD", "$16", g.v(0), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	}
	g.op("ADDQ", "$32", "SI")
	g.op("ADDQ", "$64", "DI")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.label("done")
	g.ret()
}

// func scale(dst, x *float32, factor float32, n int)
func (g *vectorGen) scale() {
	g.function(g.name("scale"), 32)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "x+8(FP)", "SI")
	g.op("VBROADCASTSS", "factor+16(FP)", g.v(1))
	g.op("MOVQ", "n+24(FP)", "CX")
	g.each("CX", []string{"DI", "SI"}, func(off int) {
		g.op("VMULPS", at(off, "SI"), g.v(1), g.v(0))
		g.op("VMOVUPS", g.v(0), at(off, "DI"))
	})
	g.ret()
}
