package main

import "fmt"

// neon writes the kernels for arm64, in the instructions that every such processor
// has: vectors of four float32 in 32 registers.
//
// Operands of instructions that the assembler knows come last to first, as always in
// Go; those written as words have the order of the manual.
type neon struct{ *text }

const (
	neonRegs  = 32
	neonBytes = 16 // of a register
)

// ints are the integer registers that kernels use: not those of the linker, the
// system, the assembler and the runtime.
var ints = []string{
	"R0", "R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "R9", "R10", "R11",
	"R12", "R13", "R14", "R15", "R19", "R20", "R21", "R22", "R23", "R24", "R25", "R26",
}

// word writes an instruction of the table of neonEncodings.
func (g neon) word(name string, operands ...int) {
	bits, text := neonEncode(name, operands...)
	g.line("\tWORD $0x%08X // %s", bits, text)
}

func (g neon) ret() { g.op("RET") }

// arg loads an argument of the function, such as x+8(FP).
func (g neon) arg(arg, reg string) { g.op("MOVD", arg, reg) }

// splat fills all lanes with a float32 argument.
func (g neon) splat(arg string, v int) {
	g.op("FMOVS", arg, f(v))
	g.op("VDUP", fmt.Sprintf("V%d.S[0]", v), s4(v))
}

func (g neon) load(off int, reg string, v int)  { g.op("FMOVQ", at(off, reg), f(v)) }
func (g neon) store(v, off int, reg string)     { g.op("FMOVQ", f(v), at(off, reg)) }
func (g neon) pair(off int, reg string, v int)  { g.op("FLDPQ", at(off, reg), both(v)) }
func (g neon) storePair(v, off int, reg string) { g.op("FSTPQ", both(v), at(off, reg)) }
func (g neon) zero(v int)                       { g.word("movi", v) }

// Names of vector register v: as a scalar, two in a row, and by its lanes.
func f(v int) string    { return fmt.Sprintf("F%d", v) }
func both(v int) string { return fmt.Sprintf("(F%d, F%d)", v, v+1) }
func s4(v int) string   { return fmt.Sprintf("V%d.S4", v) }
func d2(v int) string   { return fmt.Sprintf("V%d.D2", v) }
func h8(v int) string   { return fmt.Sprintf("V%d.H8", v) }
func b16(v int) string  { return fmt.Sprintf("V%d.B16", v) }
