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
	// time of few tokens is that of reading the weights.
	packedWork    = 4 << 20
	packedWeights = 512 << 10
	packedTokens  = 120
	fewestTokens  = 24
	callTokens    = 12 // of one call, see kernel.Level.Rows
	// blockWork is packedWork for quantized weights: more of it takes the same time.
	blockWork = 12 << 20
)

// grid cuts the product of so many tokens with the matrix.
func (m *matrix) grid(tokens, workers int) grid {
	switch {
	case m.packed.data != nil && m.packed.kind.Quantized():
		return newPackedGrid(m.rows, m.cols, tokens, workers, blockWork)
	case m.packed.data != nil:
		return newPackedGrid(m.rows, m.cols, tokens, workers, packedWork)
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

// newPackedGrid makes items of up to work multiplications.
func newPackedGrid(rows, cols, tokens, workers, work int) grid {
	most := max(fewestTokens, min(packedTokens, work/(cols*kernel.Width)))
	ranges := (tokens + most - 1) / most
	g := grid{rows: rows, tokens: tokens, tokenStep: (tokens + ranges - 1) / ranges}
	if ranges > 1 { // whole calls of the kernels, but for the last ones
		g.tokenStep = (g.tokenStep + callTokens - 1) / callTokens * callTokens
	}
	share := rows * g.columns() / (4 * workers)
	step := min(work/(cols*g.tokenStep), packedWeights/cols, share)
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
