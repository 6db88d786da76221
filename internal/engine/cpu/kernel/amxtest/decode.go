package amxtest

import "encoding/binary"

// op is an instruction of AMX.
type op uint8

const (
	ldtilecfg op = iota
	sttilecfg
	tilerelease
	tilezero
	tileloadd
	tilestored
	tdpbf16ps
	tdpbuud
	tdpbusd
	tdpbsud
	tdpbssd
	numOps
)

func (o op) String() string {
	return [...]string{"ldtilecfg", "sttilecfg", "tilerelease", "tilezero", "tileloadd", "tilestored", "tdpbf16ps", "tdpbuud", "tdpbusd", "tdpbsud", "tdpbssd"}[o]
}

// none stands for a register that an address does not have.
const none = -1

// instruction is a decoded one: dst, a and b are tiles, base and index general
// registers.
type instruction struct {
	op          op
	dst, a, b   int
	base, index int
	scale       uint
	offset      int64
	size        int // bytes
}

// decode reads an instruction; ok is false for all that are none of AMX, and for
// addresses relative to the instruction, which no kernel uses.
func decode(code []byte) (in instruction, ok bool) {
	if len(code) < 5 || code[0] != 0xC4 || code[1]&0x9F != 0x82 || code[2]&0x84 != 0 {
		return in, false // no VEX of three bytes with map 0F38, W0, L0 and a tile below 8
	}
	prefix, vvvv, modrm := code[2]&3, int(^code[2]>>3&15), code[4]
	mod, reg, rm := modrm>>6, int(modrm>>3&7), int(modrm&7)
	in = instruction{dst: reg, a: rm, b: vvvv, base: none, index: none, size: 5}
	memory := mod != 3
	if memory {
		if ok := in.address(code[5:], mod, rm, int(^code[1]>>6&1)<<3, int(^code[1]>>5&1)<<3); !ok {
			return in, false
		}
	} else if code[1]&0x60 != 0x60 {
		return in, false
	}
	type form struct {
		opcode, prefix byte
		memory         bool
	}
	o, known := map[form]op{
		{0x49, 0, true}: ldtilecfg, {0x49, 1, true}: sttilecfg, {0x49, 0, false}: tilerelease, {0x49, 3, false}: tilezero,
		{0x4B, 3, true}: tileloadd, {0x4B, 1, true}: tileloadd /* with a hint */, {0x4B, 2, true}: tilestored,
		{0x5C, 2, false}: tdpbf16ps,
		{0x5E, 0, false}: tdpbuud, {0x5E, 1, false}: tdpbusd, {0x5E, 2, false}: tdpbsud, {0x5E, 3, false}: tdpbssd,
	}[form{code[3], prefix, memory}]
	in.op = o
	switch o {
	case ldtilecfg, sttilecfg:
		known = known && vvvv == 0 && reg == 0
	case tilerelease:
		known = known && vvvv == 0 && modrm == 0xC0
	case tilezero:
		known = known && vvvv == 0 && rm == 0
	case tileloadd, tilestored:
		known = known && vvvv == 0 && rm == 4
	default:
		known = known && vvvv < 8
	}
	return in, known
}

// address reads what follows the ModRM byte. x and b extend index and base.
func (in *instruction) address(rest []byte, mod byte, rm, x, b int) bool {
	in.base = rm | b
	if rm == 4 {
		if len(rest) < 1 {
			return false
		}
		sib := rest[0]
		rest = rest[1:]
		in.size++
		in.scale = uint(sib >> 6)
		in.base = int(sib&7) | b
		if in.index = int(sib>>3&7) | x; in.index == 4 {
			in.index = none
		}
	}
	wide := mod == 2
	if mod == 0 && in.base&7 == 5 {
		if rm == 5 {
			return false // relative to the next instruction
		}
		in.base, wide = none, true
	}
	switch {
	case wide && len(rest) >= 4:
		in.offset = int64(int32(binary.LittleEndian.Uint32(rest)))
		in.size += 4
	case mod == 1 && len(rest) >= 1:
		in.offset = int64(int8(rest[0]))
		in.size++
	default:
		return !wide && mod == 0
	}
	return true
}
