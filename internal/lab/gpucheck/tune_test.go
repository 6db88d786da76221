package gpucheck

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/kernels"
)

// The table has the fastest tile of each product, of what was measured on a device.
func TestTiles(t *testing.T) {
	measured := func(rows, tokens int, kernel string, figure float64) Result {
		m := kernels.MeasuredTile{Rows: rows, In: 64, Tokens: tokens, Kernel: kernel}
		return Result{Case: "tune/" + tuned(m), End: Passed, Figure: figure, Unit: "us"}
	}
	pretended, failed := measured(8, 128, "gemm_sm90a_128x64", 1), measured(8, 128, "gemm_sm90a_64x256", 2)
	pretended.Pretended, failed.End = true, Failed
	got := Tiles([]Result{
		measured(16, 128, "gemm_sm90a_128x64", 10), measured(8, 512, "gemm_sm90a_128x256", 9), pretended, failed,
		measured(8, 128, "gemm_sm90a_128x256", 7), measured(8, 128, "gemm_sm90a_128x128", 5), measured(8, 512, "gemm_sm90a_64x256", 11),
		{Case: "measure/gemm/m/o/tokens=1", End: Passed, Figure: 1},
	})
	want := []kernels.MeasuredTile{{Rows: 8, In: 64, Tokens: 128, Kernel: "gemm_sm90a_128x128"}, {Rows: 8, In: 64, Tokens: 512, Kernel: "gemm_sm90a_128x256"}, {Rows: 16, In: 64, Tokens: 128, Kernel: "gemm_sm90a_128x64"}}
	if !slices.Equal(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	if again, err := kernels.ParseTiles(kernels.FormatTiles(got)); err != nil || !slices.Equal(again, want) {
		t.Errorf("written and read: %+v, %v", again, err)
	}
	for _, c := range tuneCases() {
		if m, ok := tunedOf("tune/" + c.Name); !ok || !strings.HasSuffix(c.Name, m.Kernel) || m.Rows < 1 || m.In < 1 || m.Tokens < 1 {
			t.Errorf("%s is read as %+v", c.Name, m)
		}
	}
}
