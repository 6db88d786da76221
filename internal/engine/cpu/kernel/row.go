package kernel

import (
	"encoding/binary"

	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// Row is a row of quantized weights as portable Go multiplies with it: integers and
// the scales of their runs. It states what products with blocks compute, see
// [BlockCall].
type Row struct {
	values []int8    // without offset
	scales []float32 // of each run
	mins   []float32 // of each run; empty where weights have none
	run    int       // values with one scale: 32, or 16
}

// Unpack takes a row of whole blocks as a file has them. It allocates when a row is
// longer than all before.
//
//go:norace
func (r *Row) Unpack(t Type, data []byte) {
	l := layouts[t]
	cols := len(data) / l.bytes * l.weights
	if cap(r.values) < cols {
		r.values, r.scales, r.mins = make([]int8, cols), make([]float32, cols/16), make([]float32, cols/32)
	}
	r.values, r.run = r.values[:cols], BlockSize
	r.scales, r.mins = r.scales[:cols/32], r.mins[:0]
	switch t {
	case Q4K, Q5K:
		r.mins = r.mins[:cols/32]
	case Q6K:
		r.run, r.scales = BlockSize/2, r.scales[:cols/16]
	}
	for i := 0; i < cols; i += l.weights {
		b, values := data[i/l.weights*l.bytes:][:l.bytes], r.values[i:][:l.weights]
		switch t {
		case Q8_0:
			r.scales[i/32] = half(b)
			for k, q := range b[2:] {
				values[k] = int8(q)
			}
		case Q4_0:
			r.scales[i/32] = half(b)
			nibbles(values[:16], b[2:], 0, 8)
			nibbles(values[16:], b[2:], 4, 8)
		case Q4K:
			r.scalesK(i/32, b)
			for j := range 8 {
				nibbles(values[32*j:][:32], b[16+j/2*32:], j%2*4, 0)
			}
		case Q5K:
			r.scalesK(i/32, b)
			for j := range 8 {
				nibbles(values[32*j:][:32], b[48+j/2*32:], j%2*4, 0)
				highBits(values[32*j:][:32], b[16:], j, 1)
			}
		case Q6K:
			d := half(b[208:])
			for j, s := range b[192:208] {
				r.scales[i/16+j] = d * float32(int8(s))
			}
			for j := range 8 {
				nibbles(values[32*j:][:32], b[64*(j/4)+32*(j%2):], j%4/2*4, 32)
				highBits(values[32*j:][:32], b[128+32*(j/4):], j%4*2, 3)
			}
		}
	}
}

// nibbles writes four bits of each byte, less an offset.
//
//go:norace
func nibbles(values []int8, b []byte, shift int, offset int8) {
	b = b[:len(values)]
	for i, q := range b {
		values[i] = int8(q>>shift&15) - offset
	}
}

// highBits adds what follows the nibbles.
//
//go:norace
func highBits(values []int8, b []byte, shift int, mask byte) {
	b = b[:len(values)]
	for i, q := range b {
		values[i] += int8(q >> shift & mask << 4)
	}
}

// scalesK writes the scales and minima of the block at run i.
func (r *Row) scalesK(i int, b []byte) {
	d, dmin := half(b), half(b[2:])
	for j := range 8 {
		scale, least := scaleMin(b[4:16], j)
		r.scales[i+j], r.mins[i+j] = d*float32(scale), dmin*float32(least)
	}
}

func half(b []byte) float32 { return safetensors.FromF16(binary.LittleEndian.Uint16(b)) }

// Dot is the product with a row of activations, which has as many values.
//
//go:norace
func (r *Row) Dot(x []Block) (sum float32) {
	for i, scale := range r.scales {
		b := &x[i*r.run/BlockSize]
		w := r.values[i*r.run:][:r.run]
		v := b.Values[i*r.run%BlockSize:][:len(w)]
		var s0, s1 int32
		for k := 0; k+1 < len(w); k += 2 {
			s0 += int32(w[k]) * int32(v[k])
			s1 += int32(w[k+1]) * int32(v[k+1])
		}
		sum = fma(float32(s0+s1), scale*b.Scale, sum)
		if len(r.mins) > 0 {
			sum = fma(-r.mins[i], b.Sum, sum)
		}
	}
	return sum
}
