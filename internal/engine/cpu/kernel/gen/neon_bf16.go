package main

import "fmt"

// neonBF16 is one kernel with FEAT_BF16: the products of some rows of activations in bf16
// with a panel of bf16 weights, in which two k of an output are side by side.
//
// Up to three rows take BFDOT: two k of four outputs by one row in an instruction, all 32
// outputs. Four and six rows take BFMMLA: four k of two outputs by two rows, which does
// the same arithmetic as two of BFDOT one after the other, for 16 outputs. The four k of an
// output are in two lines of the panel, which a zip brings together.
type neonBF16 struct {
	neon
	rows int

	next int // of the spare registers
}

// neonBF16Rows are those that kernels take.
var neonBF16Rows = []int{1, 2, 3, 4, 6}

const (
	neonBF16Call   = "R0"
	neonBF16Panel  = "R1"
	neonBF16Pairs  = "R2" // of k
	neonBF16Count  = "R3"
	neonBF16Dst    = "R4"
	neonBF16Stride = "R5"
	neonBF16Temp   = "R6"
)

func (g *neonBF16) fullName() string { return fmt.Sprintf("dotsBF16x%dNEON", g.rows) }
func (g *neonBF16) matrix() bool     { return g.rows > 3 }
func (g *neonBF16) row(i int) string { return ints[7+i] }

// outputs of a call.
func (g *neonBF16) outputs() int {
	if g.matrix() {
		return 16
	}
	return 32
}

// sums are registers of four: of a row, or of two rows by two outputs.
func (g *neonBF16) sums() int { return g.rows * g.outputs() / 4 }

// sum is that of row i and outputs 4·v and following.
func (g *neonBF16) sum(i, v int) int { return i*g.outputs()/4 + v }

// square is that of rows 2·pair and 2·pair + 1, and outputs 2·o and 2·o + 1.
func (g *neonBF16) square(pair, o int) int { return pair*g.outputs()/2 + o }

// x are activations of a row, or of two.
func (g *neonBF16) x(i int) int { return g.sums() + i }

// spare is the one whose last use is longest ago.
func (g *neonBF16) spare() int {
	first := g.x(g.rows)
	if g.matrix() {
		first = g.x(g.rows / 2)
	}
	r := first + g.next
	g.next = (g.next + 1) % (neonRegs - first)
	return r
}

func neonBF16s() string {
	t := header("Products of activations in bf16 for FEAT_BF16, see bf16.go.")
	for _, m := range neonBF16Rows {
		(&neonBF16{neon: neon{t}, rows: m}).generate()
	}
	return t.String()
}

// func dotsBF16(c *CallBF16, row, from int)
func (g *neonBF16) generate() {
	g.function(g.fullName(), 24)
	g.arg("c+0(FP)", neonBF16Call)
	g.arg("row+8(FP)", neonBF16Temp)
	g.op("MOVD", "CallBF16_Panel("+neonBF16Call+")", neonBF16Panel)
	g.op("MOVD", "CallBF16_Cols("+neonBF16Call+")", neonBF16Pairs)
	g.op("MOVD", "CallBF16_Dst("+neonBF16Call+")", neonBF16Dst)
	g.op("MOVD", "CallBF16_Stride("+neonBF16Call+")", neonBF16Stride)
	g.op("MOVD", "CallBF16_Src("+neonBF16Call+")", g.row(0))
	g.op("ADD", neonBF16Temp+"<<3", neonBF16Dst)
	g.op("MUL", neonBF16Stride, neonBF16Temp)
	g.op("ADD", neonBF16Temp, g.row(0))
	for i := range g.rows - 1 {
		g.op("ADD", neonBF16Stride, g.row(i), g.row(i+1))
	}
	g.arg("from+16(FP)", neonBF16Temp)
	g.op("ADD", neonBF16Temp+"<<2", neonBF16Panel)
	g.op("ADD", "$1", neonBF16Pairs)
	g.op("LSR", "$1", neonBF16Pairs)
	for v := range g.sums() {
		g.zero(v)
	}
	g.op("LSR", "$1", neonBF16Pairs, neonBF16Count)
	g.op("CBZ", neonBF16Count, "rest")
	g.line("\tPCALIGN $16")
	g.label("loop")
	lines := 64 // of the cache
	if g.matrix() {
		lines = lineBytes // every other one is that of other outputs
	}
	for off := 0; off < 2*lineBytes; off += lines {
		g.op("PRFM", at(4096+off, neonBF16Panel), "PLDL1KEEP")
	}
	g.four()
	g.op("ADD", fmt.Sprintf("$%d", 2*lineBytes), neonBF16Panel)
	g.op("SUB", "$1", neonBF16Count)
	g.op("CBNZ", neonBF16Count, "loop")
	g.label("rest")
	g.op("TBZ", "$0", neonBF16Pairs, "store")
	g.two()
	g.label("store")
	for i := range g.rows {
		g.op("MOVD", at(8*i, neonBF16Dst), neonBF16Count)
		g.op("ADD", neonBF16Temp+"<<2", neonBF16Count)
		if !g.matrix() {
			for v := 0; v < g.outputs()/4; v += 2 {
				g.storePair(g.sum(i, v), v*neonBytes, neonBF16Count)
			}
			continue
		}
		for v := range g.outputs() / 4 {
			s, t := g.square(i/2, 2*v), g.spare()
			g.op([2]string{"VZIP1", "VZIP2"}[i%2], d2(s+1), d2(s), d2(t))
			g.store(t, v*neonBytes, neonBF16Count)
		}
	}
	g.ret()
}

// four adds the products of four k.
func (g *neonBF16) four() {
	if g.matrix() {
		g.couples()
		g.squares(func(v, second int) {
			g.load(lineBytes+v*neonBytes, neonBF16Panel, second)
		})
		return
	}
	for i := range g.rows {
		g.op("FMOVD.P", at(8, g.row(i)), f(g.x(i)))
	}
	g.dots(0)
	g.dots(1)
}

// two adds the products of the last two k.
func (g *neonBF16) two() {
	if g.matrix() {
		// Activations go on with zeros, whose products with negative numbers are negative
		// zeros: these change no sum, not even the sign of a zero.
		g.couples()
		g.squares(func(_, second int) { g.op("VMOVI", "$0x80", b16(second)) })
		return
	}
	for i := range g.rows {
		g.op("FMOVS", at(0, g.row(i)), f(g.x(i)))
	}
	g.dots(0)
}

// dots adds two k to the sums of all rows.
func (g *neonBF16) dots(pair int) {
	for v := range g.outputs() / 4 {
		w := g.spare()
		g.load(pair*lineBytes+v*neonBytes, neonBF16Panel, w)
		for i := range g.rows {
			g.word("bfdot", g.sum(i, v), w, g.x(i), pair)
		}
	}
}

// couples loads four k of each two rows.
func (g *neonBF16) couples() {
	for pair := range g.rows / 2 {
		t := g.spare()
		g.op("FMOVD.P", at(8, g.row(2*pair)), f(g.x(pair)))
		g.op("FMOVD.P", at(8, g.row(2*pair+1)), f(t))
		g.op("VZIP1", d2(t), d2(g.x(pair)), d2(g.x(pair)))
	}
}

// squares adds four k to the sums of all rows. load fetches the second two.
func (g *neonBF16) squares(load func(v, second int)) {
	for v := range g.outputs() / 4 {
		first, second, t := g.spare(), g.spare(), g.spare()
		g.load(v*neonBytes, neonBF16Panel, first)
		load(v, second)
		g.op("VZIP2", s4(second), s4(first), s4(t))
		g.op("VZIP1", s4(second), s4(first), s4(first))
		for pair := range g.rows / 2 {
			g.word("bfmmla", g.square(pair, 2*v), g.x(pair), first)
			g.word("bfmmla", g.square(pair, 2*v+1), g.x(pair), t)
		}
	}
}
