package kernels

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// launches notes kernels and grids, and counts tensor maps.
type launches struct {
	names map[uint64]string
	maps  int
	last  string
	grid  uint32
}

func (l *launches) TensorMapEncode(_ int, m *driver.TensorMap) (e driver.EncodedTensorMap, err error) {
	l.maps++
	return e, m.Check()
}

func (l *launches) LaunchKernel(_ int, launch *driver.Launch, _ uint64) error {
	l.last, l.grid = l.names[launch.Function], launch.Grid.X
	return nil
}

func recording(names ...string) (*launches, *Queue) {
	l, functions := &launches{names: map[uint64]string{}}, map[string]uint64{}
	for i, n := range append(names, "gemm", "gemm_64") {
		functions[n] = uint64(i + 1)
		l.names[uint64(i+1)] = n
	}
	return l, NewQueue(l, functions, 0, 1)
}

func allTiles() (names []string) {
	for _, t := range Tiles {
		names = append(names, t.Kernel)
	}
	return names
}

// Tiles fill the device in few waves: with the shapes of Llama-3.1-8B on 132
// multiprocessors, large ones for many tokens, and small ones where large ones would leave
// half of the device idle.
func TestTileIsChosen(t *testing.T) {
	l, q := recording(allTiles()...)
	for _, c := range []struct {
		tokens, rows, in int
		want             string
		grid             uint32
	}{
		{2048, 6144, 4096, "gemm_sm90a_128x256", 132},
		{2048, 28672, 4096, "gemm_sm90a_128x256", 132},
		{2048, 4096, 14336, "gemm_sm90a_128x256", 132},
		{512, 4096, 4096, "gemm_sm90a_128x128", 128},
		{128, 4096, 4096, "gemm_sm90a_128x64", 64},
		{64, 4096, 4096, "gemm_64", 128}, // memory limits
		{2048, 4100, 4096, "gemm", 33},   // rows of outputs do not begin at multiples of 16 bytes
	} {
		o := MatMul{Out: 16, X: 16, W: 16, Tokens: c.tokens, Rows: c.rows, In: c.in}
		if err := q.GEMM(o); err != nil || l.last != c.want || l.grid != c.grid {
			t.Errorf("%d tokens, %d rows of %d: %s in %d blocks, %v; want %s in %d", c.tokens, c.rows, c.in, l.last, l.grid, err, c.want, c.grid)
		}
	}
	o := MatMul{Out: 16, X: 16, W: 16, Tokens: 2048, Rows: 4096, In: 4096}
	for want, queue := range map[string]*Queue{
		"gemm":               q.Tune(Tuning{Portable: true}),
		"gemm_sm90a_64x256":  func() *Queue { _, q := recording(allTiles()...); return q.Tune(Tuning{Tile: "gemm_sm90a_64x256"}) }(),
		"gemm_sm90a_128x128": func() *Queue { _, q := recording("gemm_sm90a_128x128"); return q }(), // no other is loaded
	} {
		l := queue.launcher.(*launches)
		if err := queue.GEMM(o); err != nil || l.last != want {
			t.Errorf("%s instead of %s, %v", l.last, want, err)
		}
	}
	odd := o
	odd.Bias = 18
	l, q = recording(allTiles()...)
	if err := q.GEMM(odd); err != nil || l.last != "gemm" {
		t.Errorf("%s with a bias at an odd address, %v", l.last, err)
	}
}

// Gates are computed at once where that kernel is there and fits, else by two.
func TestGatedGEMM(t *testing.T) {
	for _, c := range []struct {
		kernels []string
		tuning  Tuning
		tokens  int
		want    string
		grid    uint32
	}{
		{append(allTiles(), gatedKernel), Tuning{}, 2048, gatedKernel, 132},
		{append(allTiles(), gatedKernel), Tuning{}, 64, "glu", 7},
		{append(allTiles(), gatedKernel), Tuning{Portable: true}, 2048, "glu", 7},
		{append(allTiles(), gatedKernel), Tuning{Tile: "gemm_sm90a_128x64"}, 2048, "glu", 7},
		{allTiles(), Tuning{}, 2048, "glu", 7},
	} {
		l, q := recording(append(c.kernels, "glu")...)
		o := GatedMatMul{MatMul: MatMul{Out: 16, X: 16, W: 16, Tokens: c.tokens, Rows: 28672, In: 4096}, Gated: 32}
		if err := q.Tune(c.tuning).GatedGEMM(o); err != nil || l.last != c.want || l.grid != c.grid {
			t.Errorf("%d tokens, %+v: %s in %d blocks, %v; want %s in %d", c.tokens, c.tuning, l.last, l.grid, err, c.want, c.grid)
		}
	}
	_, q := recording(allTiles()...)
	for what, o := range map[string]GatedMatMul{
		"rows is 24":   {MatMul: MatMul{Out: 16, X: 16, W: 16, Tokens: 1, Rows: 24, In: 8}, Gated: 16},
		"are bf16":     {MatMul: MatMul{Out: 16, X: 16, W: 16, Tokens: 1, Rows: 32, In: 8, Wide: true}, Gated: 16},
		"activation 7": {MatMul: MatMul{Out: 16, X: 16, W: 16, Tokens: 1, Rows: 32, In: 8}, Gated: 16, Act: 7},
		"0x8 is not":   {MatMul: MatMul{Out: 16, X: 16, W: 16, Tokens: 1, Rows: 32, In: 8}, Gated: 8},
	} {
		if err := q.GatedGEMM(o); !errors.Is(err, driver.ErrInvalid) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want %q", err, what)
		}
	}
}

// Tensor maps are made once for each matrix, and before the first step where that is asked
// for; nothing is launched then.
func TestTensorMapsAreKept(t *testing.T) {
	l, q := recording(allTiles()...)
	o := MatMul{Out: 16, X: 16, W: 32, Tokens: 100, Rows: 64, In: 64, Capacity: 2048}
	if err := q.Prepare(func() error { return q.GEMM(o) }); err != nil || l.maps != 2 || l.last != "" {
		t.Errorf("%d tensor maps, %q is launched, %v", l.maps, l.last, err)
	}
	for o.Tokens = 80; o.Tokens < 2048; o.Tokens += 300 {
		if err := q.GEMM(o); err != nil || l.maps != 2 || l.last == "" {
			t.Errorf("%d tokens: %d tensor maps, %q is launched, %v", o.Tokens, l.maps, l.last, err)
		}
	}
	for i := range uint64(maxTensorMaps) {
		o.W = 16 * (i + 3)
		if err := q.GEMM(o); err != nil || len(q.maps) > maxTensorMaps {
			t.Fatalf("%d tensor maps are kept, %v", len(q.maps), err)
		}
	}
}

// What was measured goes before what is computed, for the fewest tokens that are not less.
func TestMeasuredTiles(t *testing.T) {
	table, err := ParseTiles([]byte("# rows in tokens kernel\n8 16 100 gemm_sm90a_128x64\n8 16 1000 gemm_sm90a_128x256\n\n8 16 500 gemm_sm90a_64x256\n9 16 100 gemm_sm90a_128x128\n"))
	if err != nil || len(table) != 4 {
		t.Fatal(table, err)
	}
	for tokens, want := range map[int]string{65: "128x64", 100: "128x64", 101: "64x256", 500: "64x256", 501: "128x256", 5000: "128x256"} {
		if got := findTile(table, tokens, 8, 16); got != "gemm_sm90a_"+want {
			t.Errorf("%d tokens: %s, want %s", tokens, got, want)
		}
	}
	if got := findTile(table, 100, 8, 17); got != "" {
		t.Errorf("a product that was not measured: %s", got)
	}
	if again, err := ParseTiles(FormatTiles(table)); err != nil || len(again) != 4 || again[3] != table[3] {
		t.Errorf("written and read: %v, %v", again, err)
	}
	for _, bad := range []string{"8 16 100", "8 16 100 gemm", "8 16 0 gemm_sm90a_128x64", "8 16 100 gemm_sm90a_128x64 more"} {
		if _, err := ParseTiles([]byte(bad)); err == nil || !strings.Contains(err.Error(), bad) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := ParseTiles(tilesText); err != nil {
		t.Errorf("the table of this program: %v", err)
	}
}

func FuzzTiles(f *testing.F) {
	f.Add("8 16 100 gemm_sm90a_128x64\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := ParseTiles([]byte(text))
		if err != nil {
			return
		}
		again, err := ParseTiles(FormatTiles(table))
		if err != nil || len(again) != len(table) {
			t.Errorf("%q is read as %v, and that as %v, %v", text, table, again, err)
		}
	})
}
