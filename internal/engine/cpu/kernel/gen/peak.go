package main

import "fmt"

// peakSums are as many sums as a loop has side by side: enough to hide the latency of
// the instructions.
const peakSums = 12

// peaks are loops over one instruction with registers only: the fastest that a core
// can do one kind of arithmetic. Peak.Ops of the package counts what one turn does.
func peaks() string {
	t := header("Loops that tell how fast a core can be, see peak.go.")
	for _, a := range []isa{avx512, avx2} {
		peakLoop(t, "peakFMA"+a.name, a.reg, func(sum int) { t.op("VFMADD231PS", a.v(peakSums), a.v(peakSums+1), a.v(sum)) })
	}
	peakLoop(t, "peakPairsAVX512", "Z", func(sum int) { t.dotPairs(sum, peakSums, peakSums+1) })
	peakLoop(t, "peakBytesAVX512", "Z", func(sum int) {
		t.op("VPDPBUSD", avx512.v(peakSums), avx512.v(peakSums+1), avx512.v(sum))
	})
	t.line("")
	t.line("// peakConfig is the configuration of eight full tiles.")
	for i := range 8 {
		switch {
		case i == 0:
			t.line("DATA peakConfig<>+0(SB)/8, $1")
		case i >= 2 && i < 4: // bytes of the rows of eight tiles, two each
			t.line("DATA peakConfig<>+%d(SB)/8, $0x0040004000400040", 8*i)
		case i == 6: // rows
			t.line("DATA peakConfig<>+48(SB)/8, $0x1010101010101010")
		default:
			t.line("DATA peakConfig<>+%d(SB)/8, $0", 8*i)
		}
	}
	t.line("GLOBL peakConfig<>(SB), RODATA|NOPTR, $64")
	peakTiles(t, "peakPairsAMX", t.tileDot)
	peakTiles(t, "peakBytesAMX", t.tileDotUnsigned)
	return t.String()
}

// peakLoop writes func name(n int), which does n turns of an instruction for each sum.
func peakLoop(t *text, name, reg string, add func(sum int)) {
	t.function(name, 8)
	t.op("MOVQ", "n+0(FP)", "CX")
	for i := range peakSums + 2 {
		r := fmt.Sprintf("%s%d", reg, i)
		t.op("VXORPS", r, r, r)
	}
	t.line("\tPCALIGN $32")
	t.label("loop")
	for sum := range peakSums {
		add(sum)
	}
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.ret()
}

// peakTiles writes func name(n int), which does n turns of four products of tiles.
func peakTiles(t *text, name string, dot func(dst, a, b int)) {
	t.function(name, 8)
	t.op("MOVQ", "n+0(FP)", "CX")
	t.op("LEAQ", "peakConfig<>(SB)", "AX")
	t.tileConfig("AX")
	for i := range 8 {
		t.tileZero(i)
	}
	t.line("\tPCALIGN $32")
	t.label("loop")
	for sum := range 4 {
		dot(sum, 4+sum/2, 6+sum%2)
	}
	t.op("DECQ", "CX")
	t.op("JNZ", "loop")
	t.tileRelease()
	t.op("RET")
}
