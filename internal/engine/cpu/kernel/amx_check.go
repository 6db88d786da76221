package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"unsafe"
)

// ErrTiles is returned when tiles do not compute what their documents say.
var ErrTiles = errors.New("products on tiles are wrong")

// CheckAMX compares products on tiles with their Go form, in all bits, once a
// process. It fails with [ErrTiles]. The machine has the level [AMX].
func CheckAMX() error { return checkAMX() }

var checkAMX = sync.OnceValue(func() error { return checkTiles(AMX.ProductBF16) })

// checkTiles checks one and two tiles of rows, full ones and others, and steps of k
// with a rest.
func checkTiles(product func(*CallBF16)) error {
	r := rand.New(rand.NewPCG(1, 1))
	for _, rows := range []int{1, 16, 23, 65} {
		const cols = 2*tileCols + 6
		const stride = 3 * 64
		src, panel := make([]uint16, rows*stride/2), make([]uint16, cols*Width)
		for i := range rows {
			for k := range cols {
				src[i*stride/2+k] = toBF16(float32(r.NormFloat64()))
			}
		}
		for i := range panel {
			panel[i] = toBF16(float32(r.NormFloat64()))
		}
		got, want := make([]float32, rows*Width), make([]float32, rows*Width)
		call := func(out []float32) *CallBF16 {
			c := &CallBF16{Src: &src[0], Stride: stride, Panel: unsafe.Pointer(&panel[0]), Cols: cols, Scratch: new(ScratchBF16)}
			for i := range rows {
				c.Dst = append(c.Dst, &out[i*Width])
			}
			return c
		}
		product(call(got))
		tilesBF16Go(call(want))
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				return fmt.Errorf("%w: element %d of %d rows is %v, not %v", ErrTiles, i, rows, got[i], want[i])
			}
		}
	}
	return nil
}
