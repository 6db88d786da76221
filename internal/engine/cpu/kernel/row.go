package kernel

import "encoding/binary"

// Row is a row of quantized weights as portable Go multiplies with it: integers and
// the scales of their runs. It states what products with blocks compute, see
// [BlockCall].
type Row struct {
	Values []int8    // without offset
	Scales []float32 // of each run
	Mins   []float32 // of each run; empty where weights have none
	run    int       // values with one scale: 32, or 16
}

// Unpack takes a row of whole blocks as a file has them.
func (r *Row) Unpack(t Type, data []byte) {
	l := layouts[t]
	r.Values, r.Scales, r.Mins, r.run = r.Values[:0], r.Scales[:0], r.Mins[:0], BlockSize
	if t == Q6K {
		r.run = BlockSize / 2
	}
	for ; len(data) >= l.bytes; data = data[l.bytes:] {
		b := data[:l.bytes]
		switch t {
		case Q8_0:
			r.Scales = append(r.Scales, half(b))
			for _, q := range b[2:] {
				r.Values = append(r.Values, int8(q))
			}
		case Q4_0:
			r.Scales = append(r.Scales, half(b))
			r.nibbles(b[2:], 0, nil, 0, 8)
			r.nibbles(b[2:], 4, nil, 0, 8)
		case Q4K:
			r.scalesK(b)
			for j := range 8 {
				r.nibbles(b[16+j/2*32:][:32], 4*(j%2), nil, 0, 0)
			}
		case Q5K:
			r.scalesK(b)
			for j := range 8 {
				r.nibbles(b[48+j/2*32:][:32], 4*(j%2), b[16:48], j, 0)
			}
		case Q6K:
			for _, s := range b[192:208] {
				r.Scales = append(r.Scales, half(b[208:])*float32(int8(s)))
			}
			for j := range 8 {
				r.nibbles(b[64*(j/4)+32*(j%2):][:32], j%4/2*4, b[128+32*(j/4):][:32], 2*(j%4), 32)
			}
		}
	}
}

// nibbles appends a value for each byte of low: four bits of it, and above them one
// or two bits of high, less an offset.
func (r *Row) nibbles(low []byte, shift int, high []byte, highShift int, offset int) {
	mask := byte(1)
	if offset == 32 {
		mask = 3
	}
	for i, q := range low {
		v := q >> shift & 15
		if high != nil {
			v |= high[i] >> highShift & mask << 4
		}
		r.Values = append(r.Values, int8(int(v)-offset))
	}
}

func (r *Row) scalesK(b []byte) {
	d, dmin := half(b), half(b[2:])
	for j := range 8 {
		scale, least := scaleMin(b[4:16], j)
		r.Scales, r.Mins = append(r.Scales, d*float32(scale)), append(r.Mins, dmin*float32(least))
	}
}

func half(b []byte) float32 { return widenF16(binary.LittleEndian.Uint16(b)) }

// Dot is the product with a row of activations, which has as many values.
func (r *Row) Dot(x []Block) (sum float32) {
	values := r.Values
	for i, scale := range r.Scales {
		b := &x[i*r.run/BlockSize]
		part := b.Values[i*r.run%BlockSize:][:r.run]
		var s int32
		for k, v := range values[:len(part)] {
			s += int32(v) * int32(part[k])
		}
		values = values[len(part):]
		sum = fma(float32(s), scale*b.Scale, sum)
		if len(r.Mins) > 0 {
			sum = fma(-r.Mins[i], b.Sum, sum)
		}
	}
	return sum
}
