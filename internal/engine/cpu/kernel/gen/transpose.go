package main

import "fmt"

// transposes brings 32-bit words of sixteen rows into the order of panels.
func transposes() string {
	t := header("Transposes sixteen rows of words for panels of weights, see pack.go.")
	transpose(t)
	return t.String()
}

// transpose writes blocks of sixteen rows and columns: sixteen lines of a panel, of
// which it fills half each. Stores go past the caches: nobody reads a panel before all
// are packed. Every load and every store is a whole line when rows are aligned.
//
// func transposeAVX512(dst, src *uint32, stride, blocks int)
func transpose(t *text) {
	z := avx512.v
	t.function("transposeAVX512", 32)
	t.op("MOVQ", "dst+0(FP)", "DI")
	t.op("MOVQ", "src+8(FP)", "SI")
	t.op("MOVQ", "stride+16(FP)", "DX") // bytes from row to row
	t.op("MOVQ", "blocks+24(FP)", "CX")
	t.op("LEAQ", "(DX)(DX*2)", "R8")
	t.label("loop")
	for group := range 4 { // of four rows
		at := "AX"
		if group == 0 {
			t.op("MOVQ", "SI", at)
		} else {
			t.op("LEAQ", fmt.Sprintf("(%s)(DX*4)", at), at)
		}
		for row, addr := range []string{"(AX)", "(AX)(DX*1)", "(AX)(DX*2)", "(AX)(R8*1)"} {
			t.op("VMOVDQU32", addr, z(4*group+row))
		}
	}
	for group := 0; group < 16; group += 4 {
		low0, high0, low1, high1 := z(16), z(17), z(18), z(19)
		t.op("VPUNPCKLDQ", z(group+1), z(group), low0)
		t.op("VPUNPCKHDQ", z(group+1), z(group), high0)
		t.op("VPUNPCKLDQ", z(group+3), z(group+2), low1)
		t.op("VPUNPCKHDQ", z(group+3), z(group+2), high1)
		// Register group+c has column 4·lane+c of four rows in each lane.
		t.op("VPUNPCKLQDQ", low1, low0, z(group))
		t.op("VPUNPCKHQDQ", low1, low0, z(group+1))
		t.op("VPUNPCKLQDQ", high1, high0, z(group+2))
		t.op("VPUNPCKHQDQ", high1, high0, z(group+3))
	}
	for c := range 4 {
		a, b, d, e := z(16), z(17), z(18), z(19)
		t.op("VSHUFI32X4", "$0x88", z(4+c), z(c), a) // even lanes
		t.op("VSHUFI32X4", "$0xDD", z(4+c), z(c), b)
		t.op("VSHUFI32X4", "$0x88", z(12+c), z(8+c), d)
		t.op("VSHUFI32X4", "$0xDD", z(12+c), z(8+c), e)
		for lane, from := range [][3]string{{"$0x88", d, a}, {"$0x88", e, b}, {"$0xDD", d, a}, {"$0xDD", e, b}} {
			t.op("VSHUFI32X4", from[0], from[1], from[2], z(20+lane))
			t.op("VMOVNTDQ", z(20+lane), fmt.Sprintf("%d(DI)", 128*(4*lane+c)))
		}
	}
	t.op("ADDQ", "$64", "SI")
	t.op("ADDQ", "$2048", "DI")
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.op("SFENCE")
	t.ret()
}
