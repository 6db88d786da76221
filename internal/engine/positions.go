package engine

import (
	"sort"

	"github.com/dynctl/dynctl/internal/blockhash"
)

// Grid is how the rows of an image lie: the frames, and the rows and columns of each. The
// zero value stands for none.
type Grid struct{ T, H, W int }

// Holds reports whether a grid has so many places.
func (g Grid) Holds(rows int) bool {
	return min(g.T, g.H, g.W) > 0 && max(g.T, g.H, g.W) <= rows && g.T*g.H <= rows && g.T*g.H*g.W == rows
}

// Positions gives the three positions (time, height and width) by which the tokens of a
// sequence rotate whose images stand in grids, as Qwen2-VL counts them. Those of text are
// equal and go up by one. Rows of an image begin where text would go on and count along the
// three sides of their grid. Text after the image goes on one above its largest position. So
// they follow from what precedes a token, and are at most its place in the sequence.
//
// nil stands for a sequence whose tokens rotate by their places.
type Positions struct{ images []imageSpan }

// imageSpan is an image at the places [start, end) of a sequence; first is the position of
// its first row.
type imageSpan struct {
	start, end, first int
	grid              Grid
}

// NewPositions returns the positions of a sequence with images, each in its grid; nil if
// there are no grids.
func NewPositions(parts []blockhash.Media, grids []Grid) *Positions {
	if len(grids) == 0 {
		return nil
	}
	p := new(Positions)
	for i, part := range parts {
		p.images = append(p.images, imageSpan{part.Start, part.End, p.At(part.Start)[0], grids[i]})
	}
	return p
}

// At returns the positions of the token at a place of the sequence.
func (p *Positions) At(i int) [3]int {
	if p == nil {
		return [3]int{i, i, i}
	}
	n := sort.Search(len(p.images), func(k int) bool { return p.images[k].start > i }) - 1
	if n < 0 {
		return [3]int{i, i, i}
	}
	m := &p.images[n]
	if i < m.end {
		row := i - m.start
		return [3]int{m.first + row/m.grid.W/m.grid.H, m.first + row/m.grid.W%m.grid.H, m.first + row%m.grid.W}
	}
	i += m.first + max(m.grid.T, m.grid.H, m.grid.W) - m.end
	return [3]int{i, i, i}
}
