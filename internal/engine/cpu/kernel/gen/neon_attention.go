package main

import "fmt"

// softmax turns scores into weights, one column of lanes for each query.
//
// func softmax(c *Column)
func (g neon) softmax() {
	const (
		scores, stride, count = "R1", "R2", "R3"
		cursor, left, reg     = "R4", "R5", "R6"
	)
	const pos, step = 0, 2 * neonBytes // two vectors of queries at a time
	tops, norms, firsts, tos := []int{1, 2}, []int{3, 4}, []int{5, 6}, []int{7, 8}
	row, n, y, square, low := 9, 10, 11, 12, 13
	g.function("softmaxNEON", 8)
	g.arg("c+0(FP)", "R0")
	g.op("MOVD", "Column_Scores(R0)", scores)
	g.op("MOVD", "Column_Stride(R0)", stride)
	g.op("MOVD", "Column_Count(R0)", count)
	g.loadConstants(reg)
	visible := func(i, mask, spoiled int) {
		g.word("fcmge", mask, pos, firsts[i])
		g.word("fcmgt", spoiled, tos[i], pos)
		g.op("VAND", b16(spoiled), b16(mask), b16(mask))
	}
	positions := func(name string, body func(i int)) {
		g.zero(pos)
		g.op("MOVD", scores, cursor)
		g.op("MOVD", count, left)
		g.label(name)
		for i := range tops {
			body(i)
		}
		g.word("fadd", pos, pos, g.c("one"))
		g.op("ADD", stride, cursor)
		g.op("SUB", "$1", left)
		g.op("CBNZ", left, name)
	}
	for off := 0; off < 64; off += step { // sixteen lanes
		g.op("MOVD", "Column_First(R0)", reg)
		g.pair(off, reg, firsts[0])
		g.op("MOVD", "Column_To(R0)", reg)
		g.pair(off, reg, tos[0])
		for i := range tops {
			g.word("fneg", tops[i], g.c("inf"))
			g.zero(norms[i])
		}
		positions(fmt.Sprint("top", off), func(i int) {
			g.load(i*neonBytes, cursor, row)
			visible(i, n, y)
			g.word("fcmgt", y, row, tops[i])
			g.op("VAND", b16(y), b16(n), b16(n))
			g.op("VBIT", b16(n), b16(row), b16(tops[i]))
		})
		positions(fmt.Sprint("exp", off), func(i int) {
			g.load(i*neonBytes, cursor, row)
			g.word("fsub", row, row, tops[i])
			g.exp(row, n, y, square, low, -1)
			visible(i, n, low)
			g.op("VAND", b16(n), b16(y), b16(y))
			g.store(y, i*neonBytes, cursor)
			g.word("fadd", norms[i], norms[i], y)
		})
		g.op("MOVD", "Column_Top(R0)", reg)
		g.storePair(tops[0], off, reg)
		g.op("MOVD", "Column_Norm(R0)", reg)
		g.storePair(norms[0], off, reg)
		g.op("ADD", fmt.Sprintf("$%d", step), scores)
	}
	g.ret()
}

// neonMixVectors are the vectors of a row that a kernel handles together: six rows
// fill 24 registers with sums.
const neonMixVectors = 4

func neonMixName(m int) string { return mixName(isa{name: "NEON", lanes: 4}, m, neonMixVectors) }

// mix adds weighted rows of values to m sums.
//
// func mix(c *Mix)
func (g neon) mix(m int) {
	const weights, weightStride, values, valueStride = "R1", "R2", "R3", "R4"
	const sums, sumStride, count = "R5", "R6", "R7"
	value, weight := 24, 28 // and the registers after them
	g.function(neonMixName(m), 8)
	g.arg("c+0(FP)", "R0")
	g.op("MOVD", "Mix_Weights(R0)", weights)
	g.op("MOVD", "Mix_WeightStride(R0)", weightStride)
	g.op("MOVD", "Mix_Values(R0)", values)
	g.op("MOVD", "Mix_ValueStride(R0)", valueStride)
	g.op("MOVD", "Mix_SumStride(R0)", sumStride)
	g.op("MOVD", "Mix_Count(R0)", count)
	each := func(visit func(v, off int, reg string)) {
		g.op("MOVD", "Mix_Sums(R0)", sums)
		for i := range m {
			for v := 0; v < neonMixVectors; v += 2 {
				visit(i*neonMixVectors+v, v*neonBytes, sums)
			}
			g.op("ADD", sumStride, sums)
		}
	}
	each(func(v, off int, reg string) { g.pair(off, reg, v) })
	g.line("\tPCALIGN $16")
	g.label("loop")
	for v := 0; v < neonMixVectors; v += 2 {
		g.pair(v*neonBytes, values, value+v)
	}
	// Weights beyond those of the rows may not exist.
	at4 := m &^ 3
	if at4 > 0 {
		g.load(0, weights, weight)
	}
	if m&2 > 0 {
		g.op("FMOVD", at(4*at4, weights), f(weight+1))
	}
	if m&1 > 0 {
		g.op("FMOVS", at(4*(m-1), weights), f(weight+2))
	}
	for i := range m {
		w, lane := weight, i
		switch {
		case i == m-1 && m&1 > 0:
			w, lane = weight+2, 0
		case i >= at4:
			w, lane = weight+1, i-at4
		}
		for v := range neonMixVectors {
			g.word("fmla lane", i*neonMixVectors+v, value+v, w, lane)
		}
	}
	g.op("ADD", weightStride, weights)
	g.op("ADD", valueStride, values)
	g.op("SUB", "$1", count)
	g.op("CBNZ", count, "loop")
	each(func(v, off int, reg string) { g.storePair(v, off, reg) })
	g.ret()
}
