package main

import (
	"fmt"
	"strings"
)

// neonEncoding is an instruction of ARMv8-A on vectors that Go's assembler does not
// know: its bits where all operands are zero, and how operands are put in.
type neonEncoding struct {
	bits  uint32
	shape string // as in the manual, with d, n, m for registers and i for a number
	put   func(operands []int) uint32
}

// neonEncodings has every instruction that is written as a word, by its name and, after a
// space, what tells several of one name apart. The test compares them with words from
// the GNU assembler, and with its disassembler where there is one.
var neonEncodings = map[string]neonEncoding{
	"fadd":   {0x4E20D400, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fsub":   {0x4EA0D400, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fmul":   {0x6E20DC00, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fdiv":   {0x6E20FC00, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fcmgt":  {0x6EA0E400, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fcmeq":  {0x4E20E400, "v%d.4s, v%d.4s, v%d.4s", registers},
	"fcmge":  {0x6E20E400, "v%d.4s, v%d.4s, v%d.4s", registers},
	"bic":    {0x4E601C00, "v%d.16b, v%d.16b, v%d.16b", registers},
	"fneg":   {0x6EA0F800, "v%d.4s, v%d.4s", registers},
	"frintm": {0x4E219800, "v%d.4s, v%d.4s", registers},
	"fcvtzs": {0x4EA1B800, "v%d.4s, v%d.4s", registers},
	"fcvtl":  {0x0E217800, "v%d.4s, v%d.4h", registers},
	"fcvtl2": {0x4E217800, "v%d.4s, v%d.8h", registers},
	"movi":   {0x6F00E400, "v%d.2d, #0x0", registers},
	"faddp":  {0x7E30D800, "s%d, v%d.2s", registers},
	"sshr":   {0x4F000400, "v%d.4s, v%d.4s, #%d", shiftRight},

	"fmla lane": {0x4F801000, "v%d.4s, v%d.4s, v%d.s[%d]", element32},
	"fmls lane": {0x4F805000, "v%d.4s, v%d.4s, v%d.s[%d]", element32},
	"fmul lane": {0x4F809000, "v%d.4s, v%d.4s, v%d.s[%d]", element32},

	// Integers. sdot belongs to FEAT_DotProd and usmmla to FEAT_I8MM, the others to every
	// processor.
	"sdot":     {0x4F80E000, "v%d.4s, v%d.16b, v%d.4b[%d]", element32},
	"usmmla":   {0x4E80AC00, "v%d.4s, v%d.16b, v%d.16b", registers},
	"smull":    {0x0E20C000, "v%d.8h, v%d.8b, v%d.8b", registers},
	"smull2":   {0x4E20C000, "v%d.8h, v%d.16b, v%d.16b", registers},
	"sadalp":   {0x4E606800, "v%d.4s, v%d.8h", registers},
	"sxtl 8b":  {0x0F08A400, "v%d.8h, v%d.8b", registers},
	"sxtl 4h":  {0x0F10A400, "v%d.4s, v%d.4h", registers},
	"sxtl2 8h": {0x4F10A400, "v%d.4s, v%d.8h", registers},
	"shll":     {0x2E613800, "v%d.4s, v%d.4h, #16", registers},
	"shll2":    {0x6E613800, "v%d.4s, v%d.8h, #16", registers},
	"neg":      {0x6EA0B800, "v%d.4s, v%d.4s", registers},
	"scvtf":    {0x4E21D800, "v%d.4s, v%d.4s", registers},
	"fcvtns":   {0x4E21A800, "v%d.4s, v%d.4s", registers},
	"fabs":     {0x4EA0F800, "v%d.4s, v%d.4s", registers},

	// FEAT_BF16.
	"bfdot":  {0x4F40F000, "v%d.4s, v%d.8h, v%d.2h[%d]", element32},
	"bfmmla": {0x6E40EC00, "v%d.4s, v%d.8h, v%d.8h", registers},
}

// registers are d, n and m, as many as there are.
func registers(operands []int) (bits uint32) {
	for i, r := range operands {
		bits |= register(r) << [...]int{0, 5, 16}[i]
	}
	return bits
}

// shiftRight of 32-bit lanes by 1 to 32 is stored as its distance to 64.
func shiftRight(operands []int) uint32 {
	return registers(operands[:2]) | uint32(64-operands[2])<<16
}

// element32 is lane 0 to 3 of the last register.
func element32(operands []int) uint32 {
	lane := uint32(operands[3])
	return registers(operands[:3]) | lane>>1<<11 | lane&1<<21
}

func register(r int) uint32 {
	if r < 0 || r > 31 {
		panic(fmt.Sprint("no register ", r))
	}
	return uint32(r)
}

// neonEncode returns an instruction's word and its text in the order of the manual:
// destination first.
func neonEncode(key string, operands ...int) (word uint32, text string) {
	e, ok := neonEncodings[key]
	if !ok {
		panic("no encoding of " + key)
	}
	name, _, _ := strings.Cut(key, " ")
	args := make([]any, len(operands))
	for i, o := range operands {
		args[i] = o
	}
	return e.bits | e.put(operands), name + " " + fmt.Sprintf(e.shape, args...)
}
