package main

import "fmt"

// groups16 is how many groups' products, added up in pairs, fit into 16 bits: without
// VNNI that is done first. Bytes of eight bits are multiplied with their sign instead,
// one group at a time: 2 · 128 · 127 fits.
func (f quantized) groups16() int {
	if f.bits == 8 {
		return 1
	}
	return 32767 / (2 * 127 * (1<<f.bits - 1))
}

// narrow makes eight outputs at a time and keeps the sums of all in the call.
func (g *blockGen) narrow() {
	m := g.rows
	part := g.v // sums of 16 bits
	acc := func(i int) string { return g.v(blockRows + i) }
	w, least, t, x := g.v(12), g.v(13), g.v(14), g.v(15)
	scale := w
	sum := func(i int) string {
		return fmt.Sprintf("(BlockCall_Sums+%d)(%s)(%s*4)", 4*32*i, callReg, laneReg)
	}
	g.op("VXORPS", t, t, t)
	for i := range m {
		for v := range 4 {
			g.op("VMOVUPS", t, fmt.Sprintf("(BlockCall_Sums+%d)(%s)", 4*32*i+32*v, callReg))
		}
	}
	g.loop(func() {
		g.op("XORL", laneReg, laneReg)
		g.label("lane")
		for _, u := range g.units() {
			for i := range m {
				if g.start == "" || g.signed() {
					g.op("VPXOR", acc(i), acc(i), acc(i))
				} else {
					g.op("VPBROADCASTD", g.x(i, g.start, u.block*blockBytes+4*u.half), acc(i))
				}
			}
			for n, k := range u.groups {
				g.narrowWeights(k, w, t)
				if g.signed() {
					g.op("VPABSB", w, least)
				}
				// Where this group's products go, and whether they move on to the sums.
				first := n%g.groups16() == 0
				last := (n+1)%g.groups16() == 0 || n == len(u.groups)-1
				for i := range m {
					g.op("VPBROADCASTD", g.x(i, "", k.k), x)
					switch {
					case g.vnni:
						g.line("\t%s // VPDPBUSD %s, %s, %s", vexVPDPBUSD(blockRows+i, 12, 15), x, w, acc(i))
						continue
					case g.signed():
						g.op("VPSIGNB", w, x, x)
						g.op("VPMADDUBSW", x, least, part(i))
					case first:
						g.op("VPMADDUBSW", x, w, part(i))
					default:
						g.op("VPMADDUBSW", x, w, x)
						g.op("VPADDW", x, part(i), part(i))
					}
					if last {
						g.op("VPMADDWD", g.constant("ones"), part(i), part(i))
						g.op("VPADDD", part(i), acc(i), acc(i))
					}
				}
			}
			g.scale(u, inLaneReg, scale, t, least)
			for i := range m {
				g.op("VBROADCASTSS", g.x(i, "Block_Scale", u.block*blockBytes), x)
				g.op("VMULPS", scale, x, t)
				g.op("VCVTDQ2PS", acc(i), acc(i))
				g.op("VMOVUPS", sum(i), part(i))
				g.op("VFMADD231PS", t, acc(i), part(i))
				if g.mins {
					g.op("VBROADCASTSS", g.x(i, "Block_Sum", u.block*blockBytes), x)
					g.op("VFNMADD231PS", least, x, part(i))
				}
				g.op("VMOVUPS", part(i), sum(i))
			}
		}
		g.op("ADDQ", "$8", laneReg)
		g.op("CMPQ", laneReg, "$32")
		g.op("JNE", "lane")
	})
	for i := range m {
		g.op("MOVQ", fmt.Sprintf("(BlockCall_Dst+%d)(%s)", 8*i, callReg), "BX")
		for v := range 4 {
			g.op("VMOVUPS", fmt.Sprintf("(BlockCall_Sums+%d)(%s)", 4*32*i+32*v, callReg), t)
			g.op("VMOVUPS", t, fmt.Sprintf("%d(BX)", 32*v))
		}
	}
	g.ret()
}

// signed reports whether bytes of weights are multiplied with their sign.
func (g *blockGen) signed() bool { return g.bits == 8 && !g.vnni }

// narrowWeights loads those of a group for the outputs at work.
func (g *blockGen) narrowWeights(k group, w, t string) {
	at := func(line int) string { return fmt.Sprintf("%d(%s)(%s*4)", line, panelReg, laneReg) }
	g.op("VMOVDQU", at(k.line), w)
	switch {
	case g.signed():
		g.op("VPXOR", g.constant("signs"), w, w)
	case g.bits == 8:
	case k.high:
		g.op("VPSRLW", "$4", w, w)
		fallthrough
	default:
		g.op("VPAND", g.constant("nibbles"), w, w)
	}
	if g.hasAbove() {
		g.op("VMOVDQU", at(k.above), t)
		if k.shift != 0 {
			name, count := shift(k.shift)
			g.op(name, count, t, t)
		}
		g.op("VPAND", g.constant(g.aboveMask()), t, t)
		g.op("VPOR", t, w, w)
	}
}

// vexVPDPBUSD is the instruction on registers of 256 bits as machines without
// AVX-512 have it (AVX-VNNI): the assembler knows that of AVX-512 only. It adds to
// each sum the products of four unsigned bytes with four signed ones.
func vexVPDPBUSD(sum, unsigned, signed int) string {
	return fmt.Sprintf("BYTE $0xC4; BYTE $0x%02X; BYTE $0x%02X; BYTE $0x50; BYTE $0x%02X",
		(^sum>>3&1)<<7|1<<6|(^signed>>3&1)<<5|2, (^unsigned&15)<<3|1<<2|1, 0xC0|(sum&7)<<3|signed&7)
}
