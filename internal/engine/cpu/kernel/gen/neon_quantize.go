package main

import (
	"fmt"
	"math"
)

// quantize brings activations into blocks, see block.go.
//
// func quantizeNEON(dst *Block, x *float32, n int)
func (g neon) quantize() {
	const dst, src, n = "R0", "R1", "R2"
	const most, leastAmax, inf = 29, 30, 31 // constants
	const top, inv, scale, ok, t = 16, 17, 18, 19, 20
	g.function("quantizeNEON", 24)
	g.arg("dst+0(FP)", dst)
	g.arg("x+8(FP)", src)
	g.arg("n+16(FP)", n)
	for _, c := range []struct {
		v    int
		bits uint32
	}{{most, bits(127)}, {leastAmax, bits(0x1p-100)}, {inf, bits(float32(math.Inf(1)))}} {
		g.op("MOVD", fmt.Sprintf("$0x%08X", c.bits), "R3")
		g.op("VDUP", "R3", s4(c.v))
	}
	g.label("loop")
	// The largest absolute value, as bits.
	for v := range 8 {
		g.load(v*neonBytes, src, v)
		g.word("fabs", 8+v, v)
	}
	for half := 4; half > 0; half /= 2 {
		for v := range half {
			g.op("VUMAX", s4(8+v+half), s4(8+v), s4(8+v))
		}
	}
	for _, by := range []int{8, 4} {
		g.op("VEXT", fmt.Sprintf("$%d", by), b16(8), b16(8), b16(9))
		g.op("VUMAX", s4(9), s4(8), s4(8))
	}
	g.op("VMOV", b16(8), b16(top))
	// Values, where that is a number whose inverse is one.
	g.word("fdiv", inv, most, top)
	g.word("fdiv", scale, top, most)
	g.word("fcmge", ok, top, leastAmax)
	g.word("fcmgt", t, inf, top)
	g.op("VAND", b16(t), b16(ok), b16(ok))
	for v := range 8 {
		g.word("fmul", v, v, inv)
		g.word("fcvtns", v, v)
		g.op("VAND", b16(ok), b16(v), b16(v))
	}
	// The sums of both halves, minus those times 32, and so on.
	for half := range 2 {
		g.op("VADD", s4(4*half), s4(4*half+1), s4(8+half))
		g.op("VADD", s4(4*half+2), s4(4*half+3), s4(10+half))
		g.op("VADD", s4(8+half), s4(10+half), s4(8+half))
	}
	g.op("VADDP", s4(9), s4(8), s4(8))
	g.op("VADDP", s4(8), s4(8), s4(8))
	g.op("VADDP", s4(8), s4(8), s4(9)) // of all
	g.word("scvtf", 10, 9)
	g.word("fmul", 10, 10, scale)
	g.word("neg", 8, 8)
	g.word("neg", 9, 9)
	g.op("VSHL", "$5", s4(8), s4(8))
	g.op("VSHL", "$7", s4(9), s4(11))
	g.op("VSHL", "$3", s4(9), s4(12))
	g.op("FMOVS", f(scale), "Block_Scale("+dst+")")
	g.op("FMOVS", f(10), "Block_Sum("+dst+")")
	g.op("FMOVS", f(11), "Block_Minus128("+dst+")")
	g.op("FMOVS", f(12), "Block_Minus8("+dst+")")
	g.op("FMOVD", f(8), "Block_Minus32("+dst+")")
	// The lowest byte of each.
	for v := 0; v < 8; v += 2 {
		g.op("VUZP1", h8(v+1), h8(v), h8(v))
	}
	for v := 0; v < 8; v += 4 {
		g.op("VUZP1", b16(v+2), b16(v), b16(v))
		g.op("FMOVQ", f(v), fmt.Sprintf("(Block_Values+%d)(%s)", 4*v, dst))
	}
	g.op("ADD", "$128", src)
	g.op("ADD", fmt.Sprintf("$%d", blockBytes), dst)
	g.op("SUB", "$1", n)
	g.op("CBNZ", n, "loop")
	g.ret()
}
