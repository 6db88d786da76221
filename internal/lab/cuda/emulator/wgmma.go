package emulator

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// wgmma is a product of matrices by the four warps of a group, each of which has 16 rows of
// a and of the sums. It reads its operands as late as it may.
type wgmma struct {
	n       int
	a, b    func(v uint64) float64
	bits    int     // of a value of a and b
	sums    []int32 // registers
	rows    []int32 // registers with a; nil where a is in shared memory
	reads   int32   // descriptors
	columns int32
	keep    int32 // predicate: the product is added; -1 for always, -2 for never
	notKeep bool
}

// started is a product that has begun.
type started struct {
	in   *instr
	p    *wgmma
	a, b uint64 // descriptors
	keep bool
}

func compileWgmma(c *compiler) {
	o := c.out
	what := c.one("mma_async", "fence", "commit_group", "wait_group")
	ok := c.has("sync")
	ok = c.has("aligned") && ok
	o.kind = kindAligned
	if !ok {
		c.fail("this form is not understood")
		return
	}
	switch what {
	case "fence":
		c.operands(0)
		o.run = func(w *warp, _ *instr, _ uint32) { clear(w.changed) }
	case "commit_group":
		c.operands(0)
		o.run = func(w *warp, _ *instr, _ uint32) {
			w.products = append(w.products, w.begun)
			w.begun = nil
		}
	case "wait_group":
		c.operands(1)
		n := c.operand(0)
		if n.Kind != ptx.Integer {
			c.fail("an operand that is no number")
		}
		o.run = func(w *warp, _ *instr, _ uint32) { w.multiplied(int(min(n.Bits, 1<<20))) }
	case "mma_async":
		c.wgmma()
	default:
		c.fail("this form is not understood")
	}
}

func (c *compiler) wgmma() {
	o := c.out
	p := &wgmma{}
	if len(c.words) != 4 || !strings.HasPrefix(c.words[0], "m64n") {
		c.fail("this form is not understood")
		return
	}
	n, k, _ := strings.Cut(c.words[0][len("m64n"):], "k")
	p.n, _ = strconv.Atoi(n)
	p.a, p.bits = valueOf(c.words[2])
	p.b, _ = valueOf(c.words[3])
	if depth, _ := strconv.Atoi(k); p.n < 8 || p.n > 256 || p.n%8 != 0 || p.a == nil || p.b == nil || depth*p.bits != 256 || c.words[1] != "f32" {
		c.fail("this form is not understood")
		return
	}
	c.words = nil
	wants := 6
	if p.bits == 16 {
		wants = 8 // which matrices are turned
	}
	value := func(o ptx.Operand) int32 { return c.value(o, ptx.B32) }
	p.sums = c.vector(c.operand(0), p.n/2, c.result)
	if a := c.operand(1); a.Kind == ptx.Vector {
		p.rows = c.vector(a, 4, value)
		wants = min(wants, 7) // there a is not turned
	} else {
		p.reads = c.value(a, ptx.B64)
	}
	p.columns = c.value(c.operand(2), ptx.B64)
	c.operands(wants)
	switch keep := c.operand(3); {
	case keep.Kind == ptx.Integer && keep.Bits != 0:
		p.keep = -1
	case keep.Kind == ptx.Integer:
		p.keep = -2
	default:
		p.keep, p.notKeep = c.predicate(keep)
	}
	for i := 4; i < wants; i++ {
		want := uint64(0) // not turned
		if i < 6 {
			want = 1 // not negated
		}
		if v := c.operand(i); v.Kind != ptx.Integer || v.Bits != want {
			c.fail("operand %d is not %d", i+1, want)
		}
	}
	c.k.async = true
	for _, r := range append(append([]int32(nil), p.sums...), p.rows...) {
		c.k.held[r] = true
	}
	o.run = func(w *warp, in *instr, _ uint32) { w.multiply(in, p) }
}

// multiply begins a product.
func (w *warp) multiply(in *instr, p *wgmma) {
	for _, r := range append(append([]int32(nil), p.sums...), p.rows...) {
		if w.changed[r] {
			w.find(SyncCheck, in, 0, 0, "registers were changed, and no wgmma.fence came after that")
			clear(w.changed)
		}
	}
	s := started{in: in, p: p, a: w.r[p.reads][0], b: w.r[p.columns][0], keep: p.keep == -1}
	if p.keep >= 0 {
		s.keep = w.predicate(p.keep, p.notKeep)&1 != 0
	}
	// All warps of the group must begin the same products.
	w.order = w.order*31 + uint64(in.at.Line)*7 + s.a*3 + s.b
	for _, r := range p.sums {
		w.busy[r]++
	}
	for _, r := range p.rows {
		w.busy[r]++
	}
	if p.rows == nil {
		w.tile(&s, s.a, w.index%4*16, 16, nil)
	}
	w.tile(&s, s.b, 0, p.n, nil)
	w.begun = append(w.begun, s)
}

// multiplied ends all products but those of the newest groups.
func (w *warp) multiplied(newest int) {
	for len(w.products) > newest {
		for i := range w.products[0] {
			w.product(&w.products[0][i])
		}
		w.products = w.products[1:]
	}
}

// product computes what was begun.
func (w *warp) product(s *started) {
	p := s.p
	depth := 256 / p.bits
	var a [16][32]float64
	b := make([][32]float64, p.n)
	if p.rows == nil {
		w.tile(s, s.a, w.index%4*16, 16, func(row int, values []byte) {
			for k := range depth {
				a[row][k] = p.a(get(values[k*p.bits/8:][:p.bits/8]))
			}
		})
	} else {
		each := 32 / p.bits
		for i, r := range p.rows {
			for l, v := range &w.r[r] {
				for e := range each {
					a[l/4+i%2*8][i/2*4*each+l%4*each+e] = p.a(v >> (e * p.bits) & ones(p.bits))
				}
			}
		}
	}
	w.tile(s, s.b, 0, p.n, func(row int, values []byte) {
		for k := range depth {
			b[row][k] = p.b(get(values[k*p.bits/8:][:p.bits/8]))
		}
	})
	for j := range p.n / 8 {
		var right [32][8]float64
		for n := range 8 {
			for k := range depth {
				right[k][n] = b[j*8+n][k]
			}
		}
		for row := range 16 {
			sums := multiplyRow(a[row][:depth], &right)
			for n, sum := range sums {
				to := &w.r[p.sums[j*4+row/8*2+n%2]][row%8*4+n/2]
				if s.keep {
					sum = exactSum(sum, float64(float(*to)))
				}
				*to = bits32(float32(sum))
			}
		}
	}
	for _, r := range p.sums {
		w.busy[r]--
	}
	for _, r := range p.rows {
		w.busy[r]--
	}
}

// tile reads 32 bytes of each of some rows of a matrix that a descriptor describes: rows
// of the swizzle's size, eight of which follow each other.
func (w *warp) tile(s *started, descriptor uint64, first, n int, each func(row int, values []byte)) {
	start := descriptor & 0x3fff << 4
	stride := descriptor >> 32 & 0x3fff << 4
	size := [4]int{0, 128, 64, 32}[descriptor>>62]
	if offset := descriptor >> 49 & 7; size == 0 || offset != 0 || stride%uint64(8*size) != 0 {
		w.find(MemoryCheck, s.in, 0, start, "a matrix without swizzle, with a base offset of %d, or %d bytes from eight rows to the next: that is not understood", offset, stride)
		return
	}
	var values [32]byte
	for i := range n {
		row := first + i
		for chunk := uint64(0); chunk < 32; chunk += 16 {
			address := swizzled(start+uint64(row/8)*stride+uint64(row%8*size)+chunk, size)
			w.how = byWarp | byUnit
			from := w.shared(s.in, 0, address, 16, false)
			w.how = 0
			if from == nil {
				return
			}
			copy(values[chunk:], from)
		}
		if each != nil {
			each(i, values[:])
		}
	}
}

// checkHeld looks at registers that products use.
func (w *warp) checkHeld(in *instr, mask uint32) {
	for _, h := range in.held {
		if w.busy[h.register] > 0 && in.at.Opcode != "wgmma" {
			w.find(SyncCheck, in, bits.TrailingZeros32(mask), 0, "register %s belongs to a wgmma without a wait for it", h.name)
			w.busy[h.register] = 0
		}
		if h.written {
			w.changed[h.register] = true
		}
	}
}

// held is a register that some product uses.
type held struct {
	register int32
	name     string
	written  bool
}

// hold finds instructions that use registers of products.
func (k *Kernel) hold(place []int32) {
	if len(k.held) == 0 {
		return
	}
	for i := range k.f.Body {
		if k.f.Body[i].Opcode == "wgmma" {
			continue
		}
		u := usesOf(&k.f.Body[i])
		add := func(all []int, written bool) {
			for _, r := range all {
				if k.f.Registers[r].Type != ptx.Pred && k.held[place[r]] {
					k.code[i].held = append(k.code[i].held, held{place[r], k.f.Registers[r].Name, written})
				}
			}
		}
		add(u.reads, false)
		add(u.writes, true)
	}
}

// compileRegisters takes setmaxnreg: registers are without number here.
func compileRegisters(c *compiler) {
	c.out.kind = kindAligned
	ok := c.one("inc", "dec") != ""
	ok = c.has("sync") && ok
	ok = c.has("aligned") && ok
	n := c.operand(0)
	if c.typed() != ptx.U32 || !ok || n.Kind != ptx.Integer || n.Bits < 24 || n.Bits > 256 || n.Bits%8 != 0 {
		c.fail("this form is not understood")
	}
	c.operands(1)
	c.out.run = func(*warp, *instr, uint32) {}
}
