package kernel

import "unsafe"

// pairRows is the largest number of rows of one product without tiles.
const pairRows = 12

// Rows and steps of tiles.
const (
	tileRows  = 16 // of activations in a tile
	groupRows = 2 * tileRows
	tileCols  = 32 // of bf16 in a row of a tile
)

// CallBF16 is a product of rows of activations in bf16 with a panel of bf16 weights
// ([Pack]). Sums are float32. Numbers below the smallest normal one count as zero,
// among arguments and among results. Roundings are to the nearest, ties to even, but at
// NEON.
//
// AVX512: each output is one sum that starts at zero and goes through pairs of k
// from first to last. Of a pair the second product is added first, then the first
// one, each rounded once.
//
// AMX: k comes in steps of 32. Each step has two sums that start at zero, of its even
// and of its odd k, from first to last, each product added with one rounding. These
// two are added, and the result is added to the output.
//
// NEON: each output is one sum that starts at zero and goes through pairs of k from first
// to last. The two products of a pair are added, and their sum is added to the output's;
// all four operations round to odd: toward zero, and then the last bit is 1 if anything
// was lost. Overflows become infinite.
//
// All are the same for any number of rows.
type CallBF16 struct {
	Src    *uint16    // the first row, see [Level.PrepareBF16]
	Stride int        // bytes from one row to the next, see [StrideBF16]
	Dst    []*float32 // room for all outputs of the panel, of each row
	Panel  unsafe.Pointer
	Cols   int

	// Ahead is the offset at which kernels without tiles begin to prefetch, and Pace the bytes
	// they advance with each two k, see [CallBF16.Fetch].
	Ahead uintptr
	Pace  int

	// Scratch is memory of the caller, of no other call at the same time.
	Scratch *ScratchBF16

	// What the kernels for tiles read.
	config    *tileConfig
	steps     int            // of 32 k, in the panel
	tail      unsafe.Pointer // one more step, padded; nil: there is none
	groups    int
	groupRows int
	out       unsafe.Pointer // sums of a group
}

// ScratchBF16 is the memory that a call with tiles needs.
type ScratchBF16 [64 + (groupRows+tileRows)*Width*4]byte

// BF16 reports whether the level multiplies activations in bf16: whether the machine
// has AVX512_BF16, AMX or, on arm64, FEAT_BF16 for it.
func (l Level) BF16() bool { return l.hasBF16() }

// FastBF16 reports whether products in bf16 are faster than those in float32.
func (l Level) FastBF16() bool { return l.fastBF16() }

// StrideBF16 is the distance in bytes of rows with so many activations in bf16: rows
// start at multiples of 64 and are padded to whole tiles, and neighbors do not meet
// in the same sets of a cache.
func StrideBF16(cols int) int {
	lines := (cols + tileCols - 1) / tileCols
	return (lines | 1) * 64
}

// PrepareBF16 rounds a row of activations to bf16, to the nearest, ties to even, and
// pads it with zeros. dst has StrideBF16(len(src)) / 2 elements.
func (l Level) PrepareBF16(dst []uint16, src []float32) {
	n := len(src) &^ 15
	if n > 0 {
		l.roundBF16(dst[:n], src[:n])
	}
	roundBF16Go(dst[n:], src[n:])
	clear(dst[len(src):])
}

// callWork bounds a call with tiles in multiplications: some 50 µs.
const callWork = 32 << 20

// RowsBF16 is how many rows a product with so many columns takes at most.
func (l Level) RowsBF16(cols int) int {
	if l != AMX {
		return pairRows
	}
	return max(callWork/(max(cols, 1)*Width)/groupRows, 1) * groupRows
}

// Fetch says what the call-th of so many calls with a panel prefetches, as
// [BlockCall.Fetch] does.
func (c *CallBF16) Fetch(call, calls int) {
	c.Ahead, c.Pace = fetch(c.Panel, PanelBytes(BF16, c.Cols), 4*Width, call, calls)
}

// ShareBF16 is how many rows the next product should take of n.
func (l Level) ShareBF16(n, cols int) int {
	most := l.RowsBF16(cols)
	calls := (n + most - 1) / most
	share := (n + calls - 1) / calls
	if l == AMX && calls > 1 { // whole groups, but for the last ones
		share = (share + groupRows - 1) / groupRows * groupRows
	}
	return share
}

// ProductBF16 computes a call. Level has BF16, and there are at most RowsBF16 rows.
func (l Level) ProductBF16(c *CallBF16) {
	if l == AMX {
		c.cut(l)
	} else {
		l.pairsBF16(c)
	}
}

// tileConfig is the operand of LDTILECFG.
type tileConfig struct {
	palette  uint8
	_        [15]uint8 // the row at which an interrupted load goes on, and reserved
	rowBytes [16]uint16
	rows     [16]uint8
}

// tileConfigs holds the tile configurations of groups, by rows.
var tileConfigs = func() (configs [groupRows + 1]tileConfig) {
	for m := 1; m <= groupRows; m++ {
		c := &configs[m]
		c.palette = 1
		for t, rows := range [8]int{
			min(m, tileRows), min(m, tileRows), max(m-tileRows, 0), max(m-tileRows, 0), // sums
			min(m, tileRows), max(m-tileRows, 0), // activations
			tileRows, tileRows, // weights
		} {
			if rows > 0 {
				c.rows[t], c.rowBytes[t] = uint8(rows), 64
			}
		}
	}
	return configs
}()

// cut runs the call in parts: groups of 32 rows, then the rest, in two tiles or one.
func (c *CallBF16) cut(l Level) {
	scratch := unsafe.Pointer(c.Scratch)
	scratch = unsafe.Add(scratch, -int(uintptr(scratch))&63)
	c.out = scratch
	c.steps, c.tail = c.Cols/tileCols, nil
	if rest := (c.Cols%tileCols + 1) &^ 1; rest > 0 {
		c.tail = unsafe.Add(scratch, groupRows*Width*4)
		tail := unsafe.Slice((*uint16)(c.tail), tileCols*Width)
		clear(tail[copy(tail, unsafe.Slice((*uint16)(unsafe.Add(c.Panel, c.steps*tileCols*Width*2)), rest*Width)):])
	}
	if whole := len(c.Dst) / groupRows; whole > 0 {
		c.groups, c.groupRows, c.config = whole, groupRows, &tileConfigs[groupRows]
		l.tilesBF16(2, c)
	}
	rest := len(c.Dst) % groupRows
	if rest == 0 {
		return
	}
	src, dst, done := c.Src, c.Dst, len(c.Dst)-rest
	c.Src, c.Dst = (*uint16)(unsafe.Add(unsafe.Pointer(src), done*c.Stride)), dst[done:]
	c.groups, c.groupRows, c.config = 1, rest, &tileConfigs[rest]
	l.tilesBF16((rest+tileRows-1)/tileRows, c)
	c.Src, c.Dst = src, dst
}
