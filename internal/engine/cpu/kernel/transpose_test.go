package kernel

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestTransposedPanels compares panels of the kernels with those that Go packs word by
// word, and looks at what lies behind them.
func TestTransposedPanels(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	random := func(n int) []byte {
		b := aligned(n)
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	}
	const guard = 128
	for _, ty := range []Type{F32, BF16, Q8_0, Q4_0} {
		for _, blocks := range []int{1, 2, 3, 4, 5, 7, 8, 33} {
			t.Run(fmt.Sprintf("type %d, %d", ty, blocks), func(t *testing.T) {
				cols := 32 * blocks
				if !ty.Quantized() {
					cols = 2 * (blocks*7 + 3)
				}
				src, size := random(Width*ty.RowBytes(cols)), PanelBytes(ty, cols)
				got, want := random(size+guard), make([]byte, size)
				behind := bytes.Clone(got[size:])
				Pack(ty, unsafe.Pointer(&got[0]), unsafe.Pointer(&src[0]), Width, cols)
				packWordByWord(ty, want, src, cols)
				if !bytes.Equal(got[:size], want) {
					for i := range want {
						if got[i] != want[i] {
							t.Fatalf("byte %d is %#x, want %#x", i, got[i], want[i])
						}
					}
				}
				if !bytes.Equal(got[size:], behind) {
					t.Error("the kernel writes behind the panel")
				}
			})
		}
	}
}

// packWordByWord is Pack of 32 rows without kernels.
func packWordByWord(ty Type, dst, src []byte, cols int) {
	row := ty.RowBytes(cols)
	if !ty.Quantized() {
		for r := range Width {
			for k := range row / 4 {
				copy(dst[4*(k*Width+r):][:4], src[r*row+4*k:])
			}
		}
		return
	}
	pack, l := packQ8_0, layouts[ty]
	if ty == Q4_0 {
		pack = packQ4_0
	}
	for b := range row / l.bytes {
		for r := range Width {
			pack(dst[b*l.panel:][:l.panel], src[r*row+b*l.bytes:][:l.bytes], r)
		}
	}
}
