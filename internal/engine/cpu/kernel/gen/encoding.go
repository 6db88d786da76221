package main

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// The functions of this file encode the instructions that the assembler does not
// know: those of AMX and of AVX512_BF16. Tests compare them with the bytes that
// binutils gives.

// code writes an encoded instruction, with its text as a comment.
func (t *text) code(encoded []byte, comment string) {
	parts := make([]string, len(encoded))
	for i, b := range encoded {
		parts[i] = fmt.Sprintf("BYTE $0x%02X", b)
	}
	t.line("\t%s // %s", strings.Join(parts, "; "), comment)
}

// number is that of a general register.
func number(reg string) int {
	for i, name := range []string{"AX", "CX", "DX", "BX", "SP", "BP", "SI", "DI"} {
		if name == reg {
			return i
		}
	}
	n, err := strconv.Atoi(strings.TrimPrefix(reg, "R"))
	if err != nil || n < 8 || n > 15 {
		panic("no register " + reg)
	}
	return n
}

// evex3 encodes an instruction of three registers of 512 bits, without mask, in map
// 0F38 and with W0: prefix is 0 for none, 1 for 66, 2 for F3 and 3 for F2.
func evex3(prefix, opcode byte, dst, src1, src2 int) []byte {
	not := func(bit int) byte { return byte(^bit & 1) }
	return []byte{
		0x62,
		not(dst>>3)<<7 | not(src2>>4)<<6 | not(src2>>3)<<5 | not(dst>>4)<<4 | 2,
		byte(^src1&15)<<3 | 4 | prefix,
		0x40 | not(src1>>4)<<3,
		opcode,
		0xC0 | byte(dst&7)<<3 | byte(src2&7),
	}
}

// dotPairs is VDPBF16PS: it adds to each float32 of dst the products of two pairs of
// bf16, see kernel.CallBF16.
func (t *text) dotPairs(dst, src1, src2 int) {
	t.code(evex3(2, 0x52, dst, src1, src2), fmt.Sprintf("VDPBF16PS Z%d, Z%d, Z%d", src2, src1, dst))
}

// narrowPairs is VCVTNEPS2BF16: it rounds sixteen float32 to bf16, in the lower half of
// dst.
func (t *text) narrowPairs(dst, src int) {
	t.code(evex3(2, 0x72, dst, 0, src), fmt.Sprintf("VCVTNEPS2BF16 Z%d, Y%d", src, dst))
}

// vexTile encodes an AMX instruction in map 0F38 with W0. base and index are 0 where
// the last byte names tiles.
func vexTile(prefix, opcode byte, vvvv, base, index int, rest ...byte) []byte {
	second := byte(0xE2)
	if index > 7 {
		second &^= 0x40
	}
	if base > 7 {
		second &^= 0x20
	}
	return append([]byte{0xC4, second, byte(^vvvv&15)<<3 | prefix, opcode}, rest...)
}

// tileMemory encodes a load or store of tile t at base + index + offset; index is
// the distance of its rows.
func tileMemory(prefix byte, t int, base, index string, offset int) []byte {
	b, i := number(base), number(index)
	if i == 4 {
		panic("SP is no index")
	}
	sib := byte(i&7)<<3 | byte(b&7)
	switch {
	case offset == 0 && b&7 != 5:
		return vexTile(prefix, 0x4B, 0, b, i, byte(t<<3|4), sib)
	case offset == int(int8(offset)):
		return vexTile(prefix, 0x4B, 0, b, i, byte(0x40|t<<3|4), sib, byte(offset))
	}
	return binary.LittleEndian.AppendUint32(vexTile(prefix, 0x4B, 0, b, i, byte(0x80|t<<3|4), sib), uint32(int32(offset)))
}

func tileDotBF16(dst, a, b int) []byte {
	return vexTile(2, 0x5C, b, 0, 0, byte(0xC0|dst<<3|a))
}

func (t *text) tileConfig(base string) {
	if b := number(base) & 7; b == 4 || b == 5 {
		panic(base + " needs another form")
	}
	t.code(vexTile(0, 0x49, 0, number(base), 0, byte(number(base)&7)), "LDTILECFG ("+base+")")
}

func (t *text) tileRelease() { t.code(vexTile(0, 0x49, 0, 0, 0, 0xC0), "TILERELEASE") }

func (t *text) tileZero(tile int) {
	t.code(vexTile(3, 0x49, 0, 0, 0, byte(0xC0|tile<<3)), fmt.Sprintf("TILEZERO T%d", tile))
}

func (t *text) tileLoad(tile int, base, index string, offset int) {
	t.code(tileMemory(3, tile, base, index, offset), fmt.Sprintf("TILELOADD %d(%s)(%s*1), T%d", offset, base, index, tile))
}

func (t *text) tileStore(tile int, base, index string, offset int) {
	t.code(tileMemory(2, tile, base, index, offset), fmt.Sprintf("TILESTORED T%d, %d(%s)(%s*1)", tile, offset, base, index))
}

// tileDot adds the products of tiles a (rows of pairs of k) and b (pairs of k by
// outputs) to dst.
func (t *text) tileDot(dst, a, b int) {
	t.code(tileDotBF16(dst, a, b), fmt.Sprintf("TDPBF16PS T%d, T%d, T%d", b, a, dst))
}

// tileDotUnsigned adds the products of tiles a (unsigned bytes, four of k at a time) and
// b (signed) to the 32-bit sums of dst.
func (t *text) tileDotUnsigned(dst, a, b int) {
	t.code(vexTile(1, 0x5E, b, 0, 0, byte(0xC0|dst<<3|a)), fmt.Sprintf("TDPBUSD T%d, T%d, T%d", b, a, dst))
}

// tileDotSigned is tileDotUnsigned for two tiles of signed bytes.
func (t *text) tileDotSigned(dst, a, b int) {
	t.code(vexTile(3, 0x5E, b, 0, 0, byte(0xC0|dst<<3|a)), fmt.Sprintf("TDPBSSD T%d, T%d, T%d", b, a, dst))
}
