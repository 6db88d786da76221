package cpu

import "github.com/dynctl/dynctl/internal/engine/cpu/kernel"

// grid cuts a product of rows × tokens into items of about equal work. How it is
// cut decides who computes what and when, never the result.
type grid struct {
	rows, tokens       int
	rowStep, tokenStep int
}

const (
	// itemWork is the aim for one item in multiplications: some 60 µs, short
	// enough for a prefill step to make room quickly.
	itemWork = 256 << 10
	// minWork is where sharing stops to pay.
	minWork = 16 << 10
	// gridTokens bounds the tokens of an item: each weight row is widened once
	// for all of them.
	gridTokens = 64

	// The same for packed weights. There the tokens' activations should stay in
	// the processor's own cache while one panel after the other comes by, and the
	// time of few tokens is that of reading the weights. See itemSize, too.
	packedWeights = 512 << 10
	fewestTokens  = 24
)

// itemSize are the bounds of an item of packed products, which depend on how fast
// these are.
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
	// itemBlocks is that of quantized weights: more of it takes the same time.
	itemBlocks = itemSize{work: 12 << 20, tokens: 120, values: 384 << 10, call: 12}
	// itemInt8 is that of quantized weights on tiles, where unpacked weights should serve
	// many tokens.
	itemInt8 = itemSize{work: 24 << 20, tokens: 256, values: 512 << 10, call: 16}
)

// itemSize is that of products with the matrix.
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

// grid cuts the product of so many tokens with the matrix.
func (m *matrix) grid(tokens, workers int) grid {
	if m.packed.data != nil {
		return newPackedGrid(m.itemSize(), m.rows, m.cols, tokens, workers)
	}
	return newGrid(m.rows, m.cols, tokens, workers)
}

func newGrid(rows, cols, tokens, workers int) grid {
	g := grid{rows: rows, tokens: tokens, tokenStep: min(tokens, gridTokens)}
	perRow := cols * g.tokenStep
	// Several items for each worker, so that none waits long for the last one.
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

// columns is the number of token ranges.
func (g grid) columns() int { return (g.tokens + g.tokenStep - 1) / g.tokenStep }

func (g grid) items() int { return (g.rows + g.rowStep - 1) / g.rowStep * g.columns() }

// cell is the part of an item. Neighbors share their tokens.
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
