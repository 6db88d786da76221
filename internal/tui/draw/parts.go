package draw

// Part is a piece of a line that may leave it whole where there is no room.
type Part struct {
	Spans []Span
	Leave int // the lowest leaves first; 0 never does
}

// Width is how many cells the part takes.
func (p Part) Width() int { return Width(p.Spans) }

// FitParts returns the parts that stay in width cells, with margin around them and gap after
// each.
func FitParts(parts []Part, width, margin, gap int) []Part {
	stay := append([]Part(nil), parts...)
	need := func() int {
		n := margin
		for _, p := range stay {
			n += p.Width() + gap
		}
		return n
	}
	for need() > width {
		out := -1
		for i, p := range stay {
			if p.Leave > 0 && (out < 0 || p.Leave < stay[out].Leave) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		stay = append(stay[:out], stay[out+1:]...)
	}
	return stay
}
