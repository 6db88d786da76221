package main

import "fmt"

// Kernels of attention with keys and values of bf16 that multiply pairs by VDPBF16PS,
// see attention_pairs.go of the package. There are none for other types.

// pairQueries is the largest number of queries and of rows of weights in one kernel.
const pairQueries = 12

// pairGroups returns the number of groups of keys that the kernel for m queries takes.
func pairGroups(m int) int { return avx512.scoreGroups(m) }

// pairVectors are the numbers of vectors of a row that a kernel for m weighted sums
// handles together, the largest first: 24 sums and what they are made of.
func pairVectors(m int) []int {
	switch {
	case m <= 3:
		return []int{8, 4, 2, 1}
	case m <= 6:
		return []int{4, 2, 1}
	}
	return []int{2, 1}
}

// exp2Constants are those of weights: 2 to the f within 3e-6 for f from -1/2 to 1/2.
var exp2Constants = []constant{
	{"log2e", bits(1.44269504088896341)}, {"minExp2", bits(-128)}, {"one", bits(1)}, {"negInf", 0xFF800000}, {"sign", 0x80000000},
	{"q1", bits(0.6931241751)}, {"q2", bits(0.2402409911)}, {"q3", bits(0.05590642616)}, {"q4", bits(0.009582852945)},
}

// attentionPairs are the kernels that read keys and values in pairs.
func attentionPairs() string {
	t := header("Attention with products of pairs of bf16, see attention_pairs.go.")
	g := &vectorGen{text: t, isa: avx512}
	g.line("")
	for _, c := range exp2Constants {
		for i := range g.lanes {
			g.line("DATA %sPairs<>+%d(SB)/4, $0x%08X", c.name, 4*i, c.bits)
		}
		g.line("GLOBL %sPairs<>(SB), RODATA|NOPTR, $64", c.name)
	}
	g.softmaxPairs()
	for m := 1; m <= pairQueries; m++ {
		g.scorePairs(m)
		for _, n := range pairVectors(m) {
			p := &mixPairsGen{vectorGen: g, m: m, n: n}
			p.kernel()
		}
	}
	return t.String()
}

func pairConstant(name string) string { return name + "Pairs<>(SB)" }

// softmaxPairs turns the scores of one query into weights of bf16. The masks are those of
// the first and of the last group.
//
// func softmaxPairsAVX512(weights *uint16, scores *float32, groups int, head, tail uint32) (top, norm float32)
func (g *vectorGen) softmaxPairs() {
	const acc, x, n, y, shift, log2e = "Z0", "Z2", "Z3", "Z4", "Z5", "Z6"
	coefficients := []string{"Z7", "Z8", "Z9", "Z10", "Z11"} // the highest first
	g.function("softmaxPairsAVX512", 40)
	g.op("MOVQ", "weights+0(FP)", "DI")
	g.op("MOVQ", "scores+8(FP)", "SI")
	g.op("MOVQ", "groups+16(FP)", "CX")
	g.op("MOVL", "head+24(FP)", "AX")
	g.op("KMOVW", "AX", "K1")
	g.op("MOVL", "tail+28(FP)", "AX")
	g.op("KMOVW", "AX", "K2")
	g.op("KXNORW", "K3", "K3", "K3")
	g.op("VMOVUPS", pairConstant("log2e"), log2e)
	for i, name := range []string{"q4", "q3", "q2", "q1", "one"} {
		g.op("VMOVUPS", pairConstant(name), coefficients[i])
	}
	// each runs body for the first group, those between, and the last one.
	each := func(label string, body func(mask string)) {
		g.op("MOVQ", "SI", "R8")
		g.op("MOVQ", "DI", "R9")
		g.op("MOVQ", "CX", "R10")
		next := func() {
			g.op("ADDQ", "$64", "R8")
			g.op("ADDQ", "$32", "R9")
		}
		body("K1")
		g.op("SUBQ", "$2", "R10") // without the first and the last
		g.op("JL", label+"Done")
		g.op("JZ", label+"Last")
		g.label(label)
		next()
		body("K3")
		g.op("DECQ", "R10")
		g.op("JNZ", label)
		g.label(label + "Last")
		next()
		body("K2")
		g.label(label + "Done")
	}
	g.op("VMOVUPS", pairConstant("negInf"), acc)
	each("top", func(mask string) { g.op("VMAXPS", "(R8)", acc, mask, acc) })
	g.reduce("VMAXPS", "VMAXSS")
	g.op("VMOVSS", "X0", "top+32(FP)")
	g.op("VBROADCASTSS", "X0", shift)
	g.op("VMULPS", log2e, shift, shift)
	g.op("VPXORD", pairConstant("sign"), shift, shift)
	g.op("VPXORD", acc, acc, acc)
	g.op("VMOVUPS", pairConstant("minExp2"), "Z12")
	each("exp", func(mask string) {
		g.op("VMOVUPS", "(R8)", x)
		g.op("VFMADD213PS", shift, log2e, x)
		g.op("VMAXPS", x, "Z12", x) // what is no number stays
		g.op("VRNDSCALEPS", "$0", x, n)
		g.op("VSUBPS", n, x, x)
		g.op("VMOVAPS", coefficients[0], y)
		for _, c := range coefficients[1:] {
			g.op("VFMADD213PS", c, x, y)
		}
		g.op("VSCALEFPS.Z", n, y, mask, y)
		g.narrowPairs(4, 4)
		g.op("VMOVDQU", "Y4", "(R9)")
		g.op("VPMOVZXWD", "Y4", y)
		g.op("VPSLLD", "$16", y, y)
		g.op("VADDPS", y, acc, acc)
	})
	g.reduce("VADDPS", "VADDSS")
	g.op("VMOVSS", "X0", "norm+36(FP)")
	g.ret()
}

func scorePairsName(m int) string { return fmt.Sprintf("scorePairsx%dAVX512", m) }

// scorePairs multiplies m queries with some groups of keys, two dimensions at a time.
//
// func scorePairs(c *Score)
func (g *vectorGen) scorePairs(m int) {
	groups := pairGroups(m)
	g.function(scorePairsName(m), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Score_Queries(AX)", "SI")
	g.op("MOVQ", "Score_Dims(AX)", "CX")
	for i := range groups {
		g.op("MOVQ", fmt.Sprintf("(Score_Keys+%d)(AX)", 8*i), scoreKeys[i])
		g.op("MOVQ", fmt.Sprintf("(Score_Next+%d)(AX)", 8*i), scoreNext[i])
	}
	for i := range m * groups {
		g.op("VXORPS", g.v(i), g.v(i), g.v(i))
	}
	g.op("XORQ", "DX", "DX") // how far in each group
	g.op("INCQ", "CX")
	g.op("SHRQ", "$1", "CX")
	g.line("\tPCALIGN $32")
	g.label("loop")
	key, x := m*groups, m*groups+groups
	for i := range groups {
		g.op("PREFETCHT1", fmt.Sprintf("(%s)(DX*1)", scoreNext[i]))
		g.op("VMOVUPS", fmt.Sprintf("(%s)(DX*1)", scoreKeys[i]), g.v(key+i))
	}
	free := min(4, g.regs-x) // broadcast pairs take turns
	for i := range m {
		g.op("VBROADCASTSS", at(4*i, "SI"), g.v(x+i%free))
		for group := range groups {
			g.dotPairs(i*groups+group, x+i%free, key+group)
		}
	}
	g.op("ADDQ", fmt.Sprintf("$%d", 4*m), "SI")
	g.op("ADDQ", "$64", "DX")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.op("MOVQ", "Score_Stride(AX)", "DX")
	for group := range groups {
		g.op("MOVQ", fmt.Sprintf("(Score_Scores+%d)(AX)", 8*group), "DI")
		for i := range m {
			g.op("VMOVUPS", g.v(i*groups+group), "(DI)")
			if i+1 < m {
				g.op("ADDQ", "DX", "DI")
			}
		}
	}
	g.ret()
}

func mixPairsName(m, n int) string { return fmt.Sprintf("mixPairsx%dx%dAVX512", m, 16*n) }

// mixPairsGen writes the kernel that adds weighted rows of values to m sums, over n
// vectors of each, two positions at a time.
//
// func mixPairs(c *Mix)
type mixPairsGen struct {
	*vectorGen
	m, n int
}

func (g *mixPairsGen) kernel() {
	m, n := g.m, g.n
	g.function(mixPairsName(m, n), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Mix_Weights(AX)", "SI")
	g.op("MOVQ", "Mix_WeightStride(AX)", "R8")
	g.op("LEAQ", "(R8)(R8*2)", "R11")
	g.op("LEAQ", "(R8)(R8*4)", "R12")
	g.op("LEAQ", "(SI)(R11*2)", "R13") // the seventh row
	g.op("MOVQ", "Mix_Values(AX)", "DX")
	g.op("MOVQ", "Mix_ValueStride(AX)", "R9")
	g.op("MOVQ", "Mix_Next(AX)", "BX")
	g.op("MOVQ", "Mix_SumStride(AX)", "R10")
	g.op("MOVQ", "Mix_Count(AX)", "CX")
	g.sums(func(acc, mem string) { g.op("VMOVUPS", mem, acc) })
	g.op("SHRQ", "$1", "CX")
	g.op("JZ", "tail")
	g.line("\tPCALIGN $32")
	g.label("loop")
	for line := 0; line < 32*n; line += 64 {
		g.op("PREFETCHT1", at(line, "BX"))
		g.op("PREFETCHT1", fmt.Sprintf("%d(BX)(R9*1)", line))
	}
	g.step(false)
	g.op("ADDQ", "$4", "SI")
	if m > 6 {
		g.op("ADDQ", "$4", "R13")
	}
	g.op("LEAQ", "(DX)(R9*2)", "DX")
	g.op("LEAQ", "(BX)(R9*2)", "BX")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.label("tail")
	g.op("TESTQ", "$1", "Mix_Count(AX)")
	g.op("JZ", "store")
	g.step(true)
	g.label("store")
	g.sums(func(acc, mem string) { g.op("VMOVUPS", acc, mem) })
	g.ret()
}

// sums visits all sums.
func (g *mixPairsGen) sums(visit func(acc, mem string)) {
	g.op("MOVQ", "Mix_Sums(AX)", "DI")
	for i := range g.m {
		for v := range g.n {
			visit(g.v(i*g.n+v), at(v*64, "DI"))
		}
		if i+1 < g.m {
			g.op("ADDQ", "R10", "DI")
		}
	}
}

// zeroPairs is the register for the values of a position that there is not.
const zeroPairs = 31

// step adds the products of two positions, or of a last one alone, whose partner has
// weights and values of zero.
func (g *mixPairsGen) step(alone bool) {
	m, n := g.m, g.n
	weight := func(i, reg int) {
		base := "SI"
		if i >= 6 {
			base, i = "R13", i-6
		}
		mem := fmt.Sprintf("(%s)", base) + []string{"", "(R8*1)", "(R8*2)", "(R11*1)", "(R8*4)", "(R12*1)"}[i]
		if alone {
			g.op("MOVWLZX", mem, "DI")
			g.op("VPBROADCASTD", "DI", g.v(reg))
			return
		}
		g.op("VBROADCASTSS", mem, g.v(reg))
	}
	if acc := m * n; acc+n+1 <= zeroPairs { // values stay, weights come one by one
		for v := 0; v < n; v += 2 {
			g.values(v, acc+v, alone)
		}
		free := min(4, zeroPairs-acc-n)
		for i := range m {
			w := acc + n + i%free
			weight(i, w)
			for v := range n {
				g.dotPairs(i*n+v, w, acc+v)
			}
		}
		return
	}
	for i := range m { // weights stay
		weight(i, m*n+i)
	}
	for v := 0; v < n; v += 2 {
		x := m*n + m
		g.values(v, x, alone)
		for part := range min(2, n) {
			for i := range m {
				g.dotPairs(i*n+v+part, m*n+i, x+part)
			}
		}
	}
}

// values makes vectors v and v+1 of pairs of two rows. Unpacking takes the first half of
// each 64 bits for one and the second for the other, and sums stay in that order: see
// kernel.OrderPairs.
func (g *mixPairsGen) values(v, reg int, alone bool) {
	first, second := at(32*v, "DX"), fmt.Sprintf("%d(DX)(R9*1)", 32*v)
	if g.n == 1 {
		g.op("VPMOVZXWD", first, g.v(reg))
		if !alone {
			g.op("VPMOVZXWD", second, g.v(reg+1))
			g.op("VPSLLD", "$16", g.v(reg+1), g.v(reg+1))
			g.op("VPORD", g.v(reg+1), g.v(reg), g.v(reg))
		}
		return
	}
	if alone {
		g.op("VPXORD", g.v(zeroPairs), g.v(zeroPairs), g.v(zeroPairs))
		second = g.v(zeroPairs)
	}
	g.op("VMOVDQU64", first, g.v(reg))
	g.op("VPUNPCKHWD", second, g.v(reg), g.v(reg+1))
	g.op("VPUNPCKLWD", second, g.v(reg), g.v(reg))
}

// attentionPairsDeclarations are their Go declarations and tables.
func attentionPairsDeclarations(line func(format string, args ...any)) {
	line("//go:noescape\nfunc softmaxPairsAVX512(weights *uint16, scores *float32, groups int, head, tail uint32) (top, norm float32)\n")
	for m := 1; m <= pairQueries; m++ {
		line("//go:noescape\nfunc %s(c *Score)\n", scorePairsName(m))
		for _, n := range pairVectors(m) {
			line("//go:noescape\nfunc %s(c *Mix)\n", mixPairsName(m, n))
		}
	}
	line("// scorePairsAVX512 finds a product in pairs by the number of queries.")
	line("var scorePairsAVX512 = [pairQueries + 1]func(*Score){")
	for m := 1; m <= pairQueries; m++ {
		line("%d: %s,", m, scorePairsName(m))
	}
	line("}\n")
	line("// mixPairsAVX512 finds a weighted sum in pairs by rows and sixteens of a row.")
	line("var mixPairsAVX512 = [pairQueries + 1][9]func(*Mix){")
	for m := 1; m <= pairQueries; m++ {
		line("%d: {", m)
		for _, n := range pairVectors(m) {
			line("%d: %s,", n, mixPairsName(m, n))
		}
		line("},")
	}
	line("}\n")
}
