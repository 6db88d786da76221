package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// needInt8Tiles skips where nothing multiplies bytes on tiles.
func needInt8Tiles(t *testing.T) {
	t.Helper()
	if !Best().Int8Tiles() {
		t.Skip("this machine has no AMX-INT8")
	}
}

// productInt8 computes the products of rows x, each with blocks blocks, and a panel. Rows
// lie two blocks further from each other than they must. It returns a row of outputs for
// each, with one value behind it that must stay what it is.
func productInt8(product func(Type, *CallInt8), ty Type, panel []byte, x [][]Block, blocks int) [][]float32 {
	stride := blocks + 2
	rows := make([]Block, max(len(x), tileRows)*stride)
	for i := range rows { // what lies between rows and behind the last one has no effect
		rows[i].Scale, rows[i].Sum = float32(math.NaN()), float32(math.NaN())
	}
	c := &CallInt8{Src: &rows[0], Stride: stride * int(unsafe.Sizeof(Block{})), Panel: unsafe.Pointer(&panel[0]), Blocks: blocks, Scratch: new(ScratchInt8)}
	for i := range c.Scratch {
		c.Scratch[i] = 0xFF
	}
	out := make([][]float32, len(x))
	for i := range x {
		copy(rows[i*stride:], x[i])
		out[i] = make([]float32, Width+1)
		out[i][Width] = 12345
		c.Dst = append(c.Dst, &out[i][0])
	}
	product(ty, c)
	return out
}

// TestProductInt8 compares tiles with sums over unpacked rows in Go, in all bits: all
// numbers of rows of some groups, and of blocks with a rest in every part of the
// kernels.
func TestProductInt8(t *testing.T) {
	needInt8Tiles(t)
	for _, ty := range quantizedTypes {
		t.Run(ty.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(41, uint64(ty.t)))
			unit := max(BlockSize, ty.t.BlockWeights())
			counts := []int{1, 2, 3, 15, 16, 17, 33}
			if ty.t.BlockWeights() > BlockSize {
				counts = []int{1, 2, 3, 5}
			}
			for m := 1; m <= 40; m++ {
				n := counts[m%len(counts)]
				testInt8(t, r, ty.t, m, n*unit, []int{Width, 1, 17, 31}[m/len(counts)%4])
			}
			testInt8(t, r, ty.t, int8Rows+3, unit, Width)
			testInt8(t, r, ty.t, 2*int8Rows, counts[2]*unit, 9)
		})
	}
}

func testInt8(t *testing.T, r *rand.Rand, ty Type, m, cols, rows int) {
	t.Helper()
	src := quantizedRows(r, ty, rows, cols)
	panel := aligned(PanelBytes(ty, cols))
	Pack(ty, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), rows, cols)
	x := make([][]Block, m)
	for i := range x {
		x[i] = randomBlocks(r, cols/BlockSize)
	}
	out := productInt8(AMX.ProductInt8, ty, panel, x, cols/BlockSize)
	var row Row
	for o := range Width {
		if o < rows {
			row.Unpack(ty, src[o*ty.RowBytes(cols):][:ty.RowBytes(cols)])
		}
		for i := range x {
			var want float32 // of outputs that do not exist
			if o < rows {
				want = row.Dot(x[i])
			}
			same(t, fmt.Sprintf("%d rows, %d columns, output %d of row %d", m, cols, o, i), out[i][o:o+1], []float32{want})
		}
	}
	for i := range out {
		if out[i][Width] != 12345 {
			t.Fatalf("%d rows, %d columns: written behind row %d", m, cols, i)
		}
	}
}

// TestProductInt8Extremes multiplies the largest values of both signs, and -128 with
// -128, which Quantize never makes.
func TestProductInt8Extremes(t *testing.T) {
	needInt8Tiles(t)
	for _, ty := range quantizedTypes {
		t.Run(ty.name, func(t *testing.T) {
			const cols, m = 768, 19
			for _, fill := range []byte{0x00, 0x7F, 0x80, 0xFF} {
				src := extremeRows(rand.New(rand.NewPCG(42, uint64(ty.t))), ty.t, fill, cols)
				panel := aligned(PanelBytes(ty.t, cols))
				Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
				x := make([][]Block, m)
				for i := range x {
					x[i] = make([]Block, cols/BlockSize)
					for b := range x[i] {
						x[i][b].Scale, x[i][b].Sum = 0.5, 3
						for k := range x[i][b].Values {
							x[i][b].Values[k] = []int8{-128, 127}[[...]int{0, 1, k % 2, k / 16 % 2}[i%4]]
						}
					}
				}
				out := productInt8(AMX.ProductInt8, ty.t, panel, x, cols/BlockSize)
				var row Row
				row.Unpack(ty.t, src[:ty.t.RowBytes(cols)])
				for i := range x {
					want := row.Dot(x[i])
					for o := range Width {
						same(t, fmt.Sprintf("%#x, output %d of row %d", fill, o, i), out[i][o:o+1], []float32{want})
					}
				}
			}
		})
	}
}

// TestProductInt8NoNumbers has scales that are infinite or no numbers, on both sides:
// they reach the sums that they are part of and no others.
func TestProductInt8NoNumbers(t *testing.T) {
	needInt8Tiles(t)
	const cols, m, bad, badOutput = 256, 21, 18, 7
	for _, ty := range quantizedTypes {
		t.Run(ty.name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(43, uint64(ty.t)))
			src := quantizedRows(r, ty.t, Width, cols)
			at := badOutput * ty.t.RowBytes(cols)
			if ty.t == Q6K {
				at += 208
			}
			src[at], src[at+1] = 0, 0x7C
			panel := aligned(PanelBytes(ty.t, cols))
			Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
			x := make([][]Block, m)
			for i := range x {
				x[i] = randomBlocks(r, cols/BlockSize)
			}
			x[bad][3].Scale = float32(math.NaN())
			out := productInt8(AMX.ProductInt8, ty.t, panel, x, cols/BlockSize)
			var row Row
			for o := range Width {
				row.Unpack(ty.t, src[o*ty.t.RowBytes(cols):][:ty.t.RowBytes(cols)])
				for i := range x {
					want := row.Dot(x[i])
					same(t, fmt.Sprintf("output %d of row %d", o, i), out[i][o:o+1], []float32{want})
					if i == bad && want == want {
						t.Errorf("output %d of the row with a NaN is %v", o, want)
					}
					if i != bad && o != badOutput && (want != want || math.IsInf(float64(want), 0)) {
						t.Errorf("output %d of row %d is %v", o, i, want)
					}
				}
			}
		})
	}
}

// TestUnpackInt8 compares what tiles read with rows in Go. It needs no tiles.
func TestUnpackInt8(t *testing.T) {
	if b := Best(); b != AVX512 && b != AMX {
		t.Skip("unpacking needs AVX-512")
	}
	for _, ty := range quantizedTypes {
		t.Run(ty.name, func(t *testing.T) {
			const cols = 512
			r := rand.New(rand.NewPCG(44, uint64(ty.t)))
			src := quantizedRows(r, ty.t, Width, cols)
			panel, got := aligned(PanelBytes(ty.t, cols)), aligned(cols/BlockSize*unpackedBytes)
			Pack(ty.t, unsafe.Pointer(&panel[0]), unsafe.Pointer(&src[0]), Width, cols)
			AMX.unpackInt8(ty.t, unsafe.Pointer(&got[0]), unsafe.Pointer(&panel[0]), cols/BlockSize)
			var row Row
			for o := range Width {
				row.Unpack(ty.t, src[o*ty.t.RowBytes(cols):][:ty.t.RowBytes(cols)])
				for b := range cols / BlockSize {
					block := got[b*unpackedBytes:][:unpackedBytes]
					float := func(line int) float32 {
						return *(*float32)(unsafe.Pointer(&block[line*lineBytes+4*o]))
					}
					scales := row.scales[b*BlockSize/row.run:][:BlockSize/row.run]
					for i, want := range scales {
						same(t, fmt.Sprintf("output %d, block %d: scale", o, b), []float32{float(i)}, []float32{want})
					}
					if len(row.mins) > 0 {
						same(t, fmt.Sprintf("output %d, block %d: minimum", o, b), []float32{float(1)}, row.mins[b:b+1])
					}
					for k, want := range row.values[b*BlockSize:][:BlockSize] {
						if v := int8(block[(2+k/4)*lineBytes+4*o+k%4]); v != want {
							t.Fatalf("output %d, block %d: weight %d is %d, want %d", o, b, k, v, want)
						}
					}
				}
			}
		})
	}
}

func TestRowsInt8(t *testing.T) {
	for n := range 600 {
		tiles := RowsInt8(n)
		rest := n - tiles
		switch {
		case tiles < 0 || rest < 0:
			t.Errorf("%d of %d rows", tiles, n)
		case tiles == 0 && n >= leastInt8, tiles > 0 && tiles < leastInt8:
			t.Errorf("tiles take %d of %d rows", tiles, n)
		case tiles > 0 && rest > blockRows, rest > 0 && tiles%tileRows != 0:
			t.Errorf("tiles leave %d of %d rows", rest, n)
		}
	}
}

// TestCheckInt8 shows that the check finds one wrong element of each type.
func TestCheckInt8(t *testing.T) {
	if Best() == Portable {
		t.Skip("there are no products with panels here")
	}
	if err := checkInt8(int8ByRows); err != nil {
		t.Error(err)
	}
	for _, ty := range quantizedTypes {
		err := checkInt8(func(other Type, c *CallInt8) {
			int8ByRows(other, c)
			if other == ty.t && len(c.Dst) > tileRows {
				last := unsafe.Slice(c.Dst[len(c.Dst)-1], Width)
				last[31] = math.Nextafter32(last[31], float32(math.Inf(1)))
			}
		})
		if !errors.Is(err, ErrInt8) {
			t.Errorf("%s: err = %v, want ErrInt8", ty.name, err)
		}
	}
}

// int8ByRows computes a call row by row with what other kernels the machine has.
func int8ByRows(ty Type, c *CallInt8) {
	for i, dst := range c.Dst {
		call := &BlockCall{Panel: c.Panel, Blocks: c.Blocks}
		call.Fetch(ty, 0, 1)
		call.Src[0], call.Dst[0] = (*Block)(unsafe.Add(unsafe.Pointer(c.Src), i*c.Stride)), dst
		Best().ProductBlocks(ty, 1, call)
	}
}
