package cpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
	"github.com/dynctl/dynctl/internal/model"
	"github.com/dynctl/dynctl/internal/model/safetensors"
)

// TestNotFinite: whatever the type, the alignment and the place, the first weight that is no
// finite number is found, and the largest finite ones are none.
func TestNotFinite(t *testing.T) {
	for _, tc := range []struct {
		kind      kernel.Type
		size      int
		good, bad []uint32
	}{
		{kernel.F32, 4, []uint32{0, 0x7F7F_FFFF, 0xFF7F_FFFF, 0x0080_0000, 1}, []uint32{0x7F80_0000, 0xFF80_0000, 0x7FC0_0000, 0xFFFF_FFFF}},
		{kernel.BF16, 2, []uint32{0, 0x7F7F, 0xFF7F, 0x0080, 1}, []uint32{0x7F80, 0xFF80, 0x7FC0, 0xFFFF}},
		{kernel.F16, 2, []uint32{0, 0x7BFF, 0xFBFF, 0x0400, 1}, []uint32{0x7C00, 0xFC00, 0x7E00, 0xFFFF}},
	} {
		for _, n := range []int{1, 3, 4, 11, 16} {
			for at := -1; at < n; at++ {
				for _, bad := range tc.bad {
					data := make([]byte, (n+1)*tc.size)
					rows := data[tc.size:]
					for i := range n {
						v := tc.good[i%len(tc.good)]
						if i == at {
							v = bad
						}
						if tc.size == 4 {
							binary.NativeEndian.PutUint32(rows[i*4:], v)
						} else {
							binary.NativeEndian.PutUint16(rows[i*2:], uint16(v))
						}
					}
					if got := notFinite(tc.kind, unsafe.Pointer(&rows[0]), n); got != at {
						t.Fatalf("type %v, %#x: found at %d of %d, is at %d", tc.kind, bad, got, n, at)
					}
				}
			}
		}
	}
}

// TestLoadNamesNaN: a weight that is no finite number is an error of loading that names its
// tensor and place, where matrices are packed; a vector is one everywhere.
func TestLoadNamesNaN(t *testing.T) {
	data := make([]byte, 2*40*8)
	binary.LittleEndian.PutUint16(data[2*(39*8+2):], 0x7FC0)
	tensor := model.Tensor{Name: "blk.w", DType: safetensors.BF16, Shape: []int{40, 8}, Data: data}
	for _, level := range kernel.Levels() {
		if level == kernel.Portable {
			continue
		}
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			m, err := newMatrix(tensor)
			if err != nil {
				t.Fatal(err)
			}
			d := newDevice("cpu:0", 2, level)
			t.Cleanup(func() { _ = d.Close() })
			w := &Weights{device: d}
			err = w.pack([]*matrix{&m})
			if !errors.Is(err, safetensors.ErrNotANumber) || !strings.Contains(err.Error(), `"blk.w"`) || !strings.Contains(err.Error(), "row 39, column 2") {
				t.Errorf("%v", err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	for bits, dtype := range map[uint32]safetensors.DType{math.Float32bits(float32(math.Inf(-1))): safetensors.F32, 0x7F80: safetensors.BF16, 0x7E00: safetensors.F16} {
		raw := binary.LittleEndian.AppendUint32(nil, bits)
		if dtype != safetensors.F32 {
			raw = raw[:2]
		}
		if _, err := vector(model.Tensor{Name: "norm", DType: dtype, Shape: []int{1}, Data: raw}); !errors.Is(err, safetensors.ErrNotANumber) || !strings.Contains(err.Error(), `"norm"`) {
			t.Errorf("%s: %v", dtype, err)
		}
	}
}
