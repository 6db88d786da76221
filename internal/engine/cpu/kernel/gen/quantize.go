package main

import "fmt"

// quantize brings activations into blocks, see block.go. Its few instructions are
// those of AVX2 at all levels: it reads each value once, and products take most of the
// time.
//
// func quantizeAVX2(dst *Block, x *float32, n int)
func quantize(t *text) {
	g := &vectorGen{text: t, isa: avx2}
	for _, c := range []struct {
		name string
		bits [8]uint32
	}{
		{"abs", same(0x7FFFFFFF)}, {"most127", same(bits(127))},
		{"below", same(bits(0x1p-100) - 1)}, {"infinity", same(0x7F800000)},
		{"unpack", [8]uint32{0, 4, 1, 5, 2, 6, 3, 7}},
	} {
		for i, b := range c.bits {
			g.line("DATA %s%s<>+%d(SB)/4, $0x%08X", c.name, g.isa.name, 4*i, b)
		}
		g.line("GLOBL %s%s<>(SB), RODATA|NOPTR, $32", c.name, g.isa.name)
	}
	g.function("quantizeAVX2", 24)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "x+8(FP)", "SI")
	g.op("MOVQ", "n+16(FP)", "CX")
	g.label("loop")
	// The largest absolute value, as bits.
	for i := range 4 {
		g.op("VMOVUPS", at(32*i, "SI"), g.v(i))
		g.op("VPAND", g.c("abs"), g.v(i), g.v(4+i))
	}
	g.op("VPMAXUD", "Y5", "Y4", "Y4")
	g.op("VPMAXUD", "Y7", "Y6", "Y6")
	g.op("VPMAXUD", "Y6", "Y4", "Y4")
	g.op("VEXTRACTI128", "$1", "Y4", "X5")
	g.op("VPMAXUD", "X5", "X4", "X4")
	for _, order := range []string{"$0x4E", "$0xB1"} {
		g.op("VPSHUFD", order, "X4", "X5")
		g.op("VPMAXUD", "X5", "X4", "X4")
	}
	g.op("VPBROADCASTD", "X4", "Y4")
	// Values, where that is a number whose inverse is one.
	g.op("VMOVUPS", g.c("most127"), "Y5")
	g.op("VDIVPS", "Y4", "Y5", "Y6")
	g.op("VDIVPS", "Y5", "Y4", "Y5")
	g.op("VMOVDQU", g.c("infinity"), "Y7")
	g.op("VPCMPGTD", "Y4", "Y7", "Y7")
	g.op("VPCMPGTD", g.c("below"), "Y4", "Y4")
	g.op("VPAND", "Y4", "Y7", "Y7")
	for i := range 4 {
		g.op("VMULPS", "Y6", g.v(i), g.v(i))
		g.op("VCVTPS2DQ", g.v(i), g.v(i))
		g.op("VPAND", "Y7", g.v(i), g.v(i))
	}
	// The sums of both halves.
	g.op("VPADDD", "Y1", "Y0", "Y8")
	g.op("VPADDD", "Y3", "Y2", "Y9")
	g.op("VPHADDD", "Y9", "Y8", "Y8")
	g.op("VPHADDD", "Y8", "Y8", "Y8")
	g.op("VEXTRACTI128", "$1", "Y8", "X9")
	g.op("VPADDD", "X9", "X8", "X8")
	g.op("VPXOR", "X9", "X9", "X9")
	g.op("VPSHUFD", "$0xB1", "X8", "X10")
	g.op("VPADDD", "X8", "X10", "X10") // of all
	g.op("VCVTDQ2PS", "X10", "X11")
	g.op("VMULSS", "X5", "X11", "X11")
	g.op("VPSUBD", "X8", "X9", "X8")
	g.op("VPSUBD", "X10", "X9", "X10")
	g.op("VPSLLD", "$5", "X8", "X8")
	g.op("VPSLLD", "$7", "X10", "X12")
	g.op("VPSLLD", "$3", "X10", "X10")
	g.op("VMOVSS", "X5", "Block_Scale(DI)")
	g.op("VMOVSS", "X11", "Block_Sum(DI)")
	g.op("VMOVD", "X12", "Block_Minus128(DI)")
	g.op("VMOVD", "X10", "Block_Minus8(DI)")
	g.op("VMOVQ", "X8", "Block_Minus32(DI)")
	g.op("VPACKSSDW", "Y1", "Y0", "Y0")
	g.op("VPACKSSDW", "Y3", "Y2", "Y2")
	g.op("VPACKSSWB", "Y2", "Y0", "Y0")
	g.op("VMOVDQU", g.c("unpack"), "Y1")
	g.op("VPERMD", "Y0", "Y1", "Y0")
	g.op("VMOVDQU", "Y0", "Block_Values(DI)")
	g.op("ADDQ", "$128", "SI")
	g.op("ADDQ", fmt.Sprintf("$%d", blockBytes), "DI")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.ret()
}

// same is a constant in all lanes.
func same(bits uint32) (out [8]uint32) {
	for i := range out {
		out[i] = bits
	}
	return out
}
