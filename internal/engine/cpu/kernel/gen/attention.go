package main

import "fmt"

// mixRows is how many weighted sums a kernel makes side by side.
const mixRows = 6

// mixVectors are the vectors of a row that a kernel handles together.
func (a isa) mixVectors() []int {
	if a.regs == 32 {
		return []int{4, 2, 1}
	}
	return []int{2}
}

// softmax turns scores into weights, one column of lanes for each query.
//
// func softmax(c *Column)
func (g *vectorGen) softmax() {
	row, n, y, top, norm, first, to, pos, one := g.v(0), g.v(1), g.v(2), g.v(3), g.v(4), g.v(5), g.v(6), g.v(7), g.v(8)
	zero, inner := g.v(9), g.mask(1, 10)
	outer, least := g.mask(2, 11), g.mask(3, 12)
	g.function(g.name("softmax"), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Column_Scores(AX)", "SI")
	g.op("MOVQ", "Column_Stride(AX)", "DX")
	g.op("MOVQ", "Column_Count(AX)", "CX")
	g.op("VXORPS", zero, zero, zero)
	g.op("VMOVUPS", g.c("one"), one)
	// Lanes of a column: sixteen.
	for off := 0; off < 64; off += g.bytes() {
		suffix := fmt.Sprint(off)
		g.op("MOVQ", "Column_First(AX)", "BX")
		g.op("VMOVUPS", at(off, "BX"), first)
		g.op("MOVQ", "Column_To(AX)", "BX")
		g.op("VMOVUPS", at(off, "BX"), to)
		visible := func() {
			g.op("VCMPPS", greaterEqual, first, pos, inner)
			g.op("VCMPPS", less, to, pos, outer)
			g.both(inner, outer, inner)
		}
		g.op("VXORPS", pos, pos, pos)
		g.op("VMOVUPS", g.c("negInf"), top)
		g.op("LEAQ", at(off, "SI"), "DI")
		g.op("MOVQ", "CX", "R8")
		g.label("top" + suffix)
		visible()
		g.choose(inner, "(DI)", top, row)
		g.op("VMAXPS", row, top, top)
		g.op("VADDPS", one, pos, pos)
		g.op("ADDQ", "DX", "DI")
		g.op("DECQ", "R8")
		g.op("JNZ", "top"+suffix)

		g.op("VXORPS", pos, pos, pos)
		g.op("VXORPS", norm, norm, norm)
		g.op("LEAQ", at(off, "SI"), "DI")
		g.op("MOVQ", "CX", "R8")
		g.label("exp" + suffix)
		g.op("VMOVUPS", "(DI)", row)
		g.op("VSUBPS", top, row, row)
		g.exp(row, n, y, least, "")
		visible()
		g.choose(inner, y, zero, y)
		g.op("VMOVUPS", y, "(DI)")
		g.op("VADDPS", y, norm, norm)
		g.op("VADDPS", one, pos, pos)
		g.op("ADDQ", "DX", "DI")
		g.op("DECQ", "R8")
		g.op("JNZ", "exp"+suffix)
		g.op("MOVQ", "Column_Top(AX)", "BX")
		g.op("VMOVUPS", top, at(off, "BX"))
		g.op("MOVQ", "Column_Norm(AX)", "BX")
		g.op("VMOVUPS", norm, at(off, "BX"))
	}
	g.ret()
}

func mixName(a isa, m, n int) string { return fmt.Sprintf("mix%dx%d%s", m, n*a.lanes, a.name) }

// mix adds weighted rows of values to m sums, over n vectors of each.
//
// func mix(c *Mix)
func (g *vectorGen) mix(m, n int) {
	g.function(mixName(g.isa, m, n), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Mix_Weights(AX)", "SI")
	g.op("MOVQ", "Mix_WeightStride(AX)", "R8")
	g.op("MOVQ", "Mix_Values(AX)", "DX")
	g.op("MOVQ", "Mix_ValueStride(AX)", "R9")
	g.op("MOVQ", "Mix_SumStride(AX)", "R10")
	g.op("MOVQ", "Mix_Count(AX)", "CX")
	sums := func(visit func(acc, mem string)) {
		g.op("MOVQ", "Mix_Sums(AX)", "DI")
		for i := range m {
			for v := range n {
				visit(g.v(i*n+v), at(v*g.bytes(), "DI"))
			}
			g.op("ADDQ", "R10", "DI")
		}
	}
	sums(func(acc, mem string) { g.op("VMOVUPS", mem, acc) })
	g.label("loop")
	for v := range n {
		g.op("VMOVUPS", at(v*g.bytes(), "DX"), g.v(m*n+v))
	}
	for i := range m {
		w := g.v(m*n + n)
		g.op("VBROADCASTSS", at(4*i, "SI"), w)
		for v := range n {
			g.op("VFMADD231PS", g.v(m*n+v), w, g.v(i*n+v))
		}
	}
	g.op("ADDQ", "R8", "SI")
	g.op("ADDQ", "R9", "DX")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	sums(func(acc, mem string) { g.op("VMOVUPS", acc, mem) })
	g.ret()
}
