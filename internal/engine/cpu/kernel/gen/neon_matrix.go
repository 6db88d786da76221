package main

import "fmt"

// neonMatrix is one kernel with FEAT_I8MM: the products of six rows of blocks with eight
// outputs of a panel of quantized weights.
//
// USMMLA multiplies two outputs' eight k with those of two rows, and adds up four sums.
// Its weights have no sign, so all types go in as they are stored, and sums start at what
// the offset adds. Two lines of a panel have eight k of an output in two places, which a
// zip brings together. Kernels for fewer rows would gain nothing, because of the zips.
type neonMatrix struct {
	neon
	quantized
}

// Registers: twelve vectors of sums, and as many of the unit at work, which have two
// outputs of a pair of rows each.
const (
	neonMatrixPairs   = blockRows / 2
	neonMatrixOutputs = 8
	neonMatrixX       = 24 // a pair of rows each
	neonMatrixWeight  = 27 // two
	neonMatrixSpare   = 29
	neonMatrixMask    = 30 // of nibbles, or minima
	neonMatrixAbove   = 31 // mask of the bits above nibbles

	neonMatrixLines  = "R13" // lines of the outputs at work
	neonMatrixScales = "R14" // where their scales of this turn are
)

func (g *neonMatrix) fullName() string    { return "blocks" + g.quantized.name + "I8MM" }
func (g *neonMatrix) row(i int) string    { return ints[7+i] }
func (g *neonMatrix) sum(i, v int) int    { return i*neonMatrixOutputs/4 + v }
func (g *neonMatrix) acc(pair, o int) int { return 12 + pair*neonMatrixOutputs/2 + o }
func (g *neonMatrix) x(pair int) int      { return neonMatrixX + pair }

func eachNEONMatrix(t *text, visit func(g *neonMatrix)) {
	for _, f := range formats {
		visit(&neonMatrix{neon{t}, f})
	}
}

func neonMatrices() string {
	t := header("Products with quantized weights for FEAT_I8MM, see block.go.")
	eachNEONMatrix(t, (*neonMatrix).generate)
	return t.String()
}

// func blocks(c *BlockCall, from int)
func (g *neonMatrix) generate() {
	g.function(g.fullName(), 16)
	g.arg("c+0(FP)", neonBlockCall)
	g.arg("from+8(FP)", neonBlockFrom)
	g.op("MOVD", "BlockCall_Panel("+neonBlockCall+")", neonBlockPanel)
	g.op("MOVD", "BlockCall_Blocks("+neonBlockCall+")", neonBlockLeft)
	for i := range blockRows {
		g.op("MOVD", fmt.Sprintf("(BlockCall_Src+%d)(%s)", 8*i, neonBlockCall), g.row(i))
	}
	for i := range blockRows {
		for v := range neonMatrixOutputs / 4 {
			g.zero(g.sum(i, v))
		}
	}
	if g.hasAbove() {
		g.op("VMOVI", fmt.Sprintf("$%d", (1<<g.bits-1)&^15), b16(neonMatrixAbove))
	}
	if g.super {
		g.op("LSR", "$1", neonBlockLeft) // two blocks a turn
		g.label("superblock")
		g.op("ADD", neonBlockFrom+"<<1, "+neonBlockPanel, neonBlockHeader)
		g.op("PRFM", at(4096, neonBlockPanel), "PLDL1KEEP")
		g.op("ADD", fmt.Sprintf("$%d", g.header), neonBlockPanel)
		g.op("MOVD", "$4", neonBlockPairs)
	}
	g.line("\tPCALIGN $16")
	g.label("loop")
	g.op("ADD", neonBlockFrom+"<<2, "+neonBlockPanel, neonMatrixLines)
	if g.super {
		g.op("ADD", neonBlockFrom+", "+neonBlockPanel, neonMatrixScales)
	} else {
		g.op("ADD", neonBlockFrom+"<<1, "+neonBlockPanel, neonMatrixScales)
	}
	for off := 0; off < g.bytes(); off += lineBytes { // the other half of a line is another call's
		g.op("PRFM", at(4096+off, neonMatrixLines), "PLDL1KEEP")
	}
	for _, u := range g.units() {
		g.multiply(u)
		g.add(u)
	}
	for i := range blockRows {
		g.op("ADD", fmt.Sprintf("$%d", g.blocks()*blockBytes), g.row(i))
	}
	g.op("ADD", fmt.Sprintf("$%d", g.bytes()), neonBlockPanel)
	g.op("SUB", "$1", neonBlockLeft)
	if g.super {
		g.op("SUB", "$1", neonBlockPairs)
		g.op("CBNZ", neonBlockPairs, "loop")
		g.op("CBNZ", neonBlockLeft, "superblock")
	} else {
		g.op("CBNZ", neonBlockLeft, "loop")
	}
	for i := range blockRows {
		g.op("MOVD", fmt.Sprintf("(BlockCall_Dst+%d)(%s)", 8*i, neonBlockCall), neonBlockTemp)
		g.op("ADD", neonBlockFrom+"<<2", neonBlockTemp)
		g.storePair(g.sum(i, 0), 0, neonBlockTemp)
	}
	g.ret()
}

// couple fills x with a value of eight bytes, or a word, of each of two rows.
func (g *neonMatrix) couple(load, lanes, field string, off, pair int) {
	x, t := fmt.Sprintf("V%d.%s", g.x(pair), lanes), fmt.Sprintf("V%d.%s", neonMatrixSpare, lanes)
	g.op(load, fmt.Sprintf("(%s+%d)(%s)", field, off, g.row(2*pair)), f(g.x(pair)))
	g.op(load, fmt.Sprintf("(%s+%d)(%s)", field, off, g.row(2*pair+1)), f(neonMatrixSpare))
	g.op("VZIP1", t, x, x)
}

// multiply makes the sums of a unit's products.
func (g *neonMatrix) multiply(u unit) {
	for pair := range neonMatrixPairs {
		if g.start == "" {
			for o := range neonMatrixOutputs / 2 {
				g.zero(g.acc(pair, o))
			}
			continue
		}
		g.couple("FMOVS", "S4", g.start, u.block*blockBytes+4*u.half, pair)
		for o := range neonMatrixOutputs / 2 {
			g.op("VDUP", fmt.Sprintf("V%d.D[0]", g.x(pair)), d2(g.acc(pair, o)))
		}
	}
	if g.bits < 8 {
		g.op("VMOVI", "$15", b16(neonMatrixMask))
	}
	first, second, t := neonMatrixWeight, neonMatrixWeight+1, neonMatrixSpare
	r := neonUnpack{mask: neonMatrixMask, above: neonMatrixAbove, spare: t}
	for n := 0; n < len(u.groups); n += 2 {
		for pair := range neonMatrixPairs {
			g.couple("FMOVD", "D2", "Block_Values", u.groups[n].k, pair)
		}
		for v := range neonMatrixOutputs / 4 {
			g.unpack(g.quantized, u.groups[n], v, neonMatrixLines, first, r)
			g.unpack(g.quantized, u.groups[n+1], v, neonMatrixLines, second, r)
			g.op("VZIP2", s4(second), s4(first), s4(t))
			g.op("VZIP1", s4(second), s4(first), s4(first))
			for pair := range neonMatrixPairs {
				g.word("usmmla", g.acc(pair, 2*v), first, g.x(pair))
				g.word("usmmla", g.acc(pair, 2*v+1), t, g.x(pair))
			}
		}
	}
}

// add adds the sums of a unit, times both scales, to those of the outputs. Minima take
// the register of the mask.
func (g *neonMatrix) add(u unit) {
	for pair := range neonMatrixPairs { // scales and sums of both rows' blocks
		g.couple("FMOVD", "D2", "Block_Scale", u.block*blockBytes, pair)
	}
	scale, row, t, least := neonMatrixWeight, neonMatrixWeight+1, neonMatrixSpare, neonMatrixMask
	header := neonBlockHeader
	if !g.super {
		header = neonMatrixScales
	}
	for v := range neonMatrixOutputs / 4 {
		g.widenHalves(8*v, header, scale)
		if g.super {
			g.small(g.quantized, 32*u.scale+4*v, neonMatrixScales, t)
			g.word("fmul", scale, scale, t)
		}
		if g.mins {
			g.widenHalves(64+8*v, header, least)
			g.small(g.quantized, 64+32*u.scale+4*v, neonMatrixScales, t)
			g.word("fmul", least, least, t)
		}
		for i := range blockRows { // four outputs of a row
			acc, x, at := g.acc(i/2, 2*v), g.x(i/2), i%2*2
			g.op([2]string{"VUZP1", "VUZP2"}[i%2], s4(acc+1), s4(acc), s4(row))
			g.word("scvtf", row, row)
			g.word("fmul lane", t, scale, x, at)
			g.op("VFMLA", s4(t), s4(row), s4(g.sum(i, v)))
			if g.mins {
				g.word("fmls lane", g.sum(i, v), least, x, at+1)
			}
		}
	}
}
