package main

// neonPeakSums are as many sums as a loop has side by side. Wide processors begin four
// instructions at a time, each of which takes four cycles.
const neonPeakSums = 24

// neonPeaks are the loops of peaks for arm64.
func neonPeaks() string {
	t := header("Loops that tell how fast a core can be, see peak.go.")
	g := neon{t}
	const x, y = neonPeakSums, neonPeakSums + 1
	g.peakLoop("peakFMANEON", func(sum int) { g.op("VFMLA", s4(x), s4(y), s4(sum)) })
	g.peakLoop("peakSDOT", func(sum int) { g.word("sdot", sum, x, y, 0) })
	g.peakLoop("peakUSMMLA", func(sum int) { g.word("usmmla", sum, x, y) })
	g.peakLoop("peakBFMMLA", func(sum int) { g.word("bfmmla", sum, x, y) })
	return t.String()
}

// peakLoop writes func name(n int), which does n turns of an instruction for each sum.
func (g neon) peakLoop(name string, add func(sum int)) {
	g.function(name, 8)
	g.arg("n+0(FP)", "R0")
	for v := range neonPeakSums + 2 {
		g.zero(v)
	}
	g.label("loop")
	for sum := range neonPeakSums {
		add(sum)
	}
	g.op("SUBS", "$1", "R0", "R0")
	g.op("BNE", "loop")
	g.ret()
}
