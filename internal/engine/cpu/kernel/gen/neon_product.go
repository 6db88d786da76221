package main

import "fmt"

// neonRows is the number of activation rows in a product.
const neonRows = 6

// neonWhole is the most rows for which a product with 32 outputs goes through its
// panel once: 3 rows by 8 vectors of sums. More rows go through it twice, for half
// of the outputs each, so that a vector of weights serves up to six rows.
const neonWhole = 3

// neonProduct is one kernel: the products of some rows with a run of the outputs of a
// panel. Sums fill up to 24 registers; four activations of each row have one, from
// which multiply-adds take lanes, and the rest is for weights.
type neonProduct struct {
	neon
	element
	width, rows   int // of the panel, of activations
	from, vectors int // outputs: the first one, and how many fours
	next          int // of the spare registers
}

const (
	neonCall  = "R0"
	neonPanel = "R1"
	neonCols  = "R2"
	neonCount = "R3"
)

// row holds the address of row i.
func (p *neonProduct) row(i int) string    { return ints[4+i] }
func (p *neonProduct) sum(i, v int) int    { return i*p.vectors + v }
func (p *neonProduct) x(i int) int         { return p.rows*p.vectors + i }
func (p *neonProduct) firstSpare() int     { return p.rows*p.vectors + p.rows }
func (p *neonProduct) spares() int         { return neonRegs - p.firstSpare() }
func (p *neonProduct) bytes(steps int) int { return steps * p.width * p.step }

// spare is the one whose last use is longest ago.
func (p *neonProduct) spare() int {
	r := p.firstSpare() + p.next
	p.next = (p.next + 1) % p.spares()
	return r
}

// neonParts are the kernels that a product runs one after the other.
func neonParts(t *text, e element, width, m int) (parts []*neonProduct) {
	vectors := width / 4
	if m > neonWhole {
		vectors = 4
	}
	for from := 0; from < width; from += 4 * vectors {
		parts = append(parts, &neonProduct{neon: neon{t}, element: e, width: width, rows: m, from: from, vectors: vectors})
	}
	return parts
}

func (p *neonProduct) fullName() string {
	name := productName(isa{name: "NEON"}, p.element, p.width, p.rows)
	if 4*p.vectors < p.width {
		name += fmt.Sprintf("from%d", p.from)
	}
	return name
}

// eachNEONProduct visits the kernels of all products.
func eachNEONProduct(t *text, visit func(p *neonProduct)) {
	for _, e := range elements {
		for _, width := range []int{32, 16} {
			for m := 1; m <= neonRows; m++ {
				for _, p := range neonParts(t, e, width, m) {
					visit(p)
				}
			}
		}
	}
}

func neonProducts() string {
	t := header("Products of rows with panels of weights, see product.go.")
	eachNEONProduct(t, (*neonProduct).generate)
	return t.String()
}

// func product(c *Call)
func (p *neonProduct) generate() {
	p.function(p.fullName(), 8)
	p.arg("c+0(FP)", neonCall)
	p.op("MOVD", "Call_Panel("+neonCall+")", neonPanel)
	p.op("MOVD", "Call_Cols("+neonCall+")", neonCols)
	for i := range p.rows {
		p.op("MOVD", fmt.Sprintf("(Call_Src+%d)(%s)", 8*i, neonCall), p.row(i))
	}
	for i := range p.rows * p.vectors {
		p.zero(i)
	}
	p.op("LSR", "$2", neonCols, neonCount)
	p.op("CBZ", neonCount, "two")
	p.line("\tPCALIGN $16")
	p.label("loop")
	if p.from == 0 { // a second half follows soon enough for the cache
		for off := 0; off < p.bytes(4); off += 64 {
			p.op("PRFM", at(4096+off, neonPanel), "PLDL1KEEP")
		}
	}
	p.steps(4, "FMOVQ.P")
	p.op("SUB", "$1", neonCount)
	p.op("CBNZ", neonCount, "loop")
	p.label("two")
	p.op("TBZ", "$1", neonCols, "one")
	p.steps(2, "FMOVD.P")
	p.label("one")
	p.op("TBZ", "$0", neonCols, "store")
	p.steps(1, "FMOVS.P")
	p.label("store")
	for i := range p.rows {
		p.op("MOVD", fmt.Sprintf("(Call_Dst+%d)(%s)", 8*i, neonCall), neonCount)
		for v := 0; v < p.vectors; v += 2 {
			p.storePair(p.sum(i, v), 4*(p.from+4*v), neonCount)
		}
	}
	p.ret()
}

// steps adds the products of the next one, two or four k. load fetches as many
// activations of a row and moves on.
func (p *neonProduct) steps(n int, load string) {
	for i := range p.rows {
		p.op(load, at(4*n, p.row(i)), f(p.x(i)))
	}
	p.next = 0
	switch p.name {
	case "F32":
		for k := range n {
			for v := 0; v < p.vectors; v += 2 {
				p.float32s(k, v)
			}
		}
	case "F16":
		for k := range n {
			for v := 0; v < p.vectors; v += 2 {
				p.halves(k, v)
			}
		}
	case "BF16":
		for k := 0; k < n; k += 2 {
			for v := range p.vectors {
				p.couples(k, v, k+1 < n)
			}
		}
	}
	if n > 1 {
		p.op("ADD", fmt.Sprintf("$%d", p.bytes(n)), neonPanel)
	}
}

// add adds the products of all rows' activation k with the weights w to sum v.
func (p *neonProduct) add(v, w, k int) {
	for i := range p.rows {
		p.word("fmla lane", p.sum(i, v), w, p.x(i), k)
	}
}

// float32s are the weights of eight outputs.
func (p *neonProduct) float32s(k, v int) {
	w, u := p.spare(), p.spare()
	p.op("FLDPQ", at(p.bytes(k)+4*(p.from+4*v), neonPanel), fmt.Sprintf("(%s, %s)", f(w), f(u)))
	p.add(v, w, k)
	p.add(v+1, u, k)
}

// halves are the weights of eight outputs.
func (p *neonProduct) halves(k, v int) {
	h, w := p.spare(), p.spare()
	p.load(p.bytes(k)+2*(p.from+4*v), neonPanel, h)
	p.word("fcvtl", w, h)
	p.add(v, w, k)
	p.word("fcvtl2", h, h)
	p.add(v+1, h, k)
}

// couples are the weights of four outputs for two k, the second of which may be
// none: 32 bits each, the first in the lower half.
func (p *neonProduct) couples(k, v int, second bool) {
	h, w := p.spare(), p.spare()
	p.load(p.bytes(k)+4*(p.from+4*v), neonPanel, h)
	p.op("VSHL", "$16", s4(h), s4(w))
	p.add(v, w, k)
	if !second {
		return
	}
	p.zero(w)
	p.op("VTRN2", h8(h), h8(w), h8(h))
	p.add(v, h, k+1)
}
