package draw

import (
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Rect is a part of the screen.
type Rect struct{ X, Y, W, H int }

// Inner is the room inside a box: without its border, and the blanks beside its sides.
func (r Rect) Inner() Rect {
	return Rect{r.X + 2, r.Y + 1, max(r.W-4, 0), max(r.H-2, 0)}
}

// Contains reports whether a cell lies in r.
func (r Rect) Contains(x, y int) bool {
	return x >= r.X && x < r.X+r.W && y >= r.Y && y < r.Y+r.H
}

// Area is the part of a canvas that one drawing function may touch; coordinates
// are relative to it and what lies outside is cut.
type Area struct {
	c    *Canvas
	r    Rect
	mk   Mark
	more string
}

// Sub is the part of the area that r covers.
func (a Area) Sub(r Rect) Area {
	r.X, r.Y = a.r.X+r.X, a.r.Y+r.Y
	r.W = max(min(r.W, a.r.X+a.r.W-r.X), 0)
	r.H = max(min(r.H, a.r.Y+a.r.H-r.Y), 0)
	a.r = r
	return a
}

// Outset is the area with the column on its left and the one on its right.
func (a Area) Outset() Area { a.r.X, a.r.W = a.r.X-1, a.r.W+2; return a }

// W is the width in cells.
func (a Area) W() int { return a.r.W }

// H is the height in cells.
func (a Area) H() int { return a.r.H }

// Marked is the area with a mark on all that is drawn from now on.
func (a Area) Marked(m Mark) Area { a.mk |= m; return a }

// Put writes s at (x, y) and returns the x after it. What does not fit is left out.
func (a Area) Put(x, y int, s string, st Style) int {
	if y < 0 || y >= a.r.H || a.r.Y+y >= a.c.h || a.r.Y+y < 0 {
		return x
	}
	limit := min(a.r.W, a.c.w-a.r.X)
	for s != "" {
		cluster, w, rest := cells.Next(s)
		s = rest
		if w == 0 {
			continue
		}
		if x+w > limit {
			break
		}
		if a.c.ascii && (len(cluster) > 1 || cluster[0] >= 0x7f) {
			for i := range w {
				if x+i >= 0 {
					a.c.set(a.r.X+x+i, a.r.Y+y, "?", 1, st, a.mk)
				}
			}
		} else if x >= 0 {
			a.c.set(a.r.X+x, a.r.Y+y, cluster, w, st, a.mk)
		}
		x += w
	}
	return x
}

// Span is text in one style.
type Span struct {
	Text  string
	Style Style
}

// Text is a span of s in this style.
func (st Style) Text(s string) Span { return Span{Text: s, Style: st} }

// Width returns the number of cells that spans take.
func Width(ss []Span) int {
	n := 0
	for _, s := range ss {
		n += cells.Width(s.Text)
	}
	return n
}

// Spans writes ss into w cells from x, cut on the right with a mark.
func (a Area) Spans(x, y, w int, ss []Span) int {
	end := x + w
	for i, s := range ss {
		left := end - x
		if left <= 0 {
			break
		}
		n := cells.Width(s.Text)
		if n > left || (n == left && i+1 < len(ss) && Width(ss[i+1:]) > 0) {
			return a.Put(x, y, cells.Clip(s.Text+" "+a.more, left, a.more), s.Style)
		}
		x = a.Put(x, y, s.Text, s.Style)
	}
	return x
}

// Fill paints blanks, so that marks and grounds cover whole rows.
func (a Area) Fill(y int, st Style) {
	for x := range a.r.W {
		a.Put(x, y, " ", st)
	}
}

func (a Area) clear() {
	for y := range a.r.H {
		a.Fill(y, Plain)
	}
}

// Box draws a border with a title on the left and a note on the right.
func (a Area) Box(g *Glyphs, title, note string, st Style) {
	w, h := a.r.W, a.r.H
	if w < 2 || h < 2 {
		return
	}
	line := strings.Repeat(g.Horizontal, w-2)
	a.Put(0, 0, g.topLeft+line+g.topRight, st)
	a.Put(0, h-1, g.bottomLeft+line+g.bottomRight, st)
	for y := 1; y < h-1; y++ {
		a.Put(0, y, g.vertical, st)
		a.Put(w-1, y, g.vertical, st)
	}
	x := 2
	if title != "" && w > 6 {
		x = a.Put(2, 0, cells.Clip(title, w-4, g.More), st)
	}
	if n := cells.Width(note); note != "" && x+n+3 <= w {
		a.Put(w-2-n, 0, note, st)
	}
}

// Blit copies rows of src, starting at row from, to the area.
func (a Area) Blit(src *Canvas, from int) {
	for y := range a.r.H {
		if from+y < 0 || from+y >= src.h {
			continue
		}
		for x := range min(a.r.W, src.w) {
			if c := src.cells[(from+y)*src.w+x]; !c.tail && c.text != "" {
				w := 1
				for x+w < src.w && src.cells[(from+y)*src.w+x+w].tail {
					w++
				}
				if x+w <= a.r.W {
					a.c.set(a.r.X+x, a.r.Y+y, c.text, w, c.st, c.mk|a.mk)
				}
			}
		}
	}
}

// Inner is the room inside a box, in the coordinates of the area.
func (a Area) Inner() Rect { return Rect{0, 0, a.r.W, a.r.H}.Inner() }

// Popup is a cleared box in the middle of the area, with a blank column on each
// side to part it from what it covers.
func (a Area) Popup(w, h int) Area {
	r := Rect{(a.r.W - w) / 2, (a.r.H - h) / 2, w, h}
	x := max(r.X-1, 0)
	a.Sub(Rect{x, r.Y, r.X + r.W + 1 - x, h}).clear()
	return a.Sub(r)
}
