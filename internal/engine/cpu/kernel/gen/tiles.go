package main

import "fmt"

// Tiles of the AMX products: sums by rows and outputs, activations, weights.
const (
	tileSums    = 0 // and 1 for the second 16 outputs, 2 and 3 for the second 16 rows
	tileRows    = 4 // and 5
	tileWeights = 6 // and 7
)

func tilesName(m int) string { return fmt.Sprintf("tilesBF16x%dAMX", m) }

// tiles are the products of rows of bf16 with a panel of bf16 by TDPBF16PS, for one
// and two tiles of up to 16 rows.
func tiles() string {
	t := header("Products of rows of bf16 with panels of bf16 on tiles, see bf16.go.")
	for m := 1; m <= 2; m++ {
		tilesOf(t, m)
	}
	return t.String()
}

// tilesOf keeps everything that touches tiles between LDTILECFG and TILERELEASE in
// one function: the runtime may move a goroutine to another thread between two.
func tilesOf(t *text, m int) {
	t.function(tilesName(m), 8)
	t.op("MOVQ", "c+0(FP)", "R8")
	t.op("MOVQ", "CallBF16_config(R8)", "AX")
	t.tileConfig("AX")
	t.op("MOVQ", "CallBF16_Stride(R8)", "SI")
	t.op("MOVQ", "$128", "DI") // between rows of weights, and of sums in Out
	t.op("MOVQ", "CallBF16_Src(R8)", "R10")
	t.op("MOVQ", "CallBF16_Dst(R8)", "R11")
	t.op("MOVQ", "CallBF16_out(R8)", "R12")
	t.op("MOVQ", "CallBF16_groups(R8)", "R9")
	t.label("group")
	t.op("MOVQ", "R10", "AX")
	if m == 2 {
		t.op("MOVQ", "SI", "DX")
		t.op("SHLQ", "$4", "DX")
		t.op("ADDQ", "AX", "DX")
	}
	t.op("MOVQ", "CallBF16_Panel(R8)", "BX")
	t.op("MOVQ", "CallBF16_tail(R8)", "R13")
	for i := range 2 * m {
		t.tileZero(tileSums + i)
	}
	t.op("MOVQ", "CallBF16_steps(R8)", "CX")
	t.op("TESTQ", "CX", "CX")
	t.op("JZ", "tail")
	t.label("loop")
	if m == 1 { // few rows wait for memory, as in products
		for line := range 32 {
			t.op("PREFETCHT0", fmt.Sprintf("%d(BX)", 4096+64*line))
		}
	}
	t.tileLoad(tileRows, "AX", "SI", 0)
	t.tileLoad(tileWeights, "BX", "DI", 0)
	t.tileLoad(tileWeights+1, "BX", "DI", 64)
	t.tileDot(tileSums, tileRows, tileWeights)
	t.tileDot(tileSums+1, tileRows, tileWeights+1)
	if m == 2 {
		t.tileLoad(tileRows+1, "DX", "SI", 0)
		t.tileDot(tileSums+2, tileRows+1, tileWeights)
		t.tileDot(tileSums+3, tileRows+1, tileWeights+1)
		t.op("ADDQ", "$64", "DX")
	}
	t.op("ADDQ", "$64", "AX")
	t.op("ADDQ", "$2048", "BX")
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.label("tail") // one more step with what is left of the panel, padded
	t.op("TESTQ", "R13", "R13")
	t.op("JZ", "store")
	t.op("MOVQ", "R13", "BX")
	t.op("XORL", "R13", "R13")
	t.op("MOVL", "$1", "CX")
	t.op("JMP", "loop")
	t.label("store")
	t.tileStore(tileSums, "R12", "DI", 0)
	t.tileStore(tileSums+1, "R12", "DI", 64)
	if m == 2 {
		t.op("LEAQ", "2048(R12)", "BX")
		t.tileStore(tileSums+2, "BX", "DI", 0)
		t.tileStore(tileSums+3, "BX", "DI", 64)
	}
	t.op("MOVQ", "R12", "BX")
	t.op("MOVQ", "CallBF16_groupRows(R8)", "CX")
	t.label("row")
	t.op("MOVQ", "(R11)", "AX")
	t.op("VMOVUPS", "(BX)", "Z0")
	t.op("VMOVUPS", "64(BX)", "Z1")
	t.op("VMOVUPS", "Z0", "(AX)")
	t.op("VMOVUPS", "Z1", "64(AX)")
	t.op("ADDQ", "$128", "BX")
	t.op("ADDQ", "$8", "R11")
	t.op("ADDQ", "SI", "R10")
	t.op("DECQ", "CX")
	t.op("JNZ", "row")
	t.op("DECQ", "R9")
	t.op("JNZ", "group")
	t.tileRelease()
	t.ret()
}
