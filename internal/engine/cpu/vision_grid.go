package cpu

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/engine"
)

// Towers that take the patches of an image of any size. Their rows are in the order in which
// layers with windows attend: window by window, in each square by square of those that the
// projector merges, and in a square row by row.

// maxGridPatches bounds the patches of an image: as many as the largest one has that published
// checkpoints let through, which take some gigabytes.
const maxGridPatches = 1 << 16

// patchGrid describes the patches of an image.
type patchGrid struct {
	rows, columns int           // of patches
	windows       []engine.Span // of rows of the tower, each at most the tower's window
	units         []int32       // [row of the result] its square among those of the tower
}

// checkGrid refuses images that the tower cannot read.
func (t *tower) checkGrid(v *engine.View) error {
	block := t.PatchSize * t.Projector.Factor
	n := v.W / t.PatchSize * (v.H / t.PatchSize)
	switch {
	case v.W < block || v.H < block || v.W%block != 0 || v.H%block != 0:
		return fmt.Errorf("%w: %d × %d pixels, want multiples of %d", engine.ErrView, v.W, v.H, block)
	case max(v.W, v.H)/t.PatchSize > maxGridPatches || n > maxGridPatches:
		return fmt.Errorf("%w: %d × %d pixels have more than %d patches", engine.ErrView, v.W, v.H, maxGridPatches)
	case v.Pixels != nil || v.Mask != nil || len(v.Patches) != n*t.PatchValues():
		return fmt.Errorf("%w: %d values of patches, want %d × %d", engine.ErrView, len(v.Patches), n, t.PatchValues())
	}
	return nil
}

// resultRows returns the number of rows that a checked view makes.
func (t *tower) resultRows(v *engine.View) int {
	if t.Grid {
		block := t.PatchSize * t.Projector.Factor
		return v.W / block * (v.H / block)
	}
	return t.Rows(v.W / t.PatchSize)
}

// layGrid orders the patches of an image.
func (e *Encoder) layGrid() {
	t, g, factor := e.tower, &e.grid, e.tower.Projector.Factor
	g.rows, g.columns = e.view.H/t.PatchSize, e.view.W/t.PatchSize
	down, across := g.rows/factor, g.columns/factor // squares
	window := max(down, across)
	if t.Windowed != nil {
		window = t.Window / factor
	}
	e.places, e.slots, g.windows = e.places[:0], e.slots[:0], g.windows[:0]
	g.units = grow(g.units, down*across)
	for y0 := 0; y0 < down; y0 += window {
		for x0 := 0; x0 < across; x0 += window {
			start := len(e.places)
			for y := y0; y < min(y0+window, down); y++ {
				for x := x0; x < min(x0+window, across); x++ {
					g.units[y*across+x] = int32(len(e.places) / (factor * factor))
					for i := range factor * factor {
						e.places = append(e.places, int32((y*factor+i/factor)*g.columns+x*factor+i%factor))
						e.slots = append(e.slots, int32(len(e.slots)))
					}
				}
			}
			g.windows = append(g.windows, engine.Span{Start: start, End: len(e.places)})
		}
	}
	e.seen = len(e.places)
}

// patch returns the values of the patch of a row.
func (e *Encoder) patch(row int) []float32 {
	factor, n, place := e.tower.Projector.Factor, e.tower.PatchValues(), int(e.places[row])
	y, x := place/e.grid.columns, place%e.grid.columns
	square := y/factor*(e.grid.columns/factor) + x/factor
	at := square*factor*factor + y%factor*factor + x%factor
	return e.view.Patches[at*n:][:n]
}

// turnItem computes the angles of rows: the first half of the pairs turns by the patch's row,
// the other one by its column.
func (e *Encoder) turnItem(l *lane, item int) {
	freqs := e.tower.freqs
	from, to := e.itemRows(item)
	for r := e.from + from; r < e.from+to; r++ {
		y, x := int(e.places[r])/e.grid.columns, int(e.places[r])%e.grid.columns
		angles(e.cos[r][:len(freqs)], e.sin[r][:len(freqs)], freqs, y, 1)
		angles(e.cos[r][len(freqs):], e.sin[r][len(freqs):], freqs, x, 1)
	}
}

// rotateRow rotates and scales the heads of a row.
func (e *Encoder) rotateRow(heads []float32, row int, scale float32) {
	dim := e.cache.shape.HeadDim
	for at := 0; at < len(heads); at += dim {
		rotate(e.device.level, heads[at:at+dim], e.cos[row], e.sin[row], scale)
	}
}

// addTiles cuts those of the rows that are in the part into tiles, which attend to keys.
func (e *Encoder) addTiles(rows, keys engine.Span) {
	n := tileTokens(e.device.level, e.attn.pairs, 1, keys.End-keys.Start-1)
	end := min(rows.End, e.to)
	for r := max(rows.Start, e.from); r < end; r += n {
		e.tiles = append(e.tiles, tile{blocks: oneBlock, first: r - e.from, count: min(n, end-r), start: keys.Start, mutual: keys})
	}
}
