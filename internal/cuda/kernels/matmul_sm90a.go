package kernels

import (
	"math"

	"github.com/dynctl/dynctl/internal/cuda/driver"
)

// Tile is a kernel of compute capability 9.0 for products of bf16: a block computes Rows
// outputs of Tokens tokens at a time.
type Tile struct {
	Kernel       string
	Tokens, Rows int
	stages       int
}

// Of a tile.
const (
	tileThreads = 384 // a warp group that copies and two that multiply
	tileIn      = 64  // values of a row in a stage
	boxRows     = 64  // of what is copied at a time
)

// Tiles are all there are, those with the most arithmetic for what they read first.
var Tiles = []Tile{
	{"gemm_sm90a_128x256", 128, 256, 4},
	{"gemm_sm90a_128x128", 128, 128, 6},
	{"gemm_sm90a_64x256", 64, 256, 5},
	{"gemm_sm90a_128x64", 128, 64, 8},
}

// shared is the dynamic shared memory: stages, their barriers, and what aligns them.
func (t *Tile) shared() int { return 1024 + t.stages*((t.Tokens+t.Rows)*tileIn*2+16) }

func (t *Tile) count(tokens, rows int) int { return blocks(tokens, t.Tokens) * blocks(rows, t.Rows) }

// cost estimates for how many clocks the busiest multiprocessor works. A multiprocessor of
// compute capability 9.0 does 2048 multiplications of bf16 in a clock, and reads 64 bytes;
// results are written while nothing is multiplied.
func (t *Tile) cost(tokens, rows, in, multiprocessors int) int {
	step := max(t.Tokens*t.Rows*tileIn/2048, (t.Tokens+t.Rows)*tileIn*2/64)
	const start = 1500
	return blocks(t.count(tokens, rows), multiprocessors) * (start + blocks(in, tileIn)*step + t.Tokens*t.Rows/16)
}

// group returns the number of token tiles that go with all rows before the next ones: with so many, the
// tiles that are computed at the same time form a square and share the most of what they read.
func (t *Tile) group(multiprocessors int) int {
	side := math.Sqrt(float64(multiprocessors) * float64(t.Tokens) * float64(t.Rows))
	return max(1, int(math.Round(side/float64(t.Tokens))))
}

// defaultMultiprocessors is the number of multiprocessors of an H100 or H200 with SXM.
const defaultMultiprocessors = 132

// Tuning says how a queue chooses among kernels that compute the same.
type Tuning struct {
	// Multiprocessors of the device; 0 stands for 132.
	Multiprocessors int
	// Portable leaves out the kernels for compute capability 9.0 alone. Products of a token
	// then have the same bits whatever the number of tokens.
	Portable bool
	// Overlap has kernels launched while the one before them still runs; they must be those
	// of [Overlapping].
	Overlap bool
	// Tile is the kernel of Tiles that computes what it can, whatever would be chosen.
	Tile string
}

// Tune changes how the queue chooses, and returns it.
func (q *Queue) Tune(t Tuning) *Queue {
	if t.Multiprocessors <= 0 {
		t.Multiprocessors = defaultMultiprocessors
	}
	q.tuning = t
	return q
}

// tile returns the tile kernel that computes a product, nil for none of Tiles.
func (q *Queue) tile(o *MatMul) (best *Tile) {
	if q.tuning.Portable || o.Type != BF16 || o.Rows%8 != 0 || o.Bias%4 != 0 || o.Tokens <= fewTokens && q.tuning.Tile == "" {
		return nil
	}
	wanted := q.tuning.Tile
	if wanted == "" {
		wanted = measuredTile(o.Tokens, o.Rows, o.In)
	}
	least := 0
	for i := range Tiles {
		t := &Tiles[i]
		if q.functions[t.Kernel] == 0 {
			continue
		}
		if t.Kernel == wanted {
			return t
		}
		if c := t.cost(o.Tokens, o.Rows, o.In, q.tuning.Multiprocessors); best == nil || c < least {
			best, least = t, c
		}
	}
	return best
}

// gemmTiles computes a product by tiles.
func (q *Queue) gemmTiles(t *Tile, o *MatMul) error {
	x, w, err := q.operands(o)
	if err != nil {
		return err
	}
	var wide int32
	if o.Wide {
		wide = 1
	}
	n := q.tuning.Multiprocessors
	q.args().TensorMap(x).TensorMap(w).Pointer(o.Out).Pointer(o.Bias).Int32(int32(o.Tokens)).Int32(int32(o.Rows)).Int32(int32(o.In)).Int32(wide).Int32(int32(t.group(n)))
	return q.run(t.Kernel, min(t.count(o.Tokens, o.Rows), n), 1, 1, tileThreads, DynamicShared(t.Kernel))
}

// operands describes the activations and the weights of a product.
func (q *Queue) operands(o *MatMul) (x, w *driver.EncodedTensorMap, err error) {
	if x, err = q.tensorMap(o.X, max(o.Tokens, o.Capacity), o.In); err != nil {
		return nil, nil, err
	}
	w, err = q.tensorMap(o.W, o.Rows, o.In)
	return x, w, err
}

// matrix is described by a tensor map: rows of columns values of bf16.
type matrix struct {
	address       uint64
	rows, columns int
}

// maxTensorMaps bounds how many a queue keeps: more than any model has matrices.
const maxTensorMaps = 1 << 13

// tensorMap describes a matrix, once.
func (q *Queue) tensorMap(address uint64, rows, columns int) (*driver.EncodedTensorMap, error) {
	m := matrix{address, rows, columns}
	if known := q.maps[m]; known != nil {
		return known, nil
	}
	encoded, err := q.launcher.TensorMapEncode(q.device, &driver.TensorMap{
		Address: address, Rows: uint64(rows), Columns: uint64(columns), Stride: uint64(2 * columns), BoxRows: boxRows, BoxColumns: tileIn,
	})
	if err != nil {
		return nil, err
	}
	if q.maps == nil || len(q.maps) == maxTensorMaps {
		q.maps = map[matrix]*driver.EncodedTensorMap{}
	}
	q.maps[m] = &encoded
	return &encoded, nil
}
