package main

import "fmt"

// pairRows is how many rows a product of pairs takes at most: with two vectors of
// outputs 24 of 32 registers are sums.
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
	t.function(pairsName(m), 8)
	t.op("MOVQ", "c+0(FP)", "R15")
	t.op("MOVQ", "CallBF16_Stride(R15)", "AX")
	t.op("MOVQ", "CallBF16_Src(R15)", rowRegs[0])
	for i := 1; i < m; i++ {
		t.op("LEAQ", fmt.Sprintf("(%s)(AX*1)", rowRegs[i-1]), rowRegs[i])
	}
	t.op("MOVQ", "CallBF16_Cols(R15)", "AX")
	t.op("MOVQ", "CallBF16_Panel(R15)", panelReg)
	t.op("INCQ", "AX")
	t.op("SHRQ", "$1", "AX") // pairs
	for i := range m {       // rows are addressed from their ends
		t.op("LEAQ", fmt.Sprintf("(%s)(AX*4)", rowRegs[i]), rowRegs[i])
	}
	for i := range 2 * m {
		t.op("VXORPS", a.v(i), a.v(i), a.v(i))
	}
	t.op("NEGQ", "AX")
	t.op("JZ", "store")
	t.line("\tPCALIGN $32")
	t.label("loop")
	for line := range 2 { // as in products
		t.op("PREFETCHT0", fmt.Sprintf("%d(%s)", 4096+64*line, panelReg))
	}
	const w0, w1, x = 24, 25, 26 // broadcast pairs take turns in four registers
	t.op("VMOVUPS", at(0, panelReg), a.v(w0))
	t.op("VMOVUPS", at(64, panelReg), a.v(w1))
	for i := range m {
		t.op("VBROADCASTSS", fmt.Sprintf("(%s)(AX*4)", rowRegs[i]), a.v(x+i%4))
		t.dotPairs(2*i, x+i%4, w0)
		t.dotPairs(2*i+1, x+i%4, w1)
	}
	t.op("ADDQ", "$128", panelReg)
	t.op("INCQ", "AX")
	t.op("JNZ", "loop")
	t.label("store")
	t.op("MOVQ", "c+0(FP)", "AX")
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
