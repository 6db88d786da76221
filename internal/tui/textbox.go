package tui

import (
	"fmt"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// textBox is a text over the panes that can be scrolled.
type textBox struct {
	title  string
	lines  func() [][]draw.Span
	glyphs *draw.Glyphs
	rows   int // visible at most
	scroll int
}

const textKeys = "j k scroll   esc close"

func (t *textBox) press(k tea.KeyMsg) reply {
	switch k.String() {
	case "esc", "q", "enter", "?", "y":
		return reply{close: true}
	case "j", "down":
		t.scroll++
	case "k", "up":
		t.scroll--
	case "ctrl+d", "pgdown", " ":
		t.scroll += max(t.rows/2, 1)
	case "ctrl+u", "pgup":
		t.scroll -= max(t.rows/2, 1)
	case "g", "home":
		t.scroll = 0
	case "G", "end":
		t.scroll = bigMove
	case "ctrl+z", "ctrl+l":
		return reply{pass: true}
	}
	return reply{}
}

func (t *textBox) wheel(n int) { t.scroll += n }

func (t *textBox) size(_, height int) {
	t.rows = max(height-3, 1)
	t.scroll = cells.Clamp(t.scroll, 0, max(len(t.lines())-t.rows, 0))
}

func (t *textBox) line() (text, keys string) { return "", "" }

func (t *textBox) draw(a draw.Area) {
	lines := t.lines()
	w := 46
	for _, l := range lines {
		w = max(w, draw.Width(l)+4)
	}
	h := min(len(lines)+3, a.H())
	box := a.Popup(min(w, a.W()), h)
	note := ""
	rows := h - 3
	if len(lines) > rows {
		note = fmt.Sprintf(" %d-%d of %d ", t.scroll+1, min(t.scroll+rows, len(lines)), len(lines))
	}
	box.Box(t.glyphs, " "+t.title+" ", note, draw.Focused)
	in := box.Sub(box.Inner())
	for y := range rows {
		if i := t.scroll + y; i < len(lines) {
			in.Spans(0, y, in.W(), lines[i])
		}
	}
	in.Put(0, in.H()-1, textKeys, draw.KeyName)
}
