package main

import "fmt"

// neonDots is a way to multiply bytes, both signed.
type neonDots struct {
	name string
	// sdot is whether four products are added to a sum in one instruction.
	sdot bool
}

var allNEONDots = []neonDots{{"SDOT", true}, {"NEON", false}}

// neonBlock is one kernel: the products of some rows of blocks with a run of the
// outputs of a panel of quantized weights. One row takes all 32 outputs, two or three
// rows take 16 of them at a time: their sums fill up to 12 registers, and those of the
// block at work as many.
//
// Lines of a panel have four k of an output in a lane, which is what SDOT wants. It
// multiplies signed bytes: weights of all types but Q8_0 fit as they are stored.
type neonBlock struct {
	neon
	dots neonDots
	quantized
	rows int
}

// neonBlockRows limits the rows of a kernel.
const neonBlockRows = 3

const (
	neonBlockCall   = "R0"
	neonBlockFrom   = "R1" // the first output
	neonBlockPanel  = "R2"
	neonBlockHeader = "R3" // of the superblock
	neonBlockLeft   = "R4" // turns of the loop
	neonBlockPairs  = "R5" // turns before the next superblock
	neonBlockTemp   = "R6"
)

func (g *neonBlock) fullName() string { return blockName(dots{name: g.dots.name}, g.quantized, g.rows) }

// vectors of outputs.
func (g *neonBlock) vectors() int {
	if g.rows == 1 {
		return 8
	}
	return 4
}

func (g *neonBlock) row(i int) string { return ints[7+i] }
func (g *neonBlock) sum(i, v int) int { return i*g.vectors() + v }
func (g *neonBlock) acc(i, v int) int { return g.rows*g.vectors() + g.sum(i, v) }
func (g *neonBlock) x(i int) int      { return 2*g.rows*g.vectors() + i }

// Registers after these: the last five.
const (
	neonMask   = 27 // of nibbles, or signs of bytes
	neonAbove  = 28 // mask of the bits above nibbles
	neonWeight = 29
	neonSpare  = 30 // two
)

func eachNEONBlock(t *text, visit func(g *neonBlock)) {
	for _, d := range allNEONDots {
		for _, f := range formats {
			for m := 1; m <= neonBlockRows; m++ {
				visit(&neonBlock{neon: neon{t}, dots: d, quantized: f, rows: m})
			}
		}
	}
}

func neonBlocks() string {
	t := header("Products with quantized weights, see block.go.")
	neon{t}.quantize()
	eachNEONBlock(t, (*neonBlock).generate)
	return t.String()
}

// func blocks(c *BlockCall, row, from int)
func (g *neonBlock) generate() {
	g.function(g.fullName(), 24)
	g.arg("c+0(FP)", neonBlockCall)
	g.arg("row+8(FP)", neonBlockTemp)
	g.op("ADD", neonBlockTemp+"<<3", neonBlockCall)
	for i := range g.rows {
		g.op("MOVD", fmt.Sprintf("(BlockCall_Src+%d)(%s)", 8*i, neonBlockCall), g.row(i))
	}
	g.arg("c+0(FP)", neonBlockTemp)
	g.op("MOVD", "BlockCall_Panel("+neonBlockTemp+")", neonBlockPanel)
	g.op("MOVD", "BlockCall_Blocks("+neonBlockTemp+")", neonBlockLeft)
	g.arg("from+16(FP)", neonBlockFrom)
	for i := range g.rows {
		for v := range g.vectors() {
			g.zero(g.sum(i, v))
		}
	}
	mask := 0x0F
	if g.bits == 8 {
		mask = 0x80
	}
	g.op("VMOVI", fmt.Sprintf("$%d", mask), b16(neonMask))
	if g.hasAbove() {
		g.op("VMOVI", fmt.Sprintf("$%d", (1<<g.bits-1)&^mask), b16(neonAbove))
	}
	if g.super {
		g.op("LSR", "$1", neonBlockLeft) // two blocks a turn
		g.label("superblock")
		g.op("ADD", neonBlockFrom+"<<1, "+neonBlockPanel, neonBlockHeader)
		g.prefetch(g.header)
		g.op("ADD", fmt.Sprintf("$%d", g.header), neonBlockPanel)
		g.op("MOVD", "$4", neonBlockPairs)
	}
	g.line("\tPCALIGN $16")
	g.label("loop")
	g.prefetch(g.quantized.bytes())
	for _, u := range g.units() {
		g.multiply(u)
		g.add(u)
	}
	for i := range g.rows {
		g.op("ADD", fmt.Sprintf("$%d", g.blocks()*blockBytes), g.row(i))
	}
	g.op("ADD", fmt.Sprintf("$%d", g.quantized.bytes()), neonBlockPanel)
	g.op("SUB", "$1", neonBlockLeft)
	if g.super {
		g.op("SUB", "$1", neonBlockPairs)
		g.op("CBNZ", neonBlockPairs, "loop")
		g.op("CBNZ", neonBlockLeft, "superblock")
	} else {
		g.op("CBNZ", neonBlockLeft, "loop")
	}
	for i := range g.rows {
		g.op("MOVD", fmt.Sprintf("(BlockCall_Dst+%d)(%s)", 8*i, neonBlockCall), neonBlockTemp)
		g.op("ADD", neonBlockFrom+"<<2", neonBlockTemp)
		for v := 0; v < g.vectors(); v += 2 {
			g.storePair(g.sum(i, v), v*neonBytes, neonBlockTemp)
		}
	}
	g.ret()
}

// prefetch asks for what comes a page later.
func (g *neonBlock) prefetch(bytes int) {
	for off := 0; off < bytes; off += 64 {
		g.op("PRFM", at(4096+off, neonBlockPanel), "PLDL1KEEP")
	}
}

// multiply makes the sums of a unit's products.
func (g *neonBlock) multiply(u unit) {
	for i := range g.rows {
		if g.start == "" || g.bits == 8 {
			for v := range g.vectors() {
				g.zero(g.acc(i, v))
			}
			continue
		}
		g.op("FMOVS", fmt.Sprintf("(%s+%d)(%s)", g.start, u.block*blockBytes+4*u.half, g.row(i)), f(g.x(i)))
		for v := range g.vectors() {
			g.op("VDUP", fmt.Sprintf("V%d.S[0]", g.x(i)), s4(g.acc(i, v)))
		}
	}
	for n, k := range u.groups {
		if n%4 == 0 { // activations of sixteen k
			for i := range g.rows {
				g.op("FMOVQ", fmt.Sprintf("(Block_Values+%d)(%s)", k.k, g.row(i)), f(g.x(i)))
			}
		}
		g.op("ADD", neonBlockFrom+"<<2, "+neonBlockPanel, neonBlockTemp)
		for v := range g.vectors() {
			g.weights(k, v)
			for i := range g.rows {
				g.products(g.acc(i, v), g.x(i), n%4)
			}
		}
	}
}

// weights loads four k of four outputs.
func (g *neonBlock) weights(k group, v int) {
	r := neonUnpack{mask: neonMask, above: neonAbove, spare: neonSpare}
	g.unpack(g.quantized, k, v, neonBlockTemp, neonWeight, r)
	if g.bits == 8 { // stored with an offset of 128
		g.op("VEOR", b16(neonMask), b16(neonWeight), b16(neonWeight))
	}
}

// neonUnpack are registers with masks of nibbles and of the bits above them, and a spare
// one.
type neonUnpack struct{ mask, above, spare int }

// unpack loads four k of four outputs, as they are stored: without sign.
func (g neon) unpack(q quantized, k group, v int, panel string, w int, r neonUnpack) {
	g.load(k.line+v*neonBytes, panel, w)
	switch {
	case q.bits == 8:
		return
	case k.high:
		g.op("VUSHR", "$4", b16(w), b16(w))
	default:
		g.op("VAND", b16(r.mask), b16(w), b16(w))
	}
	if !q.hasAbove() {
		return
	}
	t := r.spare
	g.load(k.above+v*neonBytes, panel, t)
	switch {
	case k.shift > 0:
		g.op("VSHL", fmt.Sprintf("$%d", k.shift), b16(t), b16(t))
	case k.shift < 0:
		g.op("VUSHR", fmt.Sprintf("$%d", -k.shift), b16(t), b16(t))
	}
	g.op("VBIT", b16(r.above), b16(t), b16(w))
}

// products adds those of the weights and four activations in a lane of x.
func (g *neonBlock) products(acc, x, lane int) {
	if g.dots.sdot {
		g.word("sdot", acc, neonWeight, x, lane)
		return
	}
	// Products have 15 bits with the sign, and sums of two 16: 2 · 128 · 127.
	low, high := neonSpare, neonSpare+1
	g.op("VDUP", fmt.Sprintf("V%d.S[%d]", x, lane), s4(high))
	g.word("smull", low, neonWeight, high)
	g.word("smull2", high, neonWeight, high)
	g.op("VADDP", h8(high), h8(low), h8(low))
	g.word("sadalp", acc, low)
}

// add adds the sums of a unit, times both scales, to those of the outputs.
func (g *neonBlock) add(u unit) {
	for i := range g.rows { // scale and sum of the block
		g.op("FMOVD", fmt.Sprintf("(Block_Scale+%d)(%s)", u.block*blockBytes, g.row(i)), f(g.x(i)))
	}
	scale, t, least := neonWeight, neonSpare, neonSpare+1
	header := neonBlockHeader
	if !g.super {
		header = neonBlockTemp
		g.op("ADD", neonBlockFrom+"<<1, "+neonBlockPanel, header)
	} else {
		g.op("ADD", neonBlockFrom+", "+neonBlockPanel, neonBlockTemp)
	}
	for v := range g.vectors() {
		g.widenHalves(8*v, header, scale)
		if g.super {
			g.small(g.quantized, 32*u.scale+4*v, neonBlockTemp, t)
			g.word("fmul", scale, scale, t)
		}
		if g.mins {
			g.widenHalves(64+8*v, header, least)
			g.small(g.quantized, 64+32*u.scale+4*v, neonBlockTemp, t)
			g.word("fmul", least, least, t)
		}
		for i := range g.rows {
			g.word("fmul lane", t, scale, g.x(i), 0)
			g.word("scvtf", g.acc(i, v), g.acc(i, v))
			g.op("VFMLA", s4(t), s4(g.acc(i, v)), s4(g.sum(i, v)))
			if g.mins {
				g.word("fmls lane", g.sum(i, v), least, g.x(i), 1)
			}
		}
	}
}

// widenHalves loads four values of f16.
func (g neon) widenHalves(off int, reg string, v int) {
	g.op("FMOVD", at(off, reg), f(v))
	g.word("fcvtl", v, v)
}

// small loads four integers of a byte, which have a sign where there are scales of
// halves only.
func (g neon) small(q quantized, off int, reg string, v int) {
	g.op("FMOVS", at(off, reg), f(v))
	if q.halves {
		g.word("sxtl 8b", v, v)
		g.word("sxtl 4h", v, v)
	} else {
		g.op("VUXTL", fmt.Sprintf("V%d.B8", v), h8(v))
		g.op("VUXTL", fmt.Sprintf("V%d.H4", v), s4(v))
	}
	g.word("scvtf", v, v)
}
