package main

import "fmt"

// Rows of activations are addressed through these; the panel and the position in
// the rows have a register each.
var rowRegs = []string{"BX", "CX", "DX", "SI", "DI", "R8", "R9", "R10", "R11", "R12", "R13", "R14"}

const (
	panelReg = "R15"
	indexReg = "AX"
)

// element is a type of weights.
type element struct {
	name string
	step int // bytes of one weight
}

var elements = []element{{"F32", 4}, {"BF16", 2}, {"F16", 2}}

// productName is the kernel for m rows and panels of width outputs.
func productName(a isa, e element, width, m int) string {
	return fmt.Sprintf("product%sx%dx%d%s", e.name, width, m, a.name)
}

// products are the kernels that multiply up to twelve rows of activations with one
// panel of weights. Every output is one sum over k from first to last, made of
// fused multiply-adds that start at zero.
func products(a isa) string {
	t := header("Products of rows with panels of weights, see product.go.")
	t.line("")
	t.line("// high selects the second of two bf16 values in 32 bits.")
	for i := range 8 {
		t.line("DATA high%s<>+%d(SB)/4, $0xFFFF0000", a.name, 4*i)
	}
	t.line("GLOBL high%s<>(SB), RODATA|NOPTR, $32", a.name)
	for _, e := range elements {
		for _, width := range []int{32, 16} {
			for m := 1; m <= a.rows[width/a.lanes]; m++ {
				product(t, a, e, width, m)
			}
		}
	}
	return t.String()
}

func product(t *text, a isa, e element, width, m int) {
	p := &productGen{text: t, isa: a, element: e, width: width, rows: m, vectors: width / a.lanes}
	t.function(productName(a, e, width, m), 8)
	t.op("MOVQ", "c+0(FP)", "AX")
	t.op("MOVQ", "Call_Panel(AX)", panelReg)
	for i := range m {
		t.op("MOVQ", fmt.Sprintf("(Call_Src+%d)(AX)", 8*i), rowRegs[i])
	}
	t.op("MOVQ", "Call_Cols(AX)", "AX")
	t.op("ANDQ", "$~1", "AX")
	for i := range m { // rows are addressed from their ends
		t.op("LEAQ", fmt.Sprintf("(%s)(AX*4)", rowRegs[i]), rowRegs[i])
	}
	for i := range m * p.vectors {
		t.op("VXORPS", a.v(i), a.v(i), a.v(i))
	}
	if e.name == "BF16" && p.maskReg() >= 0 {
		t.op("VBROADCASTSS", "high"+a.name+"<>(SB)", a.v(p.maskReg()))
	}
	t.op("NEGQ", "AX")
	t.op("JZ", "tail")
	t.line("\tPCALIGN $32")
	t.label("loop")
	if m <= 12 {
		// One or few rows wait for memory; the processor's own prefetching stops at
		// the end of a page.
		for line := range width * 2 * e.step / 64 {
			t.op("PREFETCHT0", fmt.Sprintf("%d(%s)", 4096+64*line, panelReg))
		}
	}
	p.step(0, true)
	p.step(1, true)
	t.op("ADDQ", fmt.Sprintf("$%d", width*2*e.step), panelReg)
	t.op("ADDQ", "$2", "AX")
	t.op("JNZ", "loop")
	t.label("tail")
	t.op("MOVQ", "c+0(FP)", "AX")
	t.op("TESTQ", "$1", "Call_Cols(AX)")
	t.op("JZ", "store")
	p.step(0, false)
	t.label("store")
	for i := range m {
		t.op("MOVQ", fmt.Sprintf("(Call_Dst+%d)(AX)", 8*i), "BX")
		for v := range p.vectors {
			t.op("VMOVUPS", a.v(i*p.vectors+v), fmt.Sprintf("%d(BX)", v*a.bytes()))
		}
	}
	t.ret()
}

type productGen struct {
	*text
	isa
	element
	width, rows, vectors int
}

// maskReg holds high where there is a register to spare, otherwise it is read.
func (p *productGen) maskReg() int {
	if p.isa.regs == 32 {
		return 31
	}
	return -1
}

// row is the activation of row i at the step.
func (p *productGen) row(i, k int, indexed bool) string {
	if !indexed {
		return fmt.Sprintf("(%s)", rowRegs[i])
	}
	return fmt.Sprintf("%d(%s)(AX*4)", 4*k, rowRegs[i])
}

// step adds the products of one k, the first or the second of a pair.
func (p *productGen) step(k int, indexed bool) {
	acc := p.rows * p.vectors
	if acc+p.vectors+1 <= p.isa.regs-1 { // weights stay, activations come one by one
		for v := range p.vectors {
			p.weights(k, v, acc+v)
		}
		x := p.v(acc + p.vectors)
		for i := range p.rows {
			p.op("VBROADCASTSS", p.row(i, k, indexed), x)
			for v := range p.vectors {
				p.op("VFMADD231PS", p.v(acc+v), x, p.v(i*p.vectors+v))
			}
		}
		return
	}
	for i := range p.rows { // activations stay
		p.op("VBROADCASTSS", p.row(i, k, indexed), p.v(acc+i))
	}
	w := acc + p.rows
	for v := range p.vectors {
		p.weights(k, v, w)
		for i := range p.rows {
			p.op("VFMADD231PS", p.v(w), p.v(acc+i), p.v(i*p.vectors+v))
		}
	}
}

// weights loads vector v of one k into a register.
func (p *productGen) weights(k, v, reg int) {
	at := func(off int) string { return fmt.Sprintf("%d(%s)", off, panelReg) }
	switch p.element.name {
	case "F32":
		p.op("VMOVUPS", at(4*k*p.width+v*p.bytes()), p.v(reg))
	case "F16": // a row of outputs for each k
		p.op("VCVTPH2PS", at(2*k*p.width+v*p.bytes()/2), p.v(reg))
	case "BF16": // both k of an output in 32 bits
		p.op("VMOVUPS", at(v*p.bytes()), p.v(reg))
		switch {
		case k == 0:
			p.op("VPSLLD", "$16", p.v(reg), p.v(reg))
		case p.maskReg() >= 0:
			p.op("VANDPS", p.v(p.maskReg()), p.v(reg), p.v(reg))
		default:
			p.op("VANDPS", "high"+p.isa.name+"<>(SB)", p.v(reg), p.v(reg))
		}
	}
}
