package main

import "fmt"

// transposed is a type of weights whose rows are transposed sixteen at a time: their
// words of 32 bits go into the lines of a panel, of which they fill half each.
type transposed struct {
	name  string
	words int // in a block of the file that lie together
	bytes int // from such words to the next in a row
	panel int // bytes from the lines of a block to those of the next in the panel
	flip  bool
}

var transposeds = []transposed{
	{name: "Words", words: 16, bytes: 64, panel: 16 * 128},
	{name: "Q8_0", words: 8, bytes: 34, panel: 64 + 8*128, flip: true},
	{name: "Q4_0", words: 4, bytes: 18, panel: 64 + 4*128},
}

func transposes() string {
	t := header("Transposes sixteen rows of words for panels of weights, see pack.go.")
	for _, b := range transposeds {
		transpose(t, b)
	}
	return t.String()
}

// transpose writes blocks of sixteen rows and sixteen words of each. Stores go past the
// caches: nobody reads a panel before all are packed. Each is half a line of the panel,
// and a whole one of the cache.
//
// func transposeXAVX512(dst, src *byte, stride, blocks int)
func transpose(t *text, b transposed) {
	z := avx512.v
	t.function("transpose"+b.name+"AVX512", 32)
	t.op("MOVQ", "dst+0(FP)", "DI")
	t.op("MOVQ", "src+8(FP)", "SI")
	t.op("MOVQ", "stride+16(FP)", "DX") // bytes from row to row
	t.op("MOVQ", "blocks+24(FP)", "CX")
	t.op("LEAQ", "(DX)(DX*2)", "R8")
	const flip = 24
	if b.flip {
		t.op("MOVL", "$0x80808080", "AX")
		t.op("VPBROADCASTD", "AX", z(flip))
	}
	t.label("loop")
	for group := range 4 { // of four rows
		at := "AX"
		if group == 0 {
			t.op("MOVQ", "SI", at)
		} else {
			t.op("LEAQ", fmt.Sprintf("(%s)(DX*4)", at), at)
		}
		for row, index := range []string{"", "(DX*1)", "(DX*2)", "(R8*1)"} {
			reg, place := 4*group+row, func(block int) string { return fmt.Sprintf("%d(AX)%s", block*b.bytes, index) }
			switch b.words {
			case 16:
				t.op("VMOVDQU32", place(0), z(reg))
			case 8:
				t.op("VMOVDQU", place(0), fmt.Sprintf("Y%d", reg))
				t.op("VINSERTI64X4", "$1", place(1), z(reg), z(reg))
			case 4:
				t.op("VMOVDQU", place(0), fmt.Sprintf("X%d", reg))
				for block := 1; block < 4; block++ {
					t.op("VINSERTI32X4", fmt.Sprintf("$%d", block), place(block), z(reg), z(reg))
				}
			}
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
		even0, odd0, even1, odd1 := z(16), z(17), z(18), z(19) // lanes of rows 0 to 7, 8 to 15
		t.op("VSHUFI32X4", "$0x88", z(4+c), z(c), even0)
		t.op("VSHUFI32X4", "$0xDD", z(4+c), z(c), odd0)
		t.op("VSHUFI32X4", "$0x88", z(12+c), z(8+c), even1)
		t.op("VSHUFI32X4", "$0xDD", z(12+c), z(8+c), odd1)
		for lane, from := range [][3]string{{"$0x88", even1, even0}, {"$0x88", odd1, odd0}, {"$0xDD", even1, even0}, {"$0xDD", odd1, odd0}} {
			out, column := z(20+lane), 4*lane+c
			t.op("VSHUFI32X4", from[0], from[1], from[2], out)
			if b.flip {
				t.op("VPXORD", z(flip), out, out)
			}
			t.op("VMOVNTDQ", out, fmt.Sprintf("%d(DI)", column/b.words*b.panel+column%b.words*128))
		}
	}
	t.op("ADDQ", fmt.Sprintf("$%d", 16/b.words*b.bytes), "SI")
	t.op("ADDQ", fmt.Sprintf("$%d", 16/b.words*b.panel), "DI")
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.op("SFENCE")
	t.ret()
}
