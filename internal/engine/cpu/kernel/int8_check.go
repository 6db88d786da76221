package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"unsafe"
)

// ErrInt8 is returned when products of bytes on tiles are not what the documents of the
// processor say.
var ErrInt8 = errors.New("products of bytes on tiles are wrong")

// CheckInt8 compares products of bytes on tiles with their Go form, in all bits, once a
// process. It fails with [ErrInt8]. The level [AMX] has [Level.Int8Tiles].
func CheckInt8() error { return checkInt8Once() }

var checkInt8Once = sync.OnceValue(func() error { return checkInt8(AMX.ProductInt8) })

// checkInt8 checks every type with one group of rows and with several, full ones and
// others, over two parts of k.
func checkInt8(product func(Type, *CallInt8)) error {
	const cols = (int8Part + 8) * BlockSize
	r := rand.New(rand.NewPCG(1, 2))
	for t := Q8_0; t <= Q6K; t++ {
		src := randomRows(r, t, cols)
		words := make([]uint64, PanelBytes(t, cols)/8)
		panel := unsafe.Pointer(&words[0])
		Pack(t, panel, unsafe.Pointer(&src[0]), Width, cols)
		for _, rows := range []int{leastInt8, 2*tileRows + 5} {
			x, out := make([]Block, max(rows, tileRows)*cols/BlockSize), make([]float32, rows*Width)
			c := &CallInt8{Src: &x[0], Stride: cols / BlockSize * int(unsafe.Sizeof(Block{})), Panel: panel, Blocks: cols / BlockSize, Scratch: new(ScratchInt8)}
			values := make([]float32, cols)
			for i := range rows {
				for k := range values {
					values[k] = float32(r.NormFloat64())
				}
				quantizeGo(x[i*c.Blocks:][:c.Blocks], values)
				c.Dst = append(c.Dst, &out[i*Width])
			}
			product(t, c)
			var row Row
			for o := range Width {
				row.Unpack(t, src[o*t.RowBytes(cols):][:t.RowBytes(cols)])
				for i := range rows {
					got, want := out[i*Width+o], row.Dot(x[i*c.Blocks:][:c.Blocks])
					if math.Float32bits(got) != math.Float32bits(want) {
						name := [...]string{Q8_0: "Q8_0", Q4_0: "Q4_0", Q4K: "Q4_K", Q5K: "Q5_K", Q6K: "Q6_K"}[t]
						return fmt.Errorf("%w: with weights of %s, output %d of row %d is %v, not %v", ErrInt8, name, o, i, got, want)
					}
				}
			}
		}
	}
	return nil
}

// randomRows are the rows of a panel as a file has them, of any weights with scales
// that are small numbers.
func randomRows(r *rand.Rand, t Type, cols int) []byte {
	src := make([]byte, Width*t.RowBytes(cols))
	for i := range src {
		src[i] = byte(r.Uint32())
	}
	for b := 0; b < len(src); b += layouts[t].bytes {
		for _, at := range scaleBytes(t) {
			src[b+at+1] = 0x20 + byte(r.UintN(0x10))
		}
	}
	return src
}

// scaleBytes returns the offsets of the half-precision scales in a block of the file.
func scaleBytes(t Type) []int {
	switch t {
	case Q4K, Q5K:
		return []int{0, 2}
	case Q6K:
		return []int{208}
	}
	return []int{0}
}
