package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// grid cuts a product of rows × tokens into items of about equal work. The cut decides
// which worker computes which item, and never affects the result.
type grid struct {
	rows, tokens       int
	rowStep, tokenStep int
}

const (
	// itemWork is the target size of an item in multiplications: some 60 µs, short enough
	// for a prefill step to yield quickly.
	itemWork = 256 << 10
	// minWork is the least work of an item for which sharing pays off.
	minWork = 16 << 10
	// gridTokens bounds the tokens of an item: each weight row is widened once
	// for all of them.
	gridTokens = 64

	// The same for packed weights. The tokens' activations should stay in the processor's
	// own cache while the panels pass through it one by one. With few tokens, reading the
	// weights takes most of the time. See itemSize, too.
	packedWeights = 512 << 10
	fewestTokens  = 24
)

// itemSize bounds an item of packed products. The bounds depend on the speed of the
// products.
type itemSize struct {
	work   int // multiplications: some 60 µs
	tokens int
	values int // of activations, which should stay in the processor's own cache
	call   int // tokens of one call of the kernels
}

// Items of products with activations in float32 or bf16, the latter on tiles, too.
var (
	itemF32   = itemSize{work: 4 << 20, tokens: 120, values: 128 << 10, call: 12}
	itemBF16  = itemSize{work: 8 << 20, tokens: 240, values: 256 << 10, call: 12}
	itemTiles = itemSize{work: 32 << 20, tokens: 512, values: 512 << 10, call: 32}
	// itemBlocks is for quantized weights: more work than with bf16 takes the same time.
	itemBlocks = itemSize{work: 12 << 20, tokens: 120, values: 384 << 10, call: 12}
	// itemInt8 is for quantized weights on tiles, where unpacked weights should serve
	// many tokens.
	itemInt8 = itemSize{work: 24 << 20, tokens: 256, values: 512 << 10, call: 16}
)

// itemSize returns the size of items of products with the matrix.
func (m *matrix) itemSize() itemSize {
	switch {
	case m.packed.int8Tiles:
		return itemInt8
	case m.packed.kind.Quantized():
		return itemBlocks
	case !m.packed.rounded:
		return itemF32
	case m.packed.level == kernel.AMX:
		return itemTiles
	}
	return itemBF16
}

// grid cuts the product of the matrix with the given number of tokens.
func (m *matrix) grid(tokens, workers int) grid {
	if m.packed.data != nil {
		return newPackedGrid(m.itemSize(), m.rows, m.cols, tokens, workers)
	}
	return newGrid(m.rows, m.cols, tokens, workers)
}

func newGrid(rows, cols, tokens, workers int) grid {
	g := grid{rows: rows, tokens: tokens, tokenStep: min(tokens, gridTokens)}
	perRow := cols * g.tokenStep
	// Several items per worker, so that no worker waits long for the last one.
	share := rows * g.columns() / (4 * workers)
	step := max(minWork/perRow, min(itemWork/perRow, share), 1)
	g.rowStep = (step + 3) &^ 3 // rows are multiplied in fours
	return g
}

func newPackedGrid(size itemSize, rows, cols, tokens, workers int) grid {
	most := max(fewestTokens, min(size.tokens, size.values/cols))
	ranges := (tokens + most - 1) / most
	g := grid{rows: rows, tokens: tokens, tokenStep: (tokens + ranges - 1) / ranges}
	if ranges > 1 { // whole calls of the kernels, but for the last ones
		g.tokenStep = (g.tokenStep + size.call - 1) / size.call * size.call
	}
	share := rows * g.columns() / (4 * workers)
	step := min(size.work/(cols*g.tokenStep), packedWeights/cols, share)
	g.rowStep = max((step+kernel.Width-1)/kernel.Width, 1) * kernel.Width
	return g
}

// columns returns the number of token ranges.
func (g grid) columns() int { return (g.tokens + g.tokenStep - 1) / g.tokenStep }

func (g grid) items() int { return (g.rows + g.rowStep - 1) / g.rowStep * g.columns() }

// cell returns the part of an item. Neighbors share their tokens.
func (g grid) cell(item int) (row0, row1, token0, token1 int) {
	rows := (g.rows + g.rowStep - 1) / g.rowStep
	r, t := item%rows, item/rows
	return r * g.rowStep, min((r+1)*g.rowStep, g.rows), t * g.tokenStep, min((t+1)*g.tokenStep, g.tokens)
}

// plan lays out the products of one phase and returns the number of items.
func (s *step) plan(tokens int, products ...*matrix) int {
	items := 0
	for i, m := range products {
		s.grids[i] = m.grid(tokens, s.b.device.cores)
		items += s.grids[i].items()
	}
	return items
}
