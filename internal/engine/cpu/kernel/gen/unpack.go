package main

import "fmt"

func unpackName(f quantized) string { return "unpack" + f.name + "AVX512" }

// unpacks bring blocks of a panel into the form that tiles multiply, see
// kernel.CallInt8.
//
// func unpack(dst, src unsafe.Pointer, blocks int)
func unpacks(t *text) {
	for _, f := range formats {
		g := &blockGen{text: t, dots: vnni512, quantized: f}
		g.unpack()
	}
}

// offset returns the number added to weights in panels.
func (f quantized) offset() int {
	return map[string]int{"": 0, "Block_Minus8": 8, "Block_Minus32": 32, "Block_Minus128": 128}[f.start]
}

func (g *blockGen) unpack() {
	const dst, count, pairs, weights, t, scale, least, mask, above, offset = "DI", "CX", "BX", "Z0", "Z1", "Z2", "Z3", "Z4", "Z5", "Z6"
	g.function(unpackName(g.quantized), 24)
	g.op("MOVQ", "dst+0(FP)", dst)
	g.op("MOVQ", "src+8(FP)", panelReg)
	g.op("MOVQ", "blocks+16(FP)", count)
	if g.bits < 8 {
		g.op("VMOVDQU64", g.constant("nibbles"), mask)
	}
	if g.hasAbove() {
		g.op("VMOVDQU64", g.constant(g.aboveMask()), above)
	}
	if g.offset() != 0 {
		g.op("MOVL", fmt.Sprintf("$%d", g.offset()), "AX")
		g.op("VPBROADCASTB", "AX", offset)
	}
	g.label("block")
	if g.super {
		g.op("MOVQ", panelReg, headerReg)
		g.op("ADDQ", fmt.Sprintf("$%d", g.header), panelReg)
		g.op("MOVQ", "$4", pairs)
		g.label("pair")
	}
	for off := 0; off < g.quantized.bytes(); off += 64 {
		g.op("PREFETCHT0", fmt.Sprintf("%d(%s)", 4096+off, panelReg))
	}
	for _, u := range g.units() {
		at := func(line, v int) string {
			return fmt.Sprintf("%d(%s)", u.block*unpackedBytes+line*lineBytes+64*v, dst)
		}
		for v := range 2 {
			g.scale(u, 16*v, scale, t, least)
			g.op("VMOVUPS", scale, at(u.half, v))
			if g.mins {
				g.op("VMOVUPS", least, at(1, v))
			}
		}
		for i, k := range u.groups {
			for v := range 2 {
				g.wideWeights(k, v, weights, t, mask, above)
				if g.offset() != 0 {
					g.op("VPSUBB", offset, weights, weights)
				}
				g.op("VMOVDQU64", weights, at(2+4*u.half+i, v))
			}
		}
	}
	g.op("ADDQ", fmt.Sprintf("$%d", g.quantized.bytes()), panelReg)
	g.op("ADDQ", fmt.Sprintf("$%d", g.blocks()*unpackedBytes), dst)
	if g.super {
		g.op("DECQ", pairs)
		g.op("JNZ", "pair")
		g.op("SUBQ", "$8", count)
	} else {
		g.op("DECQ", count)
	}
	g.op("JNZ", "block")
	g.ret()
}
