package kernel

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"unsafe"
)

// ErrBF16 is returned when products in bf16 are not what the documents of the processor
// say.
var ErrBF16 = errors.New("products in bf16 are wrong")

// CheckBF16 compares products in bf16 with their Go form, in all bits, once a process and
// level. It fails with [ErrBF16]. The level has BF16.
func (l Level) CheckBF16() error { return checksBF16[l]() }

var checksBF16 = func() (checks [NEON + 1]func() error) {
	for l := range NEON + 1 {
		checks[l] = sync.OnceValue(func() error { return l.checkBF16(l.ProductBF16) })
	}
	return checks
}()

// checkBF16 checks one and two tiles of rows, full ones and others, all numbers of rows of
// other kernels, and steps of k with a rest.
func (l Level) checkBF16(product func(*CallBF16)) error {
	r := rand.New(rand.NewPCG(1, 1))
	sizes := []int{1, 2, 3, 5, 7, 12}
	if l == AMX {
		sizes = []int{1, 16, 23, 65}
	}
	for _, rows := range sizes {
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
		productBF16Go(l, call(want))
		for i := range want {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				return fmt.Errorf("%w: at %s, element %d of %d rows is %v, not %v", ErrBF16, l, i, rows, got[i], want[i])
			}
		}
	}
	return nil
}
