package detail

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// Page is an open screen with how far it was scrolled.
type Page struct {
	Screen
	m      *moment.Moment
	room   int // rows
	scroll int
}

// NewPage opens a screen at its top.
func NewPage(m *moment.Moment, s Screen) *Page { return &Page{Screen: s, m: m} }

// MoveBy scrolls down, or up by a negative number; [Page.Size] keeps it inside the screen.
func (p *Page) MoveBy(n int) { p.scroll = max(p.scroll+n, 0) }

// HalfPage returns half the height of a page, in rows.
func (p *Page) HalfPage() int { return max(p.room/2, 1) }

// Size gives the page its room.
func (p *Page) Size(width, height int) {
	p.room = height
	p.scroll = cells.Clamp(p.scroll, 0, max(p.height(p.Sections(width))-height, 0))
}

// height returns the number of rows that the sections would fill.
func (p *Page) height(cols [][]Section) int {
	top := 0
	for _, c := range cols {
		n := 0
		for _, s := range c {
			n += len(s.Lines) + 2
		}
		top = max(top, n)
	}
	return top
}

// Draw paints all sections on a canvas of their own and shows the part that was
// scrolled to.
func (p *Page) Draw(a draw.Area) {
	cols := p.Sections(a.W())
	g := p.m.Glyphs
	tall := draw.NewCanvas(a.W(), max(p.height(cols), a.H()), p.m.ASCII)
	x, rest := 0, a.W()
	for i, col := range cols {
		w := rest / (len(cols) - i)
		if i == 0 && len(cols) == 2 {
			w = rest * 58 / 100 // lists stand on the left, and are wider than facts
		}
		y := 0
		for _, s := range col {
			h := len(s.Lines) + 2
			box := tall.Area(g.More).Sub(draw.Rect{X: x, Y: y, W: w, H: h})
			box.Box(g, " "+s.Title+" ", "", draw.Border)
			in := box.Sub(box.Inner())
			for n, line := range s.Lines {
				in.Spans(0, n, in.W(), line)
			}
			y += h
		}
		x, rest = x+w, rest-w
	}
	a.Blit(tall, p.scroll)
}
