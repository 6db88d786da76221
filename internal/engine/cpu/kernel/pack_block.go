package kernel

import (
	"encoding/binary"
	"unsafe"
)

// layout describes a type of quantized weights in files and in panels.
type layout struct {
	weights int // in a block of the file
	bytes   int // of it
	panel   int // bytes of such a block of 32 outputs in a panel
	turn    int // of them for 32 weights, or for 64 of a superblock: what kernels take at a time
}

var layouts = [Q6K + 1]layout{
	Q8_0: {32, 34, 64 + 1024, 64 + 1024},
	Q4_0: {32, 18, 64 + 512, 64 + 512},
	Q4K:  {256, 144, 128 + 4*(128+1024), 128/4 + 128 + 1024},
	Q5K:  {256, 176, 128 + 4*(128+1024+256), 128/4 + 128 + 1024 + 256},
	Q6K:  {256, 210, 64 + 4*(128+1024+512), 64/4 + 128 + 1024 + 512},
}

// Quantized reports whether weights are blocks of small integers with scales.
func (t Type) Quantized() bool { return t >= Q8_0 }

// BlockWeights returns the number of weights of a row in a block of the file. Rows are whole
// blocks.
func (t Type) BlockWeights() int {
	if t.Quantized() {
		return layouts[t].weights
	}
	return 1
}

// packBlocks writes a panel of quantized weights. A line is [output][k % 4] of bytes,
// the order of VPDPBUSD, and of tiles.
//
//	Q8_0: for each 32 k: the outputs' scales (f16); 8 lines of weight + 128.
//	Q4_0: for each 32 k: the outputs' scales (f16); 4 lines of weight + 8 in nibbles,
//	      those of k in the low ones and those of k + 16 in the high ones.
//	Q4_K, Q5_K: for each 256 k: the outputs' d and dmin (f16); for each 64 of them two
//	      scales and two minima of all outputs (bytes), and 8 lines of the weights' low
//	      four bits, the second 32 k in the high nibbles.
//	Q5_K: then two lines for 32 k each, whose bit n is the fifth of the n-th four.
//	Q6_K: for each 256 k: the outputs' d (f16); for each 64 of them four scales of all
//	      outputs (signed bytes), lines of weight + 32 as for Q4_K, and four lines for
//	      16 k each, which have two bits for each four.
//
// Outputs that do not exist have zeros.
func packBlocks(t Type, dst, src []byte, rows int) {
	if rows < Width {
		clear(dst)
	}
	l, pack := layouts[t], [...]func(dst, block []byte, output int){
		Q8_0: packQ8_0, Q4_0: packQ4_0, Q4K: packQ4K, Q5K: packQ5K, Q6K: packQ6K,
	}[t]
	row, done := len(src)/rows, 0
	if rows == Width {
		done = transposeBlocks(t, dst, src, row)
	}
	if done > 0 {
		packScales(dst, src, row, done, l)
	}
	for b := done; b < row/l.bytes; b++ {
		out := dst[b*l.panel:][:l.panel]
		for r := range rows {
			pack(out, src[r*row+b*l.bytes:][:l.bytes], r)
		}
	}
}

// packScales writes the scales of the first blocks of 32 rows, where they are the first
// two bytes of a block. Rows are read from their first to their last byte, and the
// lines of the scales stay in the cache.
func packScales(dst, src []byte, row, blocks int, l layout) {
	for r := range Width {
		in, out := src[r*row:(r+1)*row], dst[2*r:]
		for b := range blocks {
			binary.LittleEndian.PutUint16(out[b*l.panel:], binary.LittleEndian.Uint16(in[b*l.bytes:]))
		}
	}
}

// lineBytes is the size of a line: four bytes of each output.
const lineBytes = 4 * Width

func packQ8_0(dst, block []byte, output int) {
	copy(dst[2*output:][:2], block)
	for g := range 8 {
		putWord(dst, 64+g*lineBytes, output, word(block, 2+4*g)^0x80808080)
	}
}

func packQ4_0(dst, block []byte, output int) {
	copy(dst[2*output:][:2], block)
	for g := range 4 {
		putWord(dst, 64+g*lineBytes, output, word(block, 2+4*g))
	}
}

func packQ4K(dst, block []byte, output int) {
	for pair := range 4 {
		out := packScalesK(dst, block, output, pair, layouts[Q4K].panel)
		for g := range 8 {
			putWord(out, g*lineBytes, output, word(block, 16+32*pair+4*g))
		}
	}
}

func packQ5K(dst, block []byte, output int) {
	for pair := range 4 {
		out := packScalesK(dst, block, output, pair, layouts[Q5K].panel)
		var above0, above1 uint32
		for g := range 8 {
			putWord(out, g*lineBytes, output, word(block, 48+32*pair+4*g))
			bits := word(block, 16+4*g) >> (2 * pair & 31)
			above0 |= bits & 0x01010101 << (g & 31)
			above1 |= bits >> 1 & 0x01010101 << (g & 31)
		}
		putWord(out, 8*lineBytes, output, above0)
		putWord(out, 9*lineBytes, output, above1)
	}
}

// packScalesK writes d, dmin and the scales and minima of 64 weights, and returns
// where the lines of these weights go.
func packScalesK(dst, block []byte, output, pair, size int) []byte {
	copy(dst[2*output:][:2], block)
	copy(dst[64+2*output:][:2], block[2:])
	part := (size - 128) / 4
	out := dst[128+pair*part:][:part]
	for b := range 2 {
		out[32*b+output], out[64+32*b+output] = scaleMin(block[4:16], 2*pair+b)
	}
	return out[128:]
}

func packQ6K(dst, block []byte, output int) {
	copy(dst[2*output:][:2], block[208:])
	part := (layouts[Q6K].panel - 64) / 4
	for pair := range 4 {
		out := dst[64+pair*part:][:part]
		for i, s := range block[192+4*pair:][:4] {
			out[32*i+output] = s
		}
		// The file has its 256 weights in two halves of four times 32, which share bytes
		// of low bits in twos and bytes of high bits in fours.
		low, high := block[64*(pair/2):][:64], block[128+32*(pair/2):][:32]
		shift := pair % 2 * 4 & 31
		for half := range 2 {
			var above0, above1 uint32
			for i := range 4 {
				g := 4*half + i
				first, second := word(low, 4*g)>>shift, word(low, 32+4*g)>>shift
				putWord(out, 128+g*lineBytes, output, first&0x0F0F0F0F|second&0x0F0F0F0F<<4)
				bits := word(high, 4*g) >> shift
				above0 |= bits & 0x03030303 << (2 * i & 31)
				above1 |= bits >> 2 & 0x03030303 << (2 * i & 31)
			}
			putWord(out, 128+(8+half)*lineBytes, output, above0)
			putWord(out, 128+(10+half)*lineBytes, output, above1)
		}
	}
}

// scaleMin gives the 6-bit scale and minimum of sub-block j of the eight in a block
// of Q4_K or Q5_K, from their 12 packed bytes.
func scaleMin(b []byte, j int) (scale, least byte) {
	if j < 4 {
		return b[j] & 63, b[j+4] & 63
	}
	return b[j+4]&15 | b[j-4]>>6<<4, b[j+4]>>4 | b[j]>>6<<4
}

// word and putWord leave out the checks of their range, which would take most of the
// time; packBlocks has made sure of whole blocks. Only machines with kernels pack, and
// these are little-endian and read words at any address.
func word(b []byte, at int) uint32 {
	return *(*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(b)), at))
}

func putWord(lines []byte, line, output int, v uint32) {
	*(*uint32)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(lines)), line+4*output)) = v
}
