// Package draw paints text on a grid of cells and turns the grid into the bytes for a
// terminal.
//
// A [Canvas] is the grid, an [Area] the part of it that one component may touch: what lies
// outside is cut. Components name meanings ([Good], [Dim]) and signs ([Glyphs]); a [Theme]
// gives the meanings their colors, for the ground and the colors that a terminal has.
//
// The package knows nothing of clusters. A canvas belongs to one goroutine.
package draw

import (
	"strings"
)

// cell is one place on the screen. The second half of a wide character has
// tail set and no text; a cell without text is blank.
type cell struct {
	text string
	st   Style
	mk   Mark
	tail bool
}

// Canvas is the screen before it becomes text. Everything is drawn cell by cell
// and cut at the edges, so that no line can wrap whatever the names are.
type Canvas struct {
	w, h  int
	ascii bool // replace what is not ASCII
	cells []cell
}

// NewCanvas returns a blank canvas.
func NewCanvas(w, h int, ascii bool) *Canvas {
	w, h = max(w, 0), max(h, 0)
	return &Canvas{w: w, h: h, ascii: ascii, cells: make([]cell, w*h)}
}

// Area is the whole canvas; more marks text that is cut.
func (c *Canvas) Area(more string) Area {
	return Area{c: c, r: Rect{0, 0, c.w, c.h}, more: more}
}

// set writes one character of the given width and repairs what it cuts in two.
func (c *Canvas) set(x, y int, text string, width int, st Style, mk Mark) {
	row := c.cells[y*c.w : (y+1)*c.w]
	if row[x].tail {
		row[x-1] = cell{st: row[x-1].st, mk: row[x-1].mk}
	}
	if end := x + width; end < c.w && row[end].tail {
		row[end] = cell{st: row[end].st, mk: row[end].mk}
	}
	row[x] = cell{text: text, st: st, mk: mk}
	for i := 1; i < width; i++ {
		row[x+i] = cell{st: st, mk: mk, tail: true}
	}
}

// Text turns the canvas into lines, without blanks at their ends.
func (c *Canvas) Text(t *Theme) string {
	var b strings.Builder
	b.Grow(c.w*c.h*2 + c.h)
	for y := range c.h {
		if y > 0 {
			b.WriteByte('\n')
		}
		row := c.cells[y*c.w : (y+1)*c.w]
		end := len(row)
		for end > 0 && blank(row[end-1]) {
			end--
		}
		var open sgr
		for i := range end {
			k := &row[i]
			if k.tail {
				continue
			}
			if look := t.looks[k.st][k.mk]; look != open {
				b.WriteString(open.off)
				b.WriteString(look.on)
				open = look
			}
			if k.text == "" {
				b.WriteByte(' ')
			} else {
				b.WriteString(k.text)
			}
		}
		b.WriteString(open.off)
	}
	return b.String()
}

// blank cells at the end of a line need not be written, unless they carry a ground.
func blank(k cell) bool {
	return !k.tail && (k.text == "" || k.text == " ") && k.mk&MarkSelected == 0 && k.st != Chosen
}
