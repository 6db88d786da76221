package cpu

import (
	"testing"

	"github.com/dynctl/dynctl/internal/engine/cpu/kernel"
)

// TestPreparedActivations checks that every row has its forms, also where rows are
// those of another set, and that float32 alone costs no memory.
func TestPreparedActivations(t *testing.T) {
	const rows, cols = 5, 96
	level := kernel.Best()
	var a activations
	a.reserve(rows, cols, 8, int8Form)
	for i := range a.rows {
		copy(a.rows[i], randomFloats(uint64(i), cols))
	}
	a.form = int8Form
	a.prepare(level, 0, 2)
	a.prepare(level, 2, rows)
	slots := activations{form: int8Form, rows: make([][]float32, 3), blocks: make([][]kernel.Block, 3)}
	for i, row := range []int{4, 0, 4} {
		slots.refer(i, &a, row)
	}
	part := a.span(1, 3)
	for _, tt := range []struct {
		what string
		set  activations
		i    int
		row  int
	}{{"first", a, 0, 0}, {"last", a, 4, 4}, {"of a span", part, 1, 2}, {"referred", slots, 2, 4}} {
		want := make([]kernel.Block, cols/kernel.BlockSize)
		level.Quantize(want, randomFloats(uint64(tt.row), cols))
		for b := range want {
			if tt.set.blocks[tt.i][b] != want[b] {
				t.Errorf("%s: block %d is %+v, want %+v", tt.what, b, tt.set.blocks[tt.i][b], want[b])
			}
		}
	}
	var plain activations
	plain.reserve(rows, cols, 8, 0)
	if plain.prepare(level, 0, rows); plain.blocks != nil || plain.span(0, 2).blocks != nil {
		t.Error("blocks that nobody wants")
	}
}
