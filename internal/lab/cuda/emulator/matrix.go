package emulator

import (
	"encoding/binary"
	"strconv"

	"github.com/dynctl/dynctl/internal/cuda/ptx"
)

// matrices takes the shape of ldmatrix and stmatrix: how many of 8x8 values of 16 bits.
func (c *compiler) matrices() (n int, turned bool) {
	o := c.out
	o.kind = kindAligned
	ok := c.has("sync")
	ok = c.has("aligned") && ok
	ok = c.has("m8n8") && ok
	switch c.one("x1", "x2", "x4") {
	case "x1":
		n = 1
	case "x2":
		n = 2
	case "x4":
		n = 4
	}
	turned = c.has("trans")
	ok = c.one("shared", "shared::cta") != "" && ok
	if c.typed() != ptx.B16 || n == 0 || !ok {
		c.fail("this form is not understood")
	}
	c.operands(2)
	o.space, o.size = spaceShared, 16
	c.watch(16)
	return n, turned
}

// compileLoadMatrix: lane i gives the address of a row of matrix i/8, and gets two
// neighbors of each matrix.
func compileLoadMatrix(c *compiler) {
	n, turned := c.matrices()
	o := c.out
	o.list = c.vector(c.operand(0), n, c.result)
	o.a, o.imm = c.memory(c.operand(1))
	o.run = func(w *warp, in *instr, mask uint32) {
		var rows [8][]byte
		addresses := w.r[in.a]
		for i, r := range in.list {
			for row := range rows {
				l := i*8 + row
				rows[row] = zeros[:]
				if mask>>l&1 == 0 {
					continue
				}
				w.how = byWarp
				if b := w.shared(in, l, addresses[l]+in.imm, 16, false); b != nil {
					rows[row] = b
				}
				w.how = 0
			}
			var out vector
			for l := range out {
				row, column := l/4, l%4*2
				if !turned {
					out[l] = uint64(binary.LittleEndian.Uint32(rows[row][2*column:]))
				} else {
					out[l] = uint64(rows[column][2*row]) | uint64(rows[column][2*row+1])<<8 | uint64(rows[column+1][2*row])<<16 | uint64(rows[column+1][2*row+1])<<24
				}
			}
			w.put(r, &out, mask)
		}
	}
}

var zeros [16]byte

// compileStoreMatrix is the way back.
func compileStoreMatrix(c *compiler) {
	n, turned := c.matrices()
	o := c.out
	o.a, o.imm = c.memory(c.operand(0))
	o.list = c.vector(c.operand(1), n, func(o ptx.Operand) int32 { return c.value(o, ptx.B32) })
	o.run = func(w *warp, in *instr, mask uint32) {
		for i, r := range in.list {
			v := &w.r[r]
			for row := range 8 {
				l := i*8 + row
				if mask>>l&1 == 0 {
					continue
				}
				w.how = byWarp
				to := w.shared(in, l, w.r[in.a][l]+in.imm, 16, true)
				w.how = 0
				if w.conflict.is {
					w.raced(in, l)
				}
				for column := 0; to != nil && column < 8; column++ {
					x, y := row, column
					if turned {
						x, y = column, row
					}
					binary.LittleEndian.PutUint16(to[2*column:], uint16(v[x*4+y/2]>>(y%2*16)))
				}
			}
		}
	}
}

// product is the shape of a product of matrices: a of m rows and k columns, b of k rows
// and n columns. Shapes have 16 rows and 8 columns.
type product struct {
	k    int
	a, b func(v uint64) float64 // values of matrices
	bits int                    // of a value
}

// compileProduct takes mma.sync.
func compileProduct(c *compiler) {
	o := c.out
	o.kind = kindAligned
	ok := c.has("sync")
	ok = c.has("aligned") && ok
	shape := c.one("m16n8k8", "m16n8k16", "m16n8k32")
	ok = c.has("row") && c.has("col") && ok
	c.has("satfinite")
	if !ok || shape == "" || len(c.words) != 4 {
		c.fail("this form is not understood")
		return
	}
	p := product{}
	p.k, _ = strconv.Atoi(shape[len("m16n8k"):]) // one of the three
	types := c.words
	c.words = nil
	p.a, p.bits = valueOf(types[1])
	p.b, _ = valueOf(types[2])
	whole := types[0] == "s32" && types[3] == "s32" && p.bits == 8
	if p.a == nil || p.b == nil || !whole && (types[0] != "f32" || types[3] != "f32") || p.k*p.bits != 128 && p.k*p.bits != 256 ||
		whole != (types[1] == "s8" || types[1] == "u8") || whole != (types[2] == "s8" || types[2] == "u8") {
		c.fail("this form is not understood")
		return
	}
	c.operands(4)
	value := func(o ptx.Operand) int32 { return c.value(o, ptx.B32) }
	registers := p.k * p.bits / 128 // of a pair of rows
	o.list = append(c.vector(c.operand(0), 4, c.result), c.vector(c.operand(3), 4, value)...)
	o.more = append(c.vector(c.operand(1), 2*registers, value), c.vector(c.operand(2), registers, value)...)
	if c.err != nil {
		return
	}
	o.run = func(w *warp, in *instr, mask uint32) { p.multiply(w, in, whole, mask) }
}

// valueOf reads values of matrices.
func valueOf(name string) (f func(v uint64) float64, bits int) {
	switch name {
	case "bf16":
		return func(v uint64) float64 { return float64(float(v << 16)) }, 16
	case "f16":
		return half.widen, 16
	case "e4m3":
		return e4m3.widen, 8
	case "e5m2":
		return e5m2.widen, 8
	case "s8":
		return func(v uint64) float64 { return float64(int8(v)) }, 8
	case "u8":
		return func(v uint64) float64 { return float64(v) }, 8
	}
	return nil, 0
}

// multiply adds the product to the sums. A lane has two rows, lane/4 and 8 more, of a and
// of the sums, and column lane/4 of b; in a register the values of neighboring columns,
// or rows of b, begin at lane%4 registers' worth.
func (p *product) multiply(w *warp, in *instr, whole bool, mask uint32) {
	var a [16][32]float64
	var b [32][8]float64
	each := 32 / p.bits // values of a register
	registers := len(in.more) / 3
	for i := range registers {
		for half := range 2 {
			v := &w.r[in.more[2*i+half]]
			for l, x := range v {
				row := &a[l/4+8*half]
				for e := range each {
					row[i*4*each+l%4*each+e] = p.a(x >> (e * p.bits) & ones(p.bits))
				}
			}
		}
		v := &w.r[in.more[2*registers+i]]
		for l, x := range v {
			for e := range each {
				b[i*4*each+l%4*each+e][l/4] = p.b(x >> (e * p.bits) & ones(p.bits))
			}
		}
	}
	var sums [16][8]float64
	for row := range 16 {
		sums[row] = multiplyRow(a[row][:p.k], &b)
	}
	var out [4]vector
	for i := range 4 { // row lane/4 + i/2*8, column lane%4*2 + i%2
		c := &w.r[in.list[4+i]]
		for l := range c {
			sum := sums[l/4+i/2*8][l%4*2+i%2]
			if whole {
				out[i][l] = uint64(uint32(int32(sum) + int32(c[l])))
			} else {
				out[i][l] = bits32(float32(exactSum(sum, float64(float(c[l])))))
			}
		}
	}
	for i := range out {
		w.put(in.list[i], &out[i], mask)
	}
}

// multiplyRow is a row of a product with b.
func multiplyRow(a []float64, b *[32][8]float64) [8]float64 {
	var s0, s1, s2, s3, s4, s5, s6, s7 float64
	for k, x := range a {
		r := &b[k]
		s0 += x * r[0]
		s1 += x * r[1]
		s2 += x * r[2]
		s3 += x * r[3]
		s4 += x * r[4]
		s5 += x * r[5]
		s6 += x * r[6]
		s7 += x * r[7]
	}
	return [8]float64{s0, s1, s2, s3, s4, s5, s6, s7}
}
