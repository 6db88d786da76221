package main

import "fmt"

// unpackedBytes is the size of 32 k of all outputs as tiles read them, see
// kernel.CallInt8: two lines of scales or minima, and eight lines of weights.
const unpackedBytes = 2*lineBytes + 8*lineBytes

// tileSumBytes is the size of a tile of sums.
const tileSumBytes = 16 * 64

// int8Kind is a way to bring the sums of tiles together: which one a format needs.
type int8Kind struct {
	name   string
	mins   bool // a minimum for each block
	halves bool // two sums of 16 k a block
}

var int8Kinds = []int8Kind{{name: "Scales"}, {name: "Mins", mins: true}, {name: "Halves", halves: true}}

// kind is that of a format.
func (f quantized) kind() int8Kind {
	for _, k := range int8Kinds {
		if k.mins == f.mins && k.halves == f.halves {
			return k
		}
	}
	panic("no kind for " + f.name)
}

func tilesInt8Name(k int8Kind) string { return "tilesInt8" + k.name + "AMX" }

// tilesInt8 are the products of rows of blocks with unpacked weights by TDPBSSD.
func tilesInt8() string {
	t := header("Products of rows of int8 with unpacked weights on tiles, see int8.go.")
	for _, k := range int8Kinds {
		g := &int8Gen{text: t, int8Kind: k}
		g.product()
	}
	return t.String()
}

type int8Gen struct {
	*text
	int8Kind
	prefetches int // so far
}

// Registers of these kernels. Sums of 16 rows with 16 outputs stay in Z0 to Z15. Rows
// are addressed in fours, from the values of their blocks.
const (
	int8Call    = "R8"
	int8Weights = "BX"  // of the block at hand, from the first of its 16 outputs
	int8Stride  = "SI"  // of rows
	int8Triple  = "DI"  // three times that
	int8Line    = "R9"  // of weights
	int8Buffer  = "R13" // for two tiles of sums
	int8Sums    = "R15" // of this group and half, between parts of k
	int8Ahead   = "R14" // where to prefetch
	int8Scale   = "Z16"
	int8Min     = "Z17"
)

var int8Rows = [4]string{"AX", "R10", "R11", "R12"}

// unit is one tile of sums: where it finds its part of a block.
type int8Unit struct {
	values int // bytes behind the row registers
	block  int // of weights, from the pair's first
	lines  int // in the block
	scale  int
}

// pair are the two units of one turn: two blocks, or the halves of one.
func (g *int8Gen) pair() [2]int8Unit {
	const lines = 2 * lineBytes
	if g.halves {
		return [2]int8Unit{{lines: lines}, {values: 16, lines: lines + 4*lineBytes, scale: lineBytes}}
	}
	return [2]int8Unit{{lines: lines}, {values: blockBytes, block: unpackedBytes, lines: lines}}
}

// blocks returns the number of blocks in a pair.
func (g *int8Gen) blocks() int {
	if g.halves {
		return 1
	}
	return 2
}

func (g *int8Gen) field(name string) string { return fmt.Sprintf("CallInt8_%s(%s)", name, int8Call) }

// product multiplies groups of 16 rows with both halves of a panel's outputs. A turn
// starts two tiles, brings the sums of the turn before to their floats while these
// multiply, and stores the tiles last: what reads a store comes behind the loads of the
// next turn. See tilesOf for why all of it is one function.
func (g *int8Gen) product() {
	g.function(tilesInt8Name(g.int8Kind), 8)
	g.op("MOVQ", "c+0(FP)", int8Call)
	g.op("MOVQ", g.field("config"), "AX")
	g.tileConfig("AX")
	g.op("MOVQ", g.field("Stride"), int8Stride)
	g.op("LEAQ", "("+int8Stride+")("+int8Stride+"*2)", int8Triple)
	g.op("MOVQ", fmt.Sprintf("$%d", lineBytes), int8Line)
	g.op("MOVQ", g.field("buffer"), int8Buffer)
	g.op("MOVQ", g.field("sums"), int8Sums)
	g.op("MOVQ", g.field("next"), int8Ahead)
	g.label("half")
	g.op("MOVQ", g.field("row"), int8Rows[0])
	g.op("ADDQ", "$Block_Values", int8Rows[0])
	for i, r := range int8Rows[1:] {
		g.op("LEAQ", fmt.Sprintf("(%s)(%s*4)", int8Rows[i], int8Stride), r)
	}
	g.op("MOVQ", g.field("weights"), int8Weights)
	for i := range 16 {
		g.op("VMOVUPS", fmt.Sprintf("%d(%s)", 64*i, int8Sums), fmt.Sprintf("Z%d", i))
	}
	both := g.pair()
	g.op("MOVQ", g.field("pairs"), "CX")
	if !g.halves {
		g.op("TESTQ", "CX", "CX")
		g.op("JZ", "odd")
	}
	g.multiply(both[:]...)
	g.op("JMP", "store")
	g.line("\tPCALIGN $32")
	g.label("loop")
	g.multiply(both[:]...)
	g.add(-1, both[:]...)
	g.label("store")
	g.store(both[:]...)
	for _, r := range int8Rows {
		g.op("ADDQ", fmt.Sprintf("$%d", g.blocks()*blockBytes), r)
	}
	g.op("ADDQ", fmt.Sprintf("$%d", g.blocks()*unpackedBytes), int8Weights)
	g.op("DECQ", "CX")
	g.op("JNZ", "loop")
	g.add(-1, both[:]...)
	if !g.halves { // a last block without another one
		g.label("odd")
		g.op("CMPQ", g.field("odd"), "$0")
		g.op("JEQ", "done")
		g.multiply(both[0])
		g.store(both[0])
		g.add(0, both[0])
	}
	g.label("done")
	g.finish()
	g.tileRelease()
	g.ret()
}

// multiply starts the tiles of units.
func (g *int8Gen) multiply(units ...int8Unit) {
	for i, u := range units {
		g.tileZero(tileSums + i)
		g.tileLoad(tileRows+i, int8Rows[0], int8Stride, u.values)
		g.tileLoad(tileWeights+i, int8Weights, int8Line, u.block+u.lines)
		g.tileDotSigned(tileSums+i, tileRows+i, tileWeights+i)
	}
	g.prefetch()
}

// prefetch asks for the part of the panel that is unpacked next, some lines a turn, so
// that memory is read while tiles multiply.
func (g *int8Gen) prefetch() {
	label := fmt.Sprintf("prefetch%d", g.prefetches)
	g.prefetches++
	g.op("MOVQ", g.field("lines"), "DX")
	g.label(label)
	g.op("PREFETCHT1", "("+int8Ahead+")")
	g.op("ADDQ", "$64", int8Ahead)
	g.op("DECQ", "DX")
	g.op("JNZ", label)
}

func (g *int8Gen) store(units ...int8Unit) {
	g.op("MOVQ", "$64", "DX")
	for i := range units {
		g.tileStore(tileSums+i, int8Buffer, "DX", i*tileSumBytes)
	}
}

// add brings stored tiles to the sums, in the arithmetic of kernel.BlockCall: those of
// this turn or of the one before.
func (g *int8Gen) add(turn int, units ...int8Unit) {
	const temporaries = 7 // of two registers each
	for n, u := range units {
		weights := u.block + turn*g.blocks()*unpackedBytes
		values := turn * g.blocks() * blockBytes
		if !g.halves {
			values += u.values
		}
		x := func(i int, field string) string {
			index := [4]string{"", "(" + int8Stride + "*1)", "(" + int8Stride + "*2)", "(" + int8Triple + "*1)"}[i%4]
			return fmt.Sprintf("(%s-Block_Values+%d)(%s)%s", field, values, int8Rows[i/4], index)
		}
		g.op("VMOVUPS", fmt.Sprintf("%d(%s)", weights+u.scale, int8Weights), int8Scale)
		if g.mins {
			g.op("VMOVUPS", fmt.Sprintf("%d(%s)", weights+lineBytes, int8Weights), int8Min)
		}
		for i := range 16 {
			sum, product, scale := fmt.Sprintf("Z%d", i), fmt.Sprintf("Z%d", 18+i%temporaries*2), fmt.Sprintf("Z%d", 19+i%temporaries*2)
			g.op("VMULPS.BCST", x(i, "Block_Scale"), int8Scale, scale)
			g.op("VCVTDQ2PS", fmt.Sprintf("%d(%s)", n*tileSumBytes+64*i, int8Buffer), product)
			g.op("VFMADD231PS", scale, product, sum)
			if g.mins {
				g.op("VFNMADD231PS.BCST", x(i, "Block_Sum"), int8Min, sum)
			}
		}
	}
}

// finish keeps the sums of a half, or writes them to their rows behind the last part of
// k, and goes on with the other half and the next group. A last group of fewer rows
// starts as many rows earlier: some rows are then written twice, with the same sums.
func (g *int8Gen) finish() {
	g.op("MOVQ", g.field("dst"), "CX")
	g.op("MOVQ", g.field("weights"), int8Weights)
	g.op("TESTQ", "CX", "CX")
	g.op("JZ", "keep")
	g.op("MOVQ", int8Weights, "R10")
	g.op("ANDQ", "$64", "R10")
	for i := range 16 {
		g.op("MOVQ", fmt.Sprintf("%d(CX)", 8*i), "AX")
		g.op("VMOVUPS", fmt.Sprintf("Z%d", i), "(AX)(R10*1)")
	}
	g.op("JMP", "next")
	g.label("keep")
	for i := range 16 {
		g.op("VMOVUPS", fmt.Sprintf("Z%d", i), fmt.Sprintf("%d(%s)", 64*i, int8Sums))
	}
	g.label("next")
	g.op("ADDQ", fmt.Sprintf("$%d", tileSumBytes), int8Sums)
	g.op("XORQ", "$64", int8Weights)
	g.op("MOVQ", int8Weights, g.field("weights"))
	g.op("TESTQ", "$64", int8Weights)
	g.op("JNZ", "half")
	g.op("MOVQ", g.field("rows"), "AX")
	g.op("SUBQ", "$16", "AX")
	g.op("JLE", "end")
	g.op("MOVQ", "AX", g.field("rows"))
	g.op("MOVQ", "$16", "R10")
	g.op("CMPQ", "AX", "R10")
	g.op("CMOVQGT", "R10", "AX")
	g.op("TESTQ", "CX", "CX")
	g.op("JZ", "rows")
	g.op("LEAQ", "(CX)(AX*8)", "CX")
	g.op("MOVQ", "CX", g.field("dst"))
	g.label("rows")
	g.op("IMULQ", int8Stride, "AX")
	g.op("ADDQ", "AX", g.field("row"))
	g.op("JMP", "half")
	g.label("end")
}
