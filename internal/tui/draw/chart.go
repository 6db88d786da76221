package draw

import (
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Bar draws a share (0 to 1) in width cells. A share above nothing shows at
// least one cell; the number beside the bar tells nearly full from full.
func Bar(g *Glyphs, share float64, width int, st Style) []Span {
	if width <= 0 {
		return nil
	}
	if !cells.Finite(share) {
		share = 0
	}
	share = math.Min(math.Max(share, 0), 1)
	n := int(math.Round(share * float64(width)))
	if n == 0 && share > 0 {
		n = 1
	}
	return []Span{
		{strings.Repeat(g.Full, n), st},
		{strings.Repeat(g.empty, width-n), Dim},
	}
}

// Peak is the largest known sample.
func Peak(samples []*float64) (top float64, ok bool) {
	for _, p := range samples {
		if p != nil && cells.Finite(*p) {
			top, ok = math.Max(top, *p), true
		}
	}
	return top, ok
}

// Sparkline draws samples in height rows of width cells, newest right, against
// the given top. A missing sample is a gap; zero is the lowest mark.
func Sparkline(samples []*float64, width, height int, top float64, levels []string) []string {
	if width <= 0 || height <= 0 {
		return nil
	}
	if len(samples) > width {
		samples = samples[len(samples)-width:]
	}
	rows := make([]strings.Builder, height)
	for i := range rows {
		rows[i].WriteString(strings.Repeat(" ", width-len(samples)))
	}
	n := len(levels)
	for _, p := range samples {
		step := 0 // of height*n; 0 is a gap
		if p != nil && cells.Finite(*p) {
			step = 1
			if top > 0 && *p > 0 {
				step = cells.Clamp(int(math.Ceil(*p/top*float64(n*height))), 1, n*height)
			}
		}
		for row := range rows {
			below := (height - 1 - row) * n
			switch k := step - below; {
			case k <= 0:
				rows[row].WriteByte(' ')
			default:
				rows[row].WriteString(levels[min(k, n)-1])
			}
		}
	}
	out := make([]string, height)
	for i := range rows {
		out[i] = rows[i].String()
	}
	return out
}
