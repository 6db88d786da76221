package main

import (
	"fmt"
	"strings"
)

var neonISA = isa{name: "NEON", lanes: 4}

// neonScoreGroups returns the number of groups of keys that the kernel for m queries takes, 0
// for none: 24 sums, or as many as are left.
func neonScoreGroups(m int) int {
	switch {
	case m <= 3:
		return 2
	case m <= 6:
		return 1
	}
	return 0
}

// neonMixVectors are the numbers of vectors of a row that a kernel for m rows handles
// together, the largest first.
func neonMixVectors(m int) []int {
	if m <= 3 {
		return []int{8, 4}
	}
	return []int{4}
}

// neonAttention are the kernels that read and write keys and values.
func neonAttention() string {
	g := neon{header("Attention, see attention.go and kv.go.")}
	g.constants()
	for i := range 4 {
		g.line("DATA iotaNEON<>+%d(SB)/4, $0x%08X", 4*i, bits(float32(i)))
	}
	g.line("GLOBL iotaNEON<>(SB), RODATA|NOPTR, $16")
	g.softmax()
	g.narrow()
	g.largest()
	g.roundI8()
	for _, kind := range kvTypes {
		for m := 1; neonScoreGroups(m) > 0; m++ {
			g.score(kind, m)
		}
		for m := 1; m <= mixRows; m++ {
			for _, n := range neonMixVectors(m) {
				g.mix(kind, m, n)
			}
		}
	}
	return g.String()
}

// softmax turns the scores of one query into weights, positions in lanes.
//
// func softmax(scores *float32, groups int, first, to float32) (top, norm float32)
func (g neon) softmax() {
	const scores, groups, cursor, left, reg = "R0", "R1", "R2", "R3", "R4"
	const pos, four, first, to = 4, 5, 6, 7 // after the sums, or largest values, of sixteen lanes
	const row, n, y, square, low, mask, top, start = 8, 9, 10, 11, 12, 13, 14, 15
	g.function("softmaxNEON", 32)
	g.arg("scores+0(FP)", scores)
	g.arg("groups+8(FP)", groups)
	g.splat("first+16(FP)", first)
	g.splat("to+20(FP)", to)
	g.op("FMOVS", "$4.0", f(four))
	g.op("VDUP", fmt.Sprintf("V%d.S[0]", four), s4(four))
	g.op("MOVD", "$iotaNEON<>(SB)", reg)
	g.load(0, reg, start)
	g.loadConstants(reg)
	each := func(label string, body func(sum, off int)) {
		g.op("VMOV", b16(start), b16(pos))
		g.op("MOVD", scores, cursor)
		g.op("MOVD", groups, left)
		g.label(label)
		for v := range 4 {
			body(v, v*neonBytes)
			g.word("fadd", pos, pos, four)
		}
		g.op("ADD", "$64", cursor)
		g.op("SUB", "$1", left)
		g.op("CBNZ", left, label)
	}
	visible := func(spoiled int) {
		g.word("fcmge", mask, pos, first)
		g.word("fcmgt", spoiled, to, pos)
		g.op("VAND", b16(spoiled), b16(mask), b16(mask))
	}
	larger := func(v, than, spoiled int) { // than = v where that is larger
		g.word("fcmgt", spoiled, v, than)
		g.op("VBIT", b16(spoiled), b16(v), b16(than))
	}
	for v := range 4 {
		g.word("fneg", v, g.c("inf"))
	}
	each("top", func(sum, off int) {
		g.load(off, cursor, row)
		visible(n)
		g.word("fcmgt", n, row, sum)
		g.op("VAND", b16(n), b16(mask), b16(mask))
		g.op("VBIT", b16(mask), b16(row), b16(sum))
	})
	larger(2, 0, n)
	larger(3, 1, n)
	larger(1, 0, n)
	for _, by := range []int{8, 4} {
		g.op("VEXT", fmt.Sprintf("$%d", by), b16(0), b16(0), b16(1))
		larger(1, 0, n)
	}
	g.op("FMOVS", "F0", "top+24(FP)")
	g.op("VDUP", "V0.S[0]", s4(top))
	for v := range 4 {
		g.zero(v)
	}
	each("exp", func(sum, off int) {
		g.load(off, cursor, row)
		g.word("fsub", row, row, top)
		g.exp(row, n, y, square, low, -1)
		visible(n)
		g.op("VAND", b16(mask), b16(y), b16(y))
		g.store(y, off, cursor)
		g.word("fadd", sum, sum, y)
	})
	g.addSixteen()
	g.op("FMOVS", "F0", "norm+28(FP)")
	g.ret()
}

// addSixteen adds the lanes of the first four registers into the first lane: lanes i
// and i+8, then i+4, i+2, i+1.
func (g neon) addSixteen() {
	g.word("fadd", 0, 0, 2)
	g.word("fadd", 1, 1, 3)
	g.word("fadd", 0, 0, 1)
	g.op("VEXT", "$8", b16(0), b16(0), b16(1))
	g.word("fadd", 0, 0, 1)
	g.word("faddp", 0, 0)
}

// fill sets all lanes to the same 32 bits.
func (g neon) fill(v int, bits uint32, reg string) {
	g.op("MOVD", fmt.Sprintf("$0x%08X", bits), reg)
	g.op("VDUP", reg, s4(v))
}

// narrow rounds to bf16.
//
// func narrowBF16(dst *uint16, src *float32, n int)
func (g neon) narrow() {
	const one, belowHalf, quiet = 16, 17, 18
	g.function("narrowBF16NEON", 24)
	g.arg("dst+0(FP)", "R0")
	g.arg("src+8(FP)", "R1")
	g.arg("n+16(FP)", "R2")
	g.fill(one, 1, "R3")
	for _, c := range kvConstants {
		switch c.name {
		case "belowHalf":
			g.fill(belowHalf, c.bits, "R3")
		case "quiet":
			g.fill(quiet, c.bits, "R3")
		}
	}
	g.each("R2", []string{"R1"}, func(off int) {
		v := off / neonBytes % 2 // two at a time
		x, y, number := 4+v, v, 6+v
		g.load(off, "R1", x)
		g.word("fcmeq", number, x, x)
		g.op("VUSHR", "$16", s4(x), s4(y))
		g.op("VAND", b16(one), b16(y), b16(y)) // the last bit that stays
		g.op("VADD", s4(x), s4(y), s4(y))
		g.op("VADD", s4(belowHalf), s4(y), s4(y))
		g.op("VORR", b16(quiet), b16(x), b16(x))
		g.op("VBIF", b16(number), b16(x), b16(y))
		if v == 1 {
			g.op("VUZP2", h8(1), h8(0), h8(0))
			g.op("FMOVQ.P", "F0", at(16, "R0"))
		}
	})
	g.ret()
}

// largest is the largest absolute value, or something that is not finite where there
// is one among the values: bits of positive numbers compare as integers.
//
// func largest(x *float32, n int) float32
func (g neon) largest() {
	g.function("largestNEON", 20)
	g.arg("x+0(FP)", "R0")
	g.arg("n+8(FP)", "R1")
	for v := range 4 {
		g.zero(v)
	}
	g.each("R1", []string{"R0"}, func(off int) {
		v := off / neonBytes
		g.load(off, "R0", 4+v)
		g.word("fabs", 4+v, 4+v)
		g.op("VUMAX", s4(4+v), s4(v), s4(v))
	})
	g.op("VUMAX", "V2.S4", "V0.S4", "V0.S4")
	g.op("VUMAX", "V3.S4", "V1.S4", "V1.S4")
	g.op("VUMAX", "V1.S4", "V0.S4", "V0.S4")
	for _, by := range []int{8, 4} {
		g.op("VEXT", fmt.Sprintf("$%d", by), b16(0), b16(0), b16(1))
		g.op("VUMAX", "V1.S4", "V0.S4", "V0.S4")
	}
	g.op("FMOVS", "F0", "ret+16(FP)")
	g.ret()
}

// roundI8 rounds x · factor to int8, to nearest even.
//
// func roundI8(dst *int8, x *float32, factor float32, n int)
func (g neon) roundI8() {
	g.function("roundI8NEON", 32)
	g.arg("dst+0(FP)", "R0")
	g.arg("x+8(FP)", "R1")
	g.splat("factor+16(FP)", 7)
	g.arg("n+24(FP)", "R2")
	g.each("R2", []string{"R1"}, func(off int) {
		v := off / neonBytes
		g.load(off, "R1", v)
		g.word("fmul", v, v, 7)
		g.word("fcvtns", v, v)
		if v == 3 { // the lowest bytes
			g.op("VUZP1", h8(1), h8(0), h8(0))
			g.op("VUZP1", h8(3), h8(2), h8(2))
			g.op("VUZP1", b16(2), b16(0), b16(0))
			g.op("FMOVQ.P", "F0", at(16, "R0"))
		}
	})
	g.ret()
}

// floats loads n values that lie side by side into registers from v on, and not more
// than these. It returns where they are, and how many registers that takes.
func (g neon) floats(n int, reg string, v int) (lane func(i int) (v, lane int), taken int) {
	for at4 := 0; at4 < n; {
		load, size := "FMOVQ", 4
		for size > n-at4 {
			size /= 2
			load = map[int]string{2: "FMOVD", 1: "FMOVS"}[size]
		}
		g.op(load, at(4*at4, reg), f(v+taken))
		at4, taken = at4+size, taken+1
	}
	return func(i int) (int, int) {
		if n%4 == 3 && i == n-1 { // after four lanes with two values
			return v + taken - 1, 0
		}
		return v + i/4, i % 4
	}, taken
}

// bytes8 loads eight integers of a byte and visits them as numbers, in fours.
func (g neon) bytes8(off int, reg string, h, w int, visit func(w, v int)) {
	g.op("FMOVD", at(off, reg), f(h))
	g.word("sxtl 8b", h, h)
	g.word("sxtl 4h", w, h)
	g.word("scvtf", w, w)
	visit(w, 0)
	g.word("sxtl2 8h", h, h)
	g.word("scvtf", h, h)
	visit(h, 1)
}

// neonScore is one kernel: the products of m queries with some groups of keys. Every
// score is one sum over the dimensions from first to last, made of fused multiply-adds
// that start at zero.
type neonScore struct {
	neon
	kind       kvType
	m, groups  int
	keys, next []string
}

// sum is that of query i with four tokens of a group.
func (s *neonScore) sum(i, group, v int) int { return (i*s.groups+group)*4 + v }

// func score(c *Score)
func (g neon) score(kind kvType, m int) {
	const call, queries, dims, count, temp, stride = "R0", "R1", "R2", "R3", "R8", "R9"
	s := &neonScore{neon: g, kind: kind, m: m, groups: neonScoreGroups(m), keys: []string{"R4", "R5"}, next: []string{"R6", "R7"}}
	g.function(scoreName(neonISA, kind, m), 8)
	g.arg("c+0(FP)", call)
	g.op("MOVD", "Score_Queries(R0)", queries)
	g.op("MOVD", "Score_Dims(R0)", dims)
	for i := range s.groups {
		g.op("MOVD", fmt.Sprintf("(Score_Keys+%d)(R0)", 8*i), s.keys[i])
		g.op("MOVD", fmt.Sprintf("(Score_Next+%d)(R0)", 8*i), s.next[i])
	}
	for i := range m * s.groups * 4 {
		g.zero(i)
	}
	g.op("LSR", "$1", dims, count)
	g.op("CBZ", count, "tail")
	g.line("\tPCALIGN $16")
	g.label("loop")
	for i := range s.groups {
		for line := 0; line < 2*kvGroup*kind.size; line += 64 {
			g.op("PRFM", at(line, s.next[i]), "PLDL1KEEP")
		}
		g.op("ADD", fmt.Sprintf("$%d", 2*kvGroup*kind.size), s.next[i])
	}
	s.steps(2, queries)
	g.op("ADD", fmt.Sprintf("$%d", 2*4*m), queries)
	for i := range s.groups {
		g.op("ADD", fmt.Sprintf("$%d", 2*kvGroup*kind.size), s.keys[i])
	}
	g.op("SUB", "$1", count)
	g.op("CBNZ", count, "loop")
	g.label("tail")
	g.op("TBZ", "$0", dims, "store")
	s.steps(1, queries)
	g.label("store")
	g.op("MOVD", "Score_Stride(R0)", stride)
	for group := range s.groups {
		scales := m * s.groups * 4
		if kind.name == "I8" {
			g.op("MOVD", fmt.Sprintf("(Score_Scales+%d)(R0)", 8*group), temp)
			g.pair(0, temp, scales)
			g.pair(32, temp, scales+2)
		}
		g.op("MOVD", fmt.Sprintf("(Score_Scores+%d)(R0)", 8*group), temp)
		for i := range m {
			for v := range 4 {
				if kind.name == "I8" {
					g.word("fmul", s.sum(i, group, v), s.sum(i, group, v), scales+v)
				}
			}
			g.storePair(s.sum(i, group, 0), 0, temp)
			g.storePair(s.sum(i, group, 2), 32, temp)
			if i+1 < m {
				g.op("ADD", stride, temp)
			}
		}
	}
	g.ret()
}

// steps adds the products of one dimension or two.
func (s *neonScore) steps(n int, queries string) {
	lanes, taken := s.floats(n*s.m, queries, s.m*s.groups*4)
	h := s.m*s.groups*4 + taken
	w := h + 1
	add := func(k, group, v, w int) {
		for i := range s.m {
			x, lane := lanes(k*s.m + i)
			s.word("fmla lane", s.sum(i, group, v), w, x, lane)
		}
	}
	for group := range s.groups {
		reg := s.keys[group]
		switch s.kind.name {
		case "F32":
			for k := range n {
				for v := 0; v < 4; v += 2 {
					s.pair(4*kvGroup*k+v*neonBytes, reg, h)
					add(k, group, v, h)
					add(k, group, v+1, w)
				}
			}
		case "BF16": // both dimensions of a token in 32 bits
			for v := range 4 {
				s.load(v*neonBytes, reg, h)
				s.op("VSHL", "$16", s4(h), s4(w))
				add(0, group, v, w)
				if n == 2 {
					s.zero(w)
					s.op("VTRN2", h8(h), h8(w), h8(h))
					add(1, group, v, h)
				}
			}
		case "I8":
			for k := range n {
				for v := 0; v < 4; v += 2 {
					s.bytes8(kvGroup*k+4*v, reg, h, w, func(w, i int) { add(k, group, v+i, w) })
				}
			}
		}
	}
}

// mix adds weighted rows of values to m sums, over n vectors of each.
//
// func mix(c *Mix)
func (g neon) mix(kind kvType, m, n int) {
	const values, valueStride, next, sums, sumStride, count, left = "R1", "R2", "R3", "R4", "R5", "R6", "R7"
	weights := ints[8:] // of each row
	weight, h := m*n, m*n+m
	w := h + 1
	g.function(mixName(neonISA, kind, m, n), 8)
	g.arg("c+0(FP)", "R0")
	g.op("MOVD", "Mix_WeightStride(R0)", left)
	g.op("MOVD", "Mix_Weights(R0)", weights[0])
	for i := 1; i < m; i++ {
		g.op("ADD", left+", "+weights[i-1], weights[i])
	}
	g.op("MOVD", "Mix_Values(R0)", values)
	g.op("MOVD", "Mix_ValueStride(R0)", valueStride)
	g.op("MOVD", "Mix_Next(R0)", next)
	g.op("MOVD", "Mix_SumStride(R0)", sumStride)
	g.op("MOVD", "Mix_Count(R0)", count)
	each := func(visit func(v, off int, reg string)) {
		g.op("MOVD", "Mix_Sums(R0)", sums)
		for i := range m {
			for v := 0; v < n; v += 2 {
				visit(i*n+v, v*neonBytes, sums)
			}
			if i+1 < m {
				g.op("ADD", sumStride, sums)
			}
		}
	}
	each(func(v, off int, reg string) { g.pair(off, reg, v) })
	position := func(lane int) {
		for line := 0; line < 4*n*kind.size; line += 64 {
			g.op("PRFM", at(line, next), "PLDL1KEEP")
		}
		add := func(v, w int) {
			for i := range m {
				g.word("fmla lane", i*n+v, w, weight+i, lane)
			}
		}
		for v := 0; v < n; v += 2 {
			switch kind.name {
			case "F32":
				g.pair(v*neonBytes, values, h)
				add(v, h)
				add(v+1, w)
			case "BF16":
				g.load(8*v, values, h)
				g.word("shll", w, h)
				add(v, w)
				g.word("shll2", h, h)
				add(v+1, h)
			case "I8":
				g.bytes8(4*v, values, h, w, func(w, i int) { add(v+i, w) })
			}
		}
		g.op("ADD", valueStride, values)
		g.op("ADD", valueStride, next)
	}
	g.op("LSR", "$2", count, left)
	g.op("CBZ", left, "rest")
	g.line("\tPCALIGN $16")
	g.label("loop")
	for i := range m { // weights of four positions
		g.op("FMOVQ.P", at(16, weights[i]), f(weight+i))
	}
	for lane := range 4 {
		position(lane)
	}
	g.op("SUB", "$1", left)
	g.op("CBNZ", left, "loop")
	g.label("rest")
	g.op("AND", "$3", count)
	g.op("CBZ", count, "store")
	g.label("one")
	for i := range m {
		g.op("FMOVS.P", at(4, weights[i]), f(weight+i))
	}
	position(0)
	g.op("SUB", "$1", count)
	g.op("CBNZ", count, "one")
	g.label("store")
	each(func(v, off int, reg string) { g.storePair(v, off, reg) })
	g.ret()
}

// neonAttentionDeclarations are the Go declarations of the kernels of attention, and
// the tables by which they are found.
func neonAttentionDeclarations() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("// Code generated by gen. DO NOT EDIT.\n\npackage kernel\n")
	for _, f := range attentionKernels {
		line("//go:noescape\nfunc "+f+"\n", neonISA.name)
	}
	for _, kind := range kvTypes {
		for m := 1; neonScoreGroups(m) > 0; m++ {
			line("//go:noescape\nfunc %s(c *Score)\n", scoreName(neonISA, kind, m))
		}
		for m := 1; m <= mixRows; m++ {
			for _, n := range neonMixVectors(m) {
				line("//go:noescape\nfunc %s(c *Mix)\n", mixName(neonISA, kind, m, n))
			}
		}
	}
	attentionTables(line, neonISA, neonScoreGroups, neonMixVectors)
	return formatted(b.String())
}
