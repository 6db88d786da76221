package main

import (
	"fmt"
	"strings"
)

// kvGroup is kernel.KVGroup.
const kvGroup = 16

// kvType is a type of keys and values.
type kvType struct {
	name string
	size int // bytes of one value
}

var kvTypes = []kvType{{"F32", 4}, {"BF16", 2}, {"I8", 1}}

// scoreGroups returns the number of groups of keys that the kernel for m queries takes, 0 for
// none: as many sums as there are registers for, and enough of them to hide the
// time of one addition.
func (a isa) scoreGroups(m int) int {
	switch {
	case a.regs == 32 && m <= 5:
		return 4
	case a.regs == 32 && m <= 12, a.regs == 16 && m <= 3:
		return 2
	case a.regs == 16 && m <= 6:
		return 1
	}
	return 0
}

// mixRows is the number of weighted sums that a kernel makes side by side.
const mixRows = 6

// mixVectors are the numbers of vectors of a row that a kernel for m rows handles
// together, the largest first.
func (a isa) mixVectors(m int) []int {
	switch {
	case a.regs == 32 && m <= 3:
		return []int{8, 4, 2, 1}
	case a.regs == 32:
		return []int{4, 2, 1}
	case m <= 3:
		return []int{4, 2}
	}
	return []int{2}
}

// attention are the kernels that read and write keys and values.
func attention(a isa) string {
	t := header("Attention, see attention.go and kv.go.")
	g := &vectorGen{text: t, isa: a}
	g.constants(append(kvConstants, constant{"lanes", bits(float32(a.lanes))})...)
	for i := range a.lanes {
		g.line("DATA iota%s<>+%d(SB)/4, $0x%08X", a.name, 4*i, bits(float32(i)))
	}
	g.line("GLOBL iota%s<>(SB), RODATA|NOPTR, $%d", a.name, g.bytes())
	g.softmax()
	g.narrow()
	g.largest()
	g.roundI8()
	for _, kind := range kvTypes {
		for m := 1; a.scoreGroups(m) > 0; m++ {
			g.score(kind, m)
		}
		for m := 1; m <= mixRows; m++ {
			for _, n := range a.mixVectors(m) {
				g.mix(kind, m, n)
			}
		}
	}
	return t.String()
}

// reduce brings the sixteen lanes of v(0), in AVX2 of v(0) and v(1), into the first
// of X0: lanes i and i+8, then i+4, i+2, i+1.
func (g *vectorGen) reduce(packed, scalar string) {
	if g.wide() {
		g.op("VEXTRACTF64X4", "$1", "Z0", "Y1")
	}
	g.op(packed, "Y1", "Y0", "Y0")
	g.op("VEXTRACTF128", "$1", "Y0", "X1")
	g.op(packed, "X1", "X0", "X0")
	g.op("VMOVHLPS", "X0", "X0", "X1")
	g.op(packed, "X1", "X0", "X0")
	g.op("VMOVSHDUP", "X0", "X1")
	g.op(scalar, "X1", "X0", "X0")
}

// softmax turns the scores of one query into weights, positions in lanes.
//
// func softmax(scores *float32, groups int, first, to float32) (top, norm float32)
func (g *vectorGen) softmax() {
	// The sums and largest values of sixteen lanes are in sum[0] and, in AVX2, sum[1].
	sum := []string{g.v(0), g.v(1)}
	row, n, y, top, first, to, pos, zero := g.v(2), g.v(3), g.v(4), g.v(5), g.v(6), g.v(7), g.v(8), g.v(9)
	inner, outer, least := g.mask(1, 10), g.mask(2, 11), g.mask(3, 12)
	g.function(g.name("softmax"), 32)
	g.op("MOVQ", "scores+0(FP)", "SI")
	g.op("MOVQ", "groups+8(FP)", "CX")
	g.op("VBROADCASTSS", "first+16(FP)", first)
	g.op("VBROADCASTSS", "to+20(FP)", to)
	g.op("VXORPS", zero, zero, zero)
	each := func(label string, body func(acc, mem string)) {
		g.op("VMOVUPS", g.c("iota"), pos)
		g.op("MOVQ", "SI", "DI")
		g.op("MOVQ", "CX", "R8")
		g.label(label)
		for off := 0; off < 64; off += g.bytes() {
			body(sum[off/g.bytes()], at(off, "DI"))
			g.op("VADDPS", g.c("lanes"), pos, pos)
		}
		g.op("ADDQ", "$64", "DI")
		g.op("DECQ", "R8")
		g.op("JNZ", label)
	}
	visible := func() {
		g.op("VCMPPS", greaterEqual, first, pos, inner)
		g.op("VCMPPS", less, to, pos, outer)
		g.both(inner, outer, inner)
	}
	start := func(value string) {
		for off := 0; off < 64; off += g.bytes() {
			g.op("VMOVUPS", value, sum[off/g.bytes()])
		}
	}
	start(g.c("negInf"))
	each("top", func(acc, mem string) {
		visible()
		g.choose(inner, mem, acc, row)
		g.op("VMAXPS", row, acc, acc)
	})
	g.reduce("VMAXPS", "VMAXSS")
	g.op("VMOVSS", "X0", "top+24(FP)")
	g.op("VBROADCASTSS", "X0", top)
	start(zero)
	each("exp", func(acc, mem string) {
		g.op("VMOVUPS", mem, row)
		g.op("VSUBPS", top, row, row)
		g.exp(row, n, y, least, "")
		visible()
		g.choose(inner, y, zero, y)
		g.op("VMOVUPS", y, mem)
		g.op("VADDPS", y, acc, acc)
	})
	g.reduce("VADDPS", "VADDSS")
	g.op("VMOVSS", "X0", "norm+28(FP)")
	g.ret()
}

// narrow rounds to bf16.
//
// func narrowBF16(dst *uint16, src *float32, n int)
func (g *vectorGen) narrow() {
	x, y, nan := g.v(0), g.v(1), g.mask(1, 2)
	g.function(g.name("narrowBF16"), 24)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "src+8(FP)", "SI")
	g.op("MOVQ", "n+16(FP)", "CX")
	g.each("CX", []string{"SI"}, func(off int) {
		g.op("VMOVUPS", at(off, "SI"), x)
		g.op("VCMPPS", "$3", x, x, nan) // unordered
		g.op("VPSRLD", "$16", x, y)
		g.op("VPSLLD", "$31", y, y)
		g.op("VPSRLD", "$31", y, y) // the last bit that stays
		g.op("VPADDD", x, y, y)
		g.op("VPADDD", g.c("belowHalf"), y, y)
		g.both32("VPORD", "VPOR", g.c("quiet"), x, x)
		g.choose(nan, x, y, x)
		g.op("VPSRLD", "$16", x, x)
		if g.wide() {
			g.op("VPMOVDW", x, "(DI)")
			g.op("ADDQ", "$32", "DI")
			return
		}
		g.op("VEXTRACTI128", "$1", x, "X1")
		g.op("VPACKUSDW", "X1", "X0", "X0")
		g.op("VMOVDQU", "X0", "(DI)")
		g.op("ADDQ", "$16", "DI")
	})
	g.ret()
}

// both32 is an operation on bits, which has a name of its own in AVX-512.
func (g *vectorGen) both32(wide, narrow string, operands ...string) {
	if g.wide() {
		g.op(wide, operands...)
	} else {
		g.op(narrow, operands...)
	}
}

// largest is the largest absolute value, or something that is not finite where there
// is one among the values: bits of positive numbers compare as integers.
//
// func largest(x *float32, n int) float32
func (g *vectorGen) largest() {
	g.function(g.name("largest"), 20)
	g.op("MOVQ", "x+0(FP)", "SI")
	g.op("MOVQ", "n+8(FP)", "CX")
	g.op("VPXOR", "Y0", "Y0", "Y0")
	g.op("VPXOR", "Y1", "Y1", "Y1")
	g.op("VMOVUPS", g.c("magnitude"), g.v(3))
	g.each("CX", []string{"SI"}, func(off int) {
		g.both32("VPANDD", "VPAND", at(off, "SI"), g.v(3), g.v(2))
		acc := g.v(off / g.bytes())
		g.op("VPMAXUD", g.v(2), acc, acc)
	})
	g.reduce("VPMAXUD", "VPMAXUD")
	g.op("VMOVSS", "X0", "ret+16(FP)")
	g.ret()
}

// roundI8 rounds x · factor to int8, to nearest even.
//
// func roundI8(dst *int8, x *float32, factor float32, n int)
func (g *vectorGen) roundI8() {
	g.function(g.name("roundI8"), 32)
	g.op("MOVQ", "dst+0(FP)", "DI")
	g.op("MOVQ", "x+8(FP)", "SI")
	g.op("VBROADCASTSS", "factor+16(FP)", g.v(7))
	g.op("MOVQ", "n+24(FP)", "CX")
	g.each("CX", []string{"SI"}, func(off int) {
		v := g.v(off / g.bytes())
		g.op("VMULPS", at(off, "SI"), g.v(7), v)
		g.op("VCVTPS2DQ", v, v)
		switch {
		case g.wide():
			g.op("VPMOVSDB", v, "(DI)")
			g.op("ADDQ", "$16", "DI")
		case off > 0:
			g.op("VPACKSSDW", "Y1", "Y0", "Y0")
			g.op("VPERMQ", "$0xD8", "Y0", "Y0")
			g.op("VEXTRACTI128", "$1", "Y0", "X1")
			g.op("VPACKSSWB", "X1", "X0", "X0")
			g.op("VMOVDQU", "X0", "(DI)")
			g.op("ADDQ", "$16", "DI")
		}
	})
	g.ret()
}

func scoreName(a isa, kind kvType, m int) string {
	return fmt.Sprintf("score%sx%d%s", kind.name, m, a.name)
}

// scoreKeys and scoreNext address the groups of keys and what is read next.
var (
	scoreKeys = []string{"R8", "R9", "R10", "R11"}
	scoreNext = []string{"R12", "R13", "R14", "R15"}
)

// score multiplies m queries with some groups of keys. Every score is one sum over
// the dimensions from first to last, made of fused multiply-adds that start at zero.
//
// func score(c *Score)
func (g *vectorGen) score(kind kvType, m int) {
	groups := g.scoreGroups(m)
	per := kvGroup / g.lanes // vectors of a group
	s := &scoreGen{vectorGen: g, kind: kind, m: m, groups: groups, per: per, vectors: groups * per}
	g.function(scoreName(g.isa, kind, m), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Score_Queries(AX)", "SI")
	g.op("MOVQ", "Score_Dims(AX)", "CX")
	for i := range groups {
		g.op("MOVQ", fmt.Sprintf("(Score_Keys+%d)(AX)", 8*i), scoreKeys[i])
		g.op("MOVQ", fmt.Sprintf("(Score_Next+%d)(AX)", 8*i), scoreNext[i])
	}
	for i := range m * s.vectors {
		g.op("VXORPS", g.v(i), g.v(i), g.v(i))
	}
	g.op("XORQ", "DX", "DX") // how far in each group
	g.op("SHRQ", "$1", "CX")
	g.op("JZ", "tail")
	g.line("\tPCALIGN $32")
	g.label("loop")
	for i := range groups {
		for line := 0; line < 2*kvGroup*kind.size; line += 64 {
			g.op("PREFETCHT1", fmt.Sprintf("%d(%s)(DX*1)", line, scoreNext[i]))
		}
	}
	s.step(0)
	s.step(1)
	g.op("ADDQ", fmt.Sprintf("$%d", 2*4*m), "SI")
	g.op("ADDQ", fmt.Sprintf("$%d", 2*kvGroup*kind.size), "DX")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.label("tail")
	g.op("TESTQ", "$1", "Score_Dims(AX)")
	g.op("JZ", "store")
	s.step(0)
	g.label("store")
	g.op("MOVQ", "Score_Stride(AX)", "DX")
	for group := range groups {
		if kind.name == "I8" {
			g.op("MOVQ", fmt.Sprintf("(Score_Scales+%d)(AX)", 8*group), "SI")
		}
		g.op("MOVQ", fmt.Sprintf("(Score_Scores+%d)(AX)", 8*group), "DI")
		for i := range m {
			for v := range per {
				acc := g.v(i*s.vectors + group*per + v)
				if kind.name == "I8" {
					g.op("VMULPS", at(v*g.bytes(), "SI"), acc, acc)
				}
				g.op("VMOVUPS", acc, at(v*g.bytes(), "DI"))
			}
			if i+1 < m {
				g.op("ADDQ", "DX", "DI")
			}
		}
	}
	g.ret()
}

type scoreGen struct {
	*vectorGen
	kind                    kvType
	m, groups, per, vectors int
}

// step adds the products of one dimension, the first or the second of a pair.
func (s *scoreGen) step(k int) {
	acc := s.m * s.vectors
	query := func(i int) string { return at(4*(k*s.m+i), "SI") }
	if acc+s.vectors+1 <= s.regs { // keys stay, queries come one by one
		for v := range s.vectors {
			s.keys(k, v, s.v(acc+v))
		}
		x := s.v(acc + s.vectors)
		for i := range s.m {
			s.op("VBROADCASTSS", query(i), x)
			for v := range s.vectors {
				s.op("VFMADD231PS", s.v(acc+v), x, s.v(i*s.vectors+v))
			}
		}
		return
	}
	for i := range s.m { // queries stay
		s.op("VBROADCASTSS", query(i), s.v(acc+i))
	}
	w := s.v(acc + s.m)
	for v := range s.vectors {
		s.keys(k, v, w)
		for i := range s.m {
			s.op("VFMADD231PS", w, s.v(acc+i), s.v(i*s.vectors+v))
		}
	}
}

// keys loads one dimension of a vector of positions.
func (s *scoreGen) keys(k, v int, reg string) {
	group, part := v/s.per, v%s.per
	mem := func(off int) string { return fmt.Sprintf("%d(%s)(DX*1)", off, scoreKeys[group]) }
	switch s.kind.name {
	case "F32":
		s.op("VMOVUPS", mem(4*kvGroup*k+part*s.bytes()), reg)
	case "BF16": // both dimensions of a position in 32 bits
		if k == 0 {
			s.op("VMOVUPS", mem(part*s.bytes()), reg)
			s.op("VPSLLD", "$16", reg, reg)
			return
		}
		s.op("VMOVUPS", s.c("high"), reg)
		s.op("VANDPS", mem(part*s.bytes()), reg, reg)
	case "I8":
		s.op("VPMOVSXBD", mem(kvGroup*k+part*s.lanes), reg)
		s.op("VCVTDQ2PS", reg, reg)
	}
}

func mixName(a isa, kind kvType, m, n int) string {
	return fmt.Sprintf("mix%sx%dx%d%s", kind.name, m, n*a.lanes, a.name)
}

// mix adds weighted rows of values to m sums, over n vectors of each.
//
// func mix(c *Mix)
func (g *vectorGen) mix(kind kvType, m, n int) {
	g.function(mixName(g.isa, kind, m, n), 8)
	g.op("MOVQ", "c+0(FP)", "AX")
	g.op("MOVQ", "Mix_Weights(AX)", "SI")
	g.op("MOVQ", "Mix_WeightStride(AX)", "R8")
	g.op("LEAQ", "(R8)(R8*2)", "R11")
	g.op("LEAQ", "(R8)(R8*4)", "R12")
	g.op("MOVQ", "Mix_Values(AX)", "DX")
	g.op("MOVQ", "Mix_ValueStride(AX)", "R9")
	g.op("MOVQ", "Mix_Next(AX)", "BX")
	g.op("MOVQ", "Mix_SumStride(AX)", "R10")
	g.op("MOVQ", "Mix_Count(AX)", "CX")
	weight := func(i int) string {
		return "(SI)" + []string{"", "(R8*1)", "(R8*2)", "(R11*1)", "(R8*4)", "(R12*1)"}[i]
	}
	value := func(v int, reg string) {
		mem := at(v*g.lanes*kind.size, "DX")
		switch kind.name {
		case "F32":
			g.op("VMOVUPS", mem, reg)
		case "BF16":
			g.op("VPMOVZXWD", mem, reg)
			g.op("VPSLLD", "$16", reg, reg)
		case "I8":
			g.op("VPMOVSXBD", mem, reg)
			g.op("VCVTDQ2PS", reg, reg)
		}
	}
	sums := func(visit func(acc, mem string)) {
		g.op("MOVQ", "Mix_Sums(AX)", "DI")
		for i := range m {
			for v := range n {
				visit(g.v(i*n+v), at(v*g.bytes(), "DI"))
			}
			if i+1 < m {
				g.op("ADDQ", "R10", "DI")
			}
		}
	}
	sums(func(acc, mem string) { g.op("VMOVUPS", mem, acc) })
	g.line("\tPCALIGN $32")
	g.label("loop")
	for line := 0; line < n*g.lanes*kind.size; line += 64 {
		g.op("PREFETCHT1", at(line, "BX"))
	}
	if m*n+n+1 <= g.regs { // values stay, weights come one by one
		for v := range n {
			value(v, g.v(m*n+v))
		}
		w := g.v(m*n + n)
		for i := range m {
			g.op("VBROADCASTSS", weight(i), w)
			for v := range n {
				g.op("VFMADD231PS", g.v(m*n+v), w, g.v(i*n+v))
			}
		}
	} else { // weights stay
		for i := range m {
			g.op("VBROADCASTSS", weight(i), g.v(m*n+i))
		}
		x := g.v(m*n + m)
		for v := range n {
			value(v, x)
			for i := range m {
				g.op("VFMADD231PS", x, g.v(m*n+i), g.v(i*n+v))
			}
		}
	}
	g.op("ADDQ", "$4", "SI")
	g.op("ADDQ", "R9", "DX")
	g.op("ADDQ", "R9", "BX")
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	sums(func(acc, mem string) { g.op("VMOVUPS", acc, mem) })
	g.ret()
}

// attentionKernels are the declarations of the kernels of attention of which there is
// one each.
var attentionKernels = []string{
	"softmax%s(scores *float32, groups int, first, to float32) (top, norm float32)",
	"narrowBF16%s(dst *uint16, src *float32, n int)",
	"largest%s(x *float32, n int) float32",
	"roundI8%s(dst *int8, x *float32, factor float32, n int)",
}

// attentionDeclarations are the Go declarations of the kernels of attention, and
// the tables by which they are found.
func attentionDeclarations() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("// Code generated by gen. DO NOT EDIT.\n\npackage kernel\n")
	for _, a := range []isa{avx512, avx2} {
		for _, f := range attentionKernels {
			line("//go:noescape\nfunc "+f+"\n", a.name)
		}
		for _, kind := range kvTypes {
			for m := 1; a.scoreGroups(m) > 0; m++ {
				line("//go:noescape\nfunc %s(c *Score)\n", scoreName(a, kind, m))
			}
			for m := 1; m <= mixRows; m++ {
				for _, n := range a.mixVectors(m) {
					line("//go:noescape\nfunc %s(c *Mix)\n", mixName(a, kind, m, n))
				}
			}
		}
	}
	for _, a := range []isa{avx512, avx2} {
		attentionTables(line, a, a.scoreGroups, a.mixVectors)
	}
	attentionPairsDeclarations(line)
	return formatted(b.String())
}

// attentionTables writes the tables of one instruction set.
func attentionTables(line func(format string, args ...any), a isa, scoreGroups func(m int) int, mixVectors func(m int) []int) {
	line("// scores%s finds a product with keys by their type and the number of queries.", a.name)
	line("var scores%s = [...][scoreQueries + 1]func(*Score){", a.name)
	for _, kind := range kvTypes {
		line("KV%s: {", kind.name)
		for m := 1; scoreGroups(m) > 0; m++ {
			line("%d: %s,", m, scoreName(a, kind, m))
		}
		line("},")
	}
	line("}\n")
	line("// mixes%s finds a weighted sum by type of values, rows and sixteens of a row.", a.name)
	line("var mixes%s = [...][mixRows + 1][9]func(*Mix){", a.name)
	for _, kind := range kvTypes {
		line("KV%s: {", kind.name)
		for m := 1; m <= mixRows; m++ {
			line("%d: {", m)
			for _, n := range mixVectors(m) {
				line("%d: %s,", n*a.lanes/16, mixName(a, kind, m, n))
			}
			line("},")
		}
		line("},")
	}
	line("}\n")
}
