package main

import "fmt"

// blockRows is the number of activation rows in a product with quantized weights.
const blockRows = 6

// Sizes of kernel.Block, and of a line of weights: four k of 32 outputs.
const (
	blockBytes = 64
	lineBytes  = 128
)

// dots is a way to multiply bytes: unsigned weights by signed activations.
type dots struct {
	isa
	name string
	// vnni is whether four products are added to a sum in one instruction.
	vnni bool
}

var (
	vnni512 = dots{avx512, "VNNI512", true}
	vnni256 = dots{avx2, "VNNI256", true}
	pairs   = dots{avx2, "AVX2", false}
)

// quantized is a type of quantized weights as panels hold it, see pack_block.go.
type quantized struct {
	name string
	bits int // of the values: 8 in bytes, others in nibbles and lines of what is above
	// Blocks with one scale, or superblocks of eight with a header and four pairs.
	super  bool
	header int  // bytes of a superblock's header
	scales int  // bytes of scales before the weights of a block or pair
	mins   bool // a minimum for each scale
	halves bool // a scale for each 16 weights
	start  string
}

var formats = []quantized{
	{name: "Q8_0", bits: 8, scales: 64, start: "Block_Minus128"},
	{name: "Q4_0", bits: 4, scales: 64, start: "Block_Minus8"},
	{name: "Q4K", bits: 4, super: true, header: 128, scales: 128, mins: true},
	{name: "Q5K", bits: 5, super: true, header: 128, scales: 128, mins: true},
	{name: "Q6K", bits: 6, super: true, header: 64, scales: 128, halves: true, start: "Block_Minus32"},
}

// blocks returns the number of activation blocks in one turn of the inner loop.
func (f quantized) blocks() int {
	if f.super {
		return 2
	}
	return 1
}

// bytes of a panel for one turn of the inner loop, without a superblock's header.
func (f quantized) bytes() int {
	return f.scales + f.blocks()*f.bits*lineBytes
}

// group is four k of all outputs.
type group struct {
	line int // offset in the panel
	high bool
	k    int // offset in the activations
	// above is the line of the bits above nibbles, and shift brings those of the group
	// to their place: to the left, or to the right if it is negative.
	above, shift int
}

// unit is a run of groups with one scale.
type unit struct {
	groups []group
	block  int // of activations in this turn of the loop
	half   int // of the block
	scale  int // index of the scale
}

// units returns the units of one turn of the inner loop; pack_block.go has the order.
func (f quantized) units() []unit {
	var out []unit
	for b := range f.blocks() {
		u := unit{block: b, scale: b}
		for g := range 8 {
			x := group{line: f.scales + (8*b+g)*lineBytes, k: b*blockBytes + 4*g}
			switch {
			case f.super:
				x.line, x.high = f.scales+g*lineBytes, b == 1
			case f.bits == 4:
				x.line, x.high = f.scales+g%4*lineBytes, g >= 4
			}
			if n := f.bits - 4; f.super && n > 0 { // so many bits above
				perLine := 8 / n
				x.above = f.scales + (8+n*b+g/perLine)*lineBytes
				x.shift = 4 - n*(g%perLine)
			}
			u.groups = append(u.groups, x)
		}
		if !f.halves {
			out = append(out, u)
			continue
		}
		for h := range 2 {
			out = append(out, unit{groups: u.groups[4*h : 4*h+4], block: b, half: h, scale: 2*b + h})
		}
	}
	return out
}

func blockName(d dots, f quantized, m int) string {
	return fmt.Sprintf("blocks%sx%d%s", f.name, m, d.name)
}

// blockProducts are the products of rows of blocks with panels of quantized weights.
// Sums of products of bytes are exact; each block's is converted and added to the
// output's sum in one fused multiply-add, from the first block to the last.
func blockProducts(all ...dots) string {
	t := header("Products with quantized weights, see block.go.")
	t.line("")
	for _, c := range []struct {
		name string
		bits uint32
	}{{"nibbles", 0x0F0F0F0F}, {"above5", 0x10101010}, {"above6", 0x30303030}, {"signs", 0x80808080}, {"ones", 0x00010001}} {
		for i := range 16 {
			t.line("DATA %s%s<>+%d(SB)/4, $0x%08X", c.name, all[0].isa.name, 4*i, c.bits)
		}
		t.line("GLOBL %s%s<>(SB), RODATA|NOPTR, $64", c.name, all[0].isa.name)
	}
	if all[0].isa.name == avx2.name {
		quantize(t)
	} else {
		unpacks(t)
	}
	for _, d := range all {
		for _, f := range formats {
			for m := 1; m <= blockRows; m++ {
				g := &blockGen{text: t, dots: d, quantized: f, rows: m}
				g.product()
			}
		}
	}
	return t.String()
}

type blockGen struct {
	*text
	dots
	quantized
	rows int
}

func (g *blockGen) constant(name string) string { return fmt.Sprintf("%s%s<>(SB)", name, g.isa.name) }

// Registers beside rowRegs, of which six are used, panelReg and indexReg.
const (
	headerReg = "R9" // of the superblock
	callReg   = "R10"
	laneReg   = "R11" // the first of the outputs at work, with AVX2
	aheadReg  = "R12" // what to prefetch next
	paceReg   = "R13" // and how far that is from one turn of the loop to the next
)

// inLaneReg stands for an output whose number is in laneReg.
const inLaneReg = -1

// product is one kernel for m rows.
//
// func blocks(c *BlockCall)
func (g *blockGen) product() {
	g.function(blockName(g.dots, g.quantized, g.rows), 8)
	g.op("MOVQ", "c+0(FP)", callReg)
	g.op("MOVQ", "BlockCall_Panel("+callReg+")", panelReg)
	g.op("MOVQ", "BlockCall_Blocks("+callReg+")", indexReg)
	g.op("SHLQ", "$6", indexReg)
	g.op("MOVQ", "BlockCall_Ahead("+callReg+")", aheadReg)
	g.op("MOVQ", "BlockCall_Pace("+callReg+")", paceReg)
	for i := range g.rows { // rows are addressed from their ends
		g.op("MOVQ", fmt.Sprintf("(BlockCall_Src+%d)(%s)", 8*i, callReg), rowRegs[i])
		g.op("ADDQ", indexReg, rowRegs[i])
	}
	g.op("NEGQ", indexReg)
	body := g.narrow
	if g.isa.regs == 32 {
		body = g.wide
	}
	body()
}

// loop runs the inner loop over all blocks.
func (g *blockGen) loop(body func()) {
	if g.super {
		g.label("superblock")
		g.op("MOVQ", panelReg, headerReg)
		g.op("ADDQ", fmt.Sprintf("$%d", g.header), panelReg)
	}
	g.line("\tPCALIGN $32")
	g.label("loop")
	for off := range (g.turn() + 63) / 64 {
		g.op("PREFETCHT1", at(64*off, aheadReg))
	}
	g.op("ADDQ", paceReg, aheadReg)
	body()
	g.op("ADDQ", fmt.Sprintf("$%d", g.quantized.bytes()), panelReg)
	g.op("ADDQ", fmt.Sprintf("$%d", g.blocks()*blockBytes), indexReg)
	if g.super {
		g.op("TESTQ", fmt.Sprintf("$%d", 8*blockBytes-1), indexReg)
		g.op("JNZ", "loop")
		g.op("TESTQ", indexReg, indexReg)
		g.op("JNZ", "superblock")
		return
	}
	g.op("JNZ", "loop")
}

// turn returns the bytes of a panel in one turn of the inner loop, superblocks' headers
// included.
func (f quantized) turn() int {
	if f.super {
		return f.bytes() + f.header/4
	}
	return f.bytes()
}

// x is a field of a row's block of activations.
func (g *blockGen) x(i int, field string, off int) string {
	if field == "" {
		field = "Block_Values"
	}
	return fmt.Sprintf("(%s+%d)(%s)(%s*1)", field, off, rowRegs[i], indexReg)
}

// wide makes all outputs of the panel at once and keeps their sums in registers.
func (g *blockGen) wide() {
	m := g.rows
	sum := func(i, v int) string { return g.v(2*i + v) }
	acc := func(i, v int) string { return g.v(2*m + 2*i + v) }
	w := func(v int) string { return g.v(4*m + v) }
	x, t, mask := g.v(4*m+2), g.v(4*m+3), g.v(4*m+4)
	scale := func(v int) string { return g.v(4*m + 5 + v) }
	above := g.v(31)
	for i := range m {
		for v := range 2 {
			g.op("VXORPS", sum(i, v), sum(i, v), sum(i, v))
		}
	}
	if g.bits < 8 {
		g.op("VMOVDQU64", g.constant("nibbles"), mask)
	}
	if g.hasAbove() {
		g.op("VMOVDQU64", g.constant(g.aboveMask()), above)
	}
	g.loop(func() {
		for _, u := range g.units() {
			for i := range m {
				for v := range 2 {
					if g.start == "" {
						g.op("VPXORD", acc(i, v), acc(i, v), acc(i, v))
					} else {
						g.op("VPBROADCASTD", g.x(i, g.start, u.block*blockBytes+4*u.half), acc(i, v))
					}
				}
			}
			for _, k := range u.groups {
				for v := range 2 {
					g.wideWeights(k, v, w(v), t, mask, above)
				}
				for i := range m {
					g.op("VPBROADCASTD", g.x(i, "", k.k), x)
					for v := range 2 {
						g.op("VPDPBUSD", x, w(v), acc(i, v))
					}
				}
			}
			for v := range 2 {
				g.scale(u, 16*v, scale(v), t, w(v))
			}
			for i := range m {
				g.op("VBROADCASTSS", g.x(i, "Block_Scale", u.block*blockBytes), x)
				for v := range 2 {
					g.op("VMULPS", scale(v), x, t)
					g.op("VCVTDQ2PS", acc(i, v), acc(i, v))
					g.op("VFMADD231PS", t, acc(i, v), sum(i, v))
				}
				if g.mins {
					g.op("VBROADCASTSS", g.x(i, "Block_Sum", u.block*blockBytes), x)
					for v := range 2 {
						g.op("VFNMADD231PS", w(v), x, sum(i, v))
					}
				}
			}
		}
	})
	for i := range m {
		g.op("MOVQ", fmt.Sprintf("(BlockCall_Dst+%d)(%s)", 8*i, callReg), "BX")
		for v := range 2 {
			g.op("VMOVUPS", sum(i, v), fmt.Sprintf("%d(BX)", 64*v))
		}
	}
	g.ret()
}

// wideWeights loads sixteen outputs of a group.
func (g *blockGen) wideWeights(k group, v int, w, t, nibbles, above string) {
	const orAnd = "$0xF8" // w | t & above
	at := func(line int) string { return fmt.Sprintf("%d(%s)", line+64*v, panelReg) }
	switch {
	case g.bits == 8:
		g.op("VMOVDQU64", at(k.line), w)
		return
	case k.high:
		g.op("VPSRLW", "$4", at(k.line), w)
		g.op("VPANDD", nibbles, w, w)
	default:
		g.op("VPANDD", at(k.line), nibbles, w)
	}
	switch {
	case !g.hasAbove():
	case k.shift == 0:
		g.op("VPTERNLOGD", orAnd, at(k.above), above, w)
	default:
		name, count := shift(k.shift)
		g.op(name, count, at(k.above), t)
		g.op("VPTERNLOGD", orAnd, t, above, w)
	}
}

// hasAbove reports whether there are lines of bits above the nibbles.
func (f quantized) hasAbove() bool { return f.super && f.bits > 4 }

func (f quantized) aboveMask() string { return fmt.Sprintf("above%d", f.bits) }

// shift is the instruction that moves words by n bits to the left or to the right.
func shift(n int) (name, count string) {
	if n < 0 {
		return "VPSRLW", fmt.Sprintf("$%d", -n)
	}
	return "VPSLLW", fmt.Sprintf("$%d", n)
}

// scale loads the scales of a unit, and its minima, for the outputs from lane on.
// lane may be inLaneReg.
func (g *blockGen) scale(u unit, lane int, dst, t, least string) {
	at := func(off, size int, reg string) string {
		if lane == inLaneReg {
			return fmt.Sprintf("%d(%s)(%s*%d)", off, reg, laneReg, size)
		}
		return fmt.Sprintf("%d(%s)", off+lane*size, reg)
	}
	if !g.super {
		g.op("VCVTPH2PS", at(0, 2, panelReg), dst)
		return
	}
	extend := "VPMOVZXBD"
	if g.halves {
		extend = "VPMOVSXBD"
	}
	g.op(extend, at(32*u.scale, 1, panelReg), dst)
	g.op("VCVTDQ2PS", dst, dst)
	g.op("VCVTPH2PS", at(0, 2, headerReg), t)
	g.op("VMULPS", t, dst, dst)
	if g.mins {
		g.op(extend, at(64+32*u.scale, 1, panelReg), least)
		g.op("VCVTDQ2PS", least, least)
		g.op("VCVTPH2PS", at(64, 2, headerReg), t)
		g.op("VMULPS", t, least, least)
	}
}
