package draw

import "github.com/dynctl/dynctl/internal/tui/cells"

// Part is a piece of a line that may leave it whole where there is no room.
type Part struct {
	Spans []Span
	Leave int // the lowest leaves first; 0 never does
}

// Width returns the number of cells that the part takes.
func (p Part) Width() int { return Width(p.Spans) }

// FitParts returns the parts that stay in width cells, with margin around them and gap after
// each.
func FitParts(parts []Part, width, margin, gap int) []Part {
	need := func(stay []Part) int {
		n := margin
		for _, p := range stay {
			n += p.Width() + gap
		}
		return n
	}
	return cells.Fit(parts, width, need, func(p Part) int { return p.Leave })
}
