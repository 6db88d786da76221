package gguftest

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/dynctl/dynctl/internal/model/gguf"
)

// Quantize writes values as blocks of a type; their number must be whole blocks.
func Quantize(t gguf.Type, values []float32) []byte {
	var out []byte
	n := t.BlockWeights()
	for ; len(values) > 0; values = values[n:] {
		out = append(out, block(t, values[:n])...)
	}
	return out
}

func block(t gguf.Type, v []float32) []byte {
	le := binary.LittleEndian
	switch t {
	case gguf.F32:
		return le.AppendUint32(nil, math.Float32bits(v[0]))
	case gguf.F16:
		return le.AppendUint16(nil, Half(v[0]))
	case gguf.BF16:
		bits := math.Float32bits(v[0])
		return le.AppendUint16(nil, uint16((bits+0x7FFF+bits>>16&1)>>16))
	case gguf.Q8_0:
		d := largest(v) / 127
		out := le.AppendUint16(nil, Half(d))
		for _, x := range v {
			out = append(out, byte(int8(level(x, d, -127, 127))))
		}
		return out
	case gguf.Q4_0:
		d := largest(v) / 7
		out := le.AppendUint16(nil, Half(d))
		for i := range 16 {
			out = append(out, byte(level(v[i], d, -8, 7)+8|(level(v[i+16], d, -8, 7)+8)<<4))
		}
		return out
	case gguf.Q4K, gguf.Q5K:
		return blockK(t, v)
	case gguf.Q6K:
		return blockQ6(v)
	}
	panic(fmt.Sprintf("gguftest: cannot quantize to %s", t)) // a mistake in a test
}

// blockK writes blocks with eight scales and minima of six bits.
func blockK(t gguf.Type, v []float32) []byte {
	top := 15
	if t == gguf.Q5K {
		top = 31
	}
	var scale, least [8]float32
	for j := range 8 {
		part := v[32*j : 32*j+32]
		low, high := float32(0), float32(0)
		for _, x := range part {
			low, high = min(low, x), max(high, x)
		}
		scale[j], least[j] = (high-low)/float32(top), -low
	}
	d, dmin := largest(scale[:])/63, largest(least[:])/63
	out := binary.LittleEndian.AppendUint16(nil, Half(d))
	out = binary.LittleEndian.AppendUint16(out, Half(dmin))
	packed := make([]byte, 12)
	var sc, m [8]int
	for j := range 8 {
		sc[j], m[j] = level(scale[j], d, 0, 63), level(least[j], dmin, 0, 63)
		if j < 4 {
			packed[j] |= byte(sc[j])
			packed[j+4] |= byte(m[j])
			continue
		}
		packed[j+4] = byte(sc[j]&15 | m[j]&15<<4)
		packed[j-4] |= byte(sc[j] >> 4 << 6)
		packed[j] |= byte(m[j] >> 4 << 6)
	}
	out = append(out, packed...)
	low, high := make([]byte, 128), make([]byte, 32)
	for i, x := range v {
		j := i / 32
		q := level(x+dmin*float32(m[j]), d*float32(sc[j]), 0, top)
		low[32*(j/2)+i%32] |= byte(q & 15 << (4 * (j % 2)))
		high[i%32] |= byte(q >> 4 << j)
	}
	if t == gguf.Q5K {
		out = append(out, high...)
	}
	return append(out, low...)
}

func blockQ6(v []float32) []byte {
	var scale [16]float32
	for j := range scale {
		scale[j] = largest(v[16*j:16*j+16]) / 31
	}
	d := largest(scale[:]) / 127
	out := make([]byte, 208, 210)
	for i, x := range v {
		s := level(scale[i/16], d, 0, 127)
		out[192+i/16] = byte(s)
		q := level(x, d*float32(s), -32, 31) + 32
		half, group, l := i/128, i%128/32, i%32
		out[64*half+32*(group%2)+l] |= byte(q & 15 << (4 * (group / 2)))
		out[128+32*half+l] |= byte(q >> 4 << (2 * group))
	}
	return binary.LittleEndian.AppendUint16(out, Half(d))
}

// level is the nearest multiple of d to x, within limits.
func level(x, d float32, least, most int) int {
	if d == 0 {
		return max(least, 0)
	}
	return int(min(max(math.RoundToEven(float64(x)/float64(d)), float64(least)), float64(most)))
}

func largest(v []float32) float32 {
	var m float32
	for _, x := range v {
		m = max(m, float32(math.Abs(float64(x))))
	}
	return m
}

// Half rounds to IEEE half precision, to nearest even, large values to infinity.
func Half(v float32) uint16 {
	sign := uint16(math.Float32bits(v) >> 16 & 0x8000)
	a := math.Abs(float64(v))
	switch {
	case a != a:
		return sign | 0x7E00
	case a < 0x1p-14: // subnormal
		return sign | uint16(math.RoundToEven(a*0x1p24))
	}
	exponent := math.Ilogb(a)
	fraction := math.RoundToEven(math.Ldexp(a, 10-exponent)) // 1024 to 2048
	if fraction == 2048 {
		fraction, exponent = 1024, exponent+1
	}
	if exponent > 15 {
		return sign | 0x7C00
	}
	return sign | uint16(exponent+15)<<10 | (uint16(fraction) - 1024)
}
