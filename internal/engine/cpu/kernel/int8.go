package kernel

import "unsafe"

// CallInt8 is a product of many rows of blocks with a panel of quantized weights on
// tiles. It gives the bits of [BlockCall]: the sums of products of bytes are exact on
// tiles, too, and what brings them together is the same arithmetic in the same order.
//
// Weights are unpacked first, [int8Part] blocks at a time and once for all rows: for
// each 32 k of the panel a line of scales as float32, one of minima or of the scales of
// the second 16 k, and eight lines of weights without offset, as bytes. That is one form
// for all types, in which a tile of weights is 16 outputs by 32 k (by 16 for Q6_K).
type CallInt8 struct {
	Src    *Block     // the first row; there is memory for sixteen rows at least
	Stride int        // bytes from one row to the next
	Dst    []*float32 // room for all outputs of the panel, of each row
	Panel  unsafe.Pointer
	Blocks int // at least 1

	// Scratch is memory of the caller, of no other call at the same time.
	Scratch *ScratchInt8

	// What the kernels read, and change.
	config  *tileConfig
	row     unsafe.Pointer // first of the group
	rows    int            // from that one on
	dst     unsafe.Pointer // of the group, as in Dst; nil: this part of k is not the last
	weights unsafe.Pointer // unpacked; 64 bytes later for the second half of the outputs
	sums    unsafe.Pointer // of each group and half of the outputs, between parts
	buffer  unsafe.Pointer // two tiles
	pairs   int            // of tiles that are multiplied at the same time
	odd     int            // whether there is another block
	next    uintptr        // address in the panel to prefetch from
	lines   int            // of the cache, to prefetch in a turn; at least 1
	few     [tileRows]*float32
}

const (
	// int8Part is how many blocks are unpacked at a time. With the same blocks of sixteen
	// rows and what else tiles need they fill four fifths of 48 KiB. It is a multiple of
	// the largest blocks of files.
	int8Part = 16
	// int8Rows is for how many rows a part is unpacked.
	int8Rows = 256
	// leastInt8 is from how many rows on tiles are faster than vectors. By count of
	// instructions a group and its unpacking cost as much as nine rows; fewer than sixteen
	// may have to be copied.
	leastInt8 = 12

	unpackedBytes = 10 * lineBytes // of a block
	tileBytes     = 16 * 64
)

// ScratchInt8 is the memory that a call needs.
type ScratchInt8 [127 + int8Part*unpackedBytes + 2*tileBytes + int8Rows*lineBytes + lineBytes]byte

// Int8Tiles reports whether the level multiplies quantized weights on tiles: whether it
// is [AMX], and the processor has AMX-INT8, too.
func (l Level) Int8Tiles() bool { return l == AMX && hasInt8Tiles() }

// RowsInt8 is how many of n rows tiles should take. The rest, six rows at most unless it
// is all of them, is faster with vectors.
func RowsInt8(n int) int {
	switch rest := n % tileRows; {
	case n < leastInt8:
		return 0
	case n > tileRows && rest <= blockRows:
		return n - rest
	}
	return n
}

// int8Configs are those of blocks, and of halves of blocks.
var int8Configs = func() (configs [2]tileConfig) {
	for i := range configs {
		k := BlockSize >> i
		c := &configs[i]
		c.palette = 1
		for t := range 8 {
			c.rows[t], c.rowBytes[t] = tileRows, 64 // sums
			switch {
			case t >= 6: // weights
				c.rows[t] = uint8(k / 4)
			case t >= 4: // activations
				c.rowBytes[t] = uint16(k)
			}
		}
	}
	return configs
}()

// ProductInt8 computes a call. The level has Int8Tiles.
func (l Level) ProductInt8(t Type, c *CallInt8) {
	dst := c.Dst
	if n := len(dst); n < tileRows { // tiles have them all
		void := unsafe.Add(unsafe.Pointer(c.Scratch), len(c.Scratch)-lineBytes)
		for i := copy(c.few[:], dst); i < tileRows; i++ {
			c.few[i] = (*float32)(void)
		}
		c.Dst = c.few[:]
	}
	for first := 0; first < len(c.Dst); first += int8Rows {
		// Fewer rows than a group are taken with some before them.
		first := min(first, len(c.Dst)-tileRows)
		l.partsInt8(t, c, first, min(int8Rows, len(c.Dst)-first))
	}
	c.Dst = dst
	clear(c.few[:])
}

// partsInt8 computes n rows, from a first one on, of at least a group.
func (l Level) partsInt8(t Type, c *CallInt8, first, n int) {
	weights := unsafe.Pointer(c.Scratch)
	weights = unsafe.Add(weights, -int(uintptr(weights))&(lineBytes-1))
	c.buffer = unsafe.Add(weights, int8Part*unpackedBytes)
	sums := unsafe.Add(c.buffer, 2*tileBytes)
	groups := (n + tileRows - 1) / tileRows
	clear(unsafe.Slice((*byte)(sums), groups*2*tileBytes))
	perTurn, config := 2, &int8Configs[0]
	if t == Q6K {
		perTurn, config = 1, &int8Configs[1]
	}
	panel, row := c.Panel, unsafe.Add(unsafe.Pointer(c.Src), first*c.Stride)
	for done := 0; done < c.Blocks; {
		blocks := min(int8Part, c.Blocks-done)
		l.unpackInt8(t, weights, panel, blocks)
		size := PanelBytes(t, blocks*BlockSize)
		c.config, c.weights, c.sums = config, weights, sums
		c.row, c.rows, c.dst = unsafe.Add(row, done*int(unsafe.Sizeof(Block{}))), n, nil
		c.pairs, c.odd = blocks/perTurn, blocks%perTurn
		c.next = uintptr(panel) + uintptr(size)
		turns := 2 * groups * (c.pairs + c.odd)
		c.lines = (size/64 + turns - 1) / turns
		if done += blocks; done == c.Blocks {
			c.dst = unsafe.Pointer(&c.Dst[first])
		} else {
			panel = unsafe.Add(panel, size)
		}
		l.tilesInt8(t, c)
	}
	c.row, c.dst, c.weights, c.sums, c.buffer = nil, nil, nil, nil, nil
}
