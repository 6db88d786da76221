package main

import "fmt"

// pairRows limits the rows of a product of pairs: with two vectors of outputs, 24 of 32
// registers are sums.
const pairRows = 12

func pairsName(m int) string { return fmt.Sprintf("pairsBF16x%dAVX512", m) }

// pairProducts are the products of rows of bf16 with a panel of bf16 by VDPBF16PS. Sums are
// as those of products: one for each output, over k from first to last.
func pairProducts() string {
	t := header("Products of rows of bf16 with panels of bf16, see bf16.go.")
	for m := 1; m <= pairRows; m++ {
		pairsOf(t, m)
	}
	roundBF16(t)
	return t.String()
}

func pairsOf(t *text, m int) {
	a := avx512
	const call, first, seventh, pairs, ahead, pace = "AX", "SI", "DI", "CX", "R13", "R14"
	strides := []string{"", "(R8*1)", "(R8*2)", "(R9*1)", "(R8*4)", "(R10*1)"} // to the sixth row
	t.function(pairsName(m), 8)
	t.op("MOVQ", "c+0(FP)", call)
	t.op("MOVQ", "CallBF16_Src(AX)", first)
	t.op("MOVQ", "CallBF16_Stride(AX)", "R8")
	t.op("LEAQ", "(R8)(R8*2)", "R9")
	t.op("LEAQ", "(R8)(R8*4)", "R10")
	t.op("LEAQ", "(SI)(R9*2)", seventh)
	t.op("MOVQ", "CallBF16_Panel(AX)", panelReg)
	t.op("MOVQ", "CallBF16_Ahead(AX)", ahead)
	t.op("MOVQ", "CallBF16_Pace(AX)", pace)
	t.op("MOVQ", "CallBF16_Cols(AX)", pairs)
	for i := range 2 * m {
		t.op("VXORPS", a.v(i), a.v(i), a.v(i))
	}
	t.op("INCQ", pairs)
	t.op("SHRQ", "$1", pairs)
	t.op("JZ", "store")
	t.line("\tPCALIGN $32")
	t.label("loop")
	for line := range 2 {
		t.op("PREFETCHT1", at(64*line, ahead))
	}
	t.op("ADDQ", pace, ahead)
	const w0, w1, x = 24, 25, 26 // broadcast pairs take turns in four registers
	t.op("VMOVUPS", at(0, panelReg), a.v(w0))
	t.op("VMOVUPS", at(64, panelReg), a.v(w1))
	for i := range m {
		base := first
		if i >= len(strides) {
			base = seventh
		}
		t.op("VBROADCASTSS", "("+base+")"+strides[i%len(strides)], a.v(x+i%4))
		t.dotPairs(2*i, x+i%4, w0)
		t.dotPairs(2*i+1, x+i%4, w1)
	}
	t.op("ADDQ", "$4", first)
	if m > len(strides) {
		t.op("ADDQ", "$4", seventh)
	}
	t.op("ADDQ", "$128", panelReg)
	t.op("DECQ", pairs)
	t.op("JNZ", "loop")
	t.label("store")
	t.op("MOVQ", "CallBF16_Dst(AX)", "AX")
	for i := range m {
		t.op("MOVQ", at(8*i, "AX"), "BX")
		t.op("VMOVUPS", a.v(2*i), "(BX)")
		t.op("VMOVUPS", a.v(2*i+1), "64(BX)")
	}
	t.ret()
}

// func roundBF16AVX512(dst *uint16, src *float32, n int)
func roundBF16(t *text) {
	t.function("roundBF16AVX512", 24)
	t.op("MOVQ", "dst+0(FP)", "DI")
	t.op("MOVQ", "src+8(FP)", "SI")
	t.op("MOVQ", "n+16(FP)", "CX")
	t.op("SHRQ", "$4", "CX")
	t.op("JZ", "done")
	for reg, v := range []string{"$1", "$0x7FFF", "$0x400000"} {
		t.op("MOVL", v, "AX")
		t.op("VPBROADCASTD", "AX", fmt.Sprintf("Z%d", 4+reg))
	}
	t.label("loop")
	t.op("VMOVUPS", "(SI)", "Z0")
	t.op("VCMPPS", "$3", "Z0", "Z0", "K1") // unordered
	t.op("VPSRLD", "$16", "Z0", "Z1")      // to nearest, ties to the even one
	t.op("VPANDD", "Z4", "Z1", "Z1")
	t.op("VPADDD", "Z5", "Z1", "Z1")
	t.op("VPADDD", "Z0", "Z1", "Z1")
	t.op("VPORD", "Z6", "Z0", "K1", "Z1") // a NaN stays one
	t.op("VPSRLD", "$16", "Z1", "Z1")
	t.op("VPMOVDW", "Z1", "(DI)")
	t.op("ADDQ", "$64", "SI")
	t.op("ADDQ", "$32", "DI")
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.label("done")
	t.ret()
}
