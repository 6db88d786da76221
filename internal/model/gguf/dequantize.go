package gguf

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// ErrType is returned for tensors whose type cannot be turned into float32.
var ErrType = errors.New("tensor type is not supported")

// Dequantize writes the weights of whole blocks of type t as float32. dst must hold
// exactly the weights of data.
//
// Every weight is the one that ggml computes, to the bit: the products are exact in
// float32, so only the one subtraction of Q4_K and Q5_K rounds, and a fused
// multiply-add gives the same.
func Dequantize(dst []float32, t Type, data []byte) error {
	l, ok := layoutOf(t)
	if !ok {
		return fmt.Errorf("%w: %s", ErrType, t)
	}
	if !t.Dequantizes() {
		return fmt.Errorf("%w: %s; known are F32, F16, BF16, Q8_0, Q4_0, Q4_K, Q5_K, Q6_K", ErrType, t)
	}
	if len(data)%l.bytes != 0 || len(data)/l.bytes*l.weights != len(dst) {
		return fmt.Errorf("dequantize %s: %d bytes are not %d weights", t, len(data), len(dst))
	}
	block := blockOf(t)
	if block == nil {
		widen(dst, t, data)
		return nil
	}
	for ; len(data) > 0; data, dst = data[l.bytes:], dst[l.weights:] {
		block(dst[:l.weights], data[:l.bytes])
	}
	return nil
}

// Dequantizes reports whether [Dequantize] knows a type.
func (t Type) Dequantizes() bool {
	return t == F32 || t == F16 || t == BF16 || blockOf(t) != nil
}

// widen converts weights of plain types.
func widen(dst []float32, t Type, data []byte) {
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = half(data[2*i:])
		}
	case BF16:
		for i := range dst {
			dst[i] = math.Float32frombits(uint32(binary.LittleEndian.Uint16(data[2*i:])) << 16)
		}
	}
}

// blockOf gives the function for one block, nil for plain types and unknown ones.
func blockOf(t Type) func(dst []float32, b []byte) {
	switch t {
	case Q8_0:
		return blockQ8_0
	case Q4_0:
		return blockQ4_0
	case Q4K:
		return blockQ4K
	case Q5K:
		return blockQ5K
	case Q6K:
		return blockQ6K
	}
	return nil
}

// half reads an IEEE half; every value is exact.
func half(b []byte) float32 {
	h := binary.LittleEndian.Uint16(b)
	sign := uint32(h&0x8000) << 16
	fraction := uint32(h & 0x3FF)
	switch exponent := uint32(h>>10) & 0x1F; exponent {
	case 0: // subnormal: a multiple of 2^-24
		return math.Float32frombits(sign | math.Float32bits(float32(fraction)*0x1p-24))
	case 0x1F: // infinity or NaN
		return math.Float32frombits(sign | 0xFF<<23 | fraction<<13)
	default:
		return math.Float32frombits(sign | (exponent+127-15)<<23 | fraction<<13)
	}
}

// blockQ8_0: a half d and 32 signed bytes; d·q.
func blockQ8_0(dst []float32, b []byte) {
	d := half(b)
	dst = dst[:32]
	for i, q := range b[2:34] {
		dst[i] = d * float32(int8(q))
	}
}

// blockQ4_0: a half d and 16 bytes, low nibbles first; d·(q−8).
func blockQ4_0(dst []float32, b []byte) {
	d := half(b)
	low, high := dst[:16], dst[16:32]
	for i, q := range b[2:18] {
		low[i] = d * float32(int(q&15)-8)
		high[i] = d * float32(int(q>>4)-8)
	}
}

// scaleMin gives the 6-bit scale and minimum of sub-block j of the eight in a
// block of Q4_K or Q5_K, from their 12 packed bytes.
func scaleMin(b []byte, j int) (scale, least float32) {
	if j < 4 {
		return float32(b[j] & 63), float32(b[j+4] & 63)
	}
	return float32(b[j+4]&15 | b[j-4]>>6<<4), float32(b[j+4]>>4 | b[j]>>6<<4)
}

// blockQ4K: halves d and dmin, the packed scales, 128 bytes of nibbles, of which
// each 32 hold two sub-blocks: the low nibbles one, the high nibbles the next;
// d·scale·q − dmin·min.
func blockQ4K(dst []float32, b []byte) {
	d, dmin := half(b), half(b[2:])
	for j := 0; j < 8; j += 2 {
		scale1, least1 := scaleMin(b[4:16], j)
		scale2, least2 := scaleMin(b[4:16], j+1)
		scale1, least1, scale2, least2 = d*scale1, dmin*least1, d*scale2, dmin*least2
		low, high := dst[32*j:][:32], dst[32*j+32:][:32]
		for i, q := range b[16+16*j:][:32] {
			low[i] = scale1*float32(q&15) - least1
			high[i] = scale2*float32(q>>4) - least2
		}
	}
}

// blockQ5K: as Q4_K with 32 bytes before the nibbles, whose bit j is the fifth bit
// of sub-block j.
func blockQ5K(dst []float32, b []byte) {
	d, dmin := half(b), half(b[2:])
	fifth := b[16:48]
	for j := 0; j < 8; j += 2 {
		scale1, least1 := scaleMin(b[4:16], j)
		scale2, least2 := scaleMin(b[4:16], j+1)
		scale1, least1, scale2, least2 = d*scale1, dmin*least1, d*scale2, dmin*least2
		low, high := dst[32*j:][:32], dst[32*j+32:][:32]
		for i, q := range b[48+16*j:][:32] {
			low[i] = scale1*float32(q&15|fifth[i]>>j&1<<4) - least1
			high[i] = scale2*float32(q>>4|fifth[i]>>(j+1)&1<<4) - least2
		}
	}
}

// blockQ6K: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales
// for 16 weights each, and a half d; d·scale·(q−32). Each half of a block has its
// weights in four groups of 32 over the same bytes.
func blockQ6K(dst []float32, b []byte) {
	d := half(b[208:])
	for part := range 16 { // of 16 weights with one scale
		n, group, second := part/8, part/2%4, 16*(part%2)
		low := b[64*n+32*(group%2)+second:][:16]
		high := b[128+32*n+second:][:16]
		scale := d * float32(int8(b[192+part]))
		shift, pair := 4*(group/2), 2*group
		out := dst[16*part:][:16]
		for i, q := range low {
			out[i] = scale * float32(int(q>>shift&15|high[i]>>pair&3<<4)-32)
		}
	}
}
