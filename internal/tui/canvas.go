package tui

import "strings"

// cell is one place on the screen. The second half of a wide character has
// tail set and no text; a cell without text is blank.
type cell struct {
	text string
	st   style
	mk   mark
	tail bool
}

// canvas is the screen before it becomes text. Everything is drawn cell by cell
// and cut at the edges, so that no line can wrap whatever the names are.
type canvas struct {
	w, h  int
	ascii bool // replace what is not ASCII
	cells []cell
}

func newCanvas(w, h int, ascii bool) *canvas {
	w, h = max(w, 0), max(h, 0)
	return &canvas{w: w, h: h, ascii: ascii, cells: make([]cell, w*h)}
}

// area is the whole canvas; more marks text that is cut.
func (c *canvas) area(more string) area {
	return area{c: c, r: rect{0, 0, c.w, c.h}, more: more}
}

// set writes one character of the given width and repairs what it cuts in two.
func (c *canvas) set(x, y int, text string, width int, st style, mk mark) {
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

// rect is a part of the screen.
type rect struct{ x, y, w, h int }

// inset shrinks r on each side, never below nothing.
func (r rect) inset(dx, dy int) rect {
	return rect{r.x + dx, r.y + dy, max(r.w-2*dx, 0), max(r.h-2*dy, 0)}
}

func (r rect) contains(x, y int) bool {
	return x >= r.x && x < r.x+r.w && y >= r.y && y < r.y+r.h
}

// area is the part of a canvas that one drawing function may touch; coordinates
// are relative to it and what lies outside is cut.
type area struct {
	c    *canvas
	r    rect
	mk   mark
	more string
}

func (a area) sub(r rect) area {
	r.x, r.y = a.r.x+r.x, a.r.y+r.y
	r.w = max(min(r.w, a.r.x+a.r.w-r.x), 0)
	r.h = max(min(r.h, a.r.y+a.r.h-r.y), 0)
	a.r = r
	return a
}

// outset is the area with the column on its left and the one on its right.
func (a area) outset() area { a.r.x, a.r.w = a.r.x-1, a.r.w+2; return a }

func (a area) w() int { return a.r.w }

func (a area) h() int { return a.r.h }

func (a area) marked(m mark) area { a.mk |= m; return a }

// put writes s at (x, y) and returns the x after it. What does not fit is left out.
func (a area) put(x, y int, s string, st style) int {
	if y < 0 || y >= a.r.h || a.r.y+y >= a.c.h || a.r.y+y < 0 {
		return x
	}
	limit := min(a.r.w, a.c.w-a.r.x)
	for s != "" {
		cluster, w, rest := nextCluster(s)
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
					a.c.set(a.r.x+x+i, a.r.y+y, "?", 1, st, a.mk)
				}
			}
		} else if x >= 0 {
			a.c.set(a.r.x+x, a.r.y+y, cluster, w, st, a.mk)
		}
		x += w
	}
	return x
}

// span is text in one style.
type span struct {
	text string
	st   style
}

// text is a span of s in this style.
func (st style) text(s string) span { return span{text: s, st: st} }

func spansWidth(ss []span) int {
	n := 0
	for _, s := range ss {
		n += textWidth(s.text)
	}
	return n
}

// spans writes ss into w cells from x, cut on the right with a mark.
func (a area) spans(x, y, w int, ss []span) int {
	end := x + w
	for i, s := range ss {
		left := end - x
		if left <= 0 {
			break
		}
		n := textWidth(s.text)
		if n > left || (n == left && i+1 < len(ss) && spansWidth(ss[i+1:]) > 0) {
			return a.put(x, y, clip(s.text+" "+a.more, left, a.more), s.st)
		}
		x = a.put(x, y, s.text, s.st)
	}
	return x
}

// fill paints blanks, so that marks and grounds cover whole rows.
func (a area) fill(y int, st style) {
	for x := range a.r.w {
		a.put(x, y, " ", st)
	}
}

func (a area) clear() {
	for y := range a.r.h {
		a.fill(y, plain)
	}
}

// box draws a border with a title on the left and a note on the right.
func (a area) box(g *glyphSet, title, note string, st style) {
	w, h := a.r.w, a.r.h
	if w < 2 || h < 2 {
		return
	}
	line := strings.Repeat(g.horizontal, w-2)
	a.put(0, 0, g.topLeft+line+g.topRight, st)
	a.put(0, h-1, g.bottomLeft+line+g.bottomRight, st)
	for y := 1; y < h-1; y++ {
		a.put(0, y, g.vertical, st)
		a.put(w-1, y, g.vertical, st)
	}
	x := 2
	if title != "" && w > 6 {
		x = a.put(2, 0, clip(title, w-4, g.more), st)
	}
	if n := textWidth(note); note != "" && x+n+3 <= w {
		a.put(w-2-n, 0, note, st)
	}
}

// blit copies rows of src, starting at row from, to the area.
func (a area) blit(src *canvas, from int) {
	for y := range a.r.h {
		if from+y < 0 || from+y >= src.h {
			continue
		}
		for x := range min(a.r.w, src.w) {
			if c := src.cells[(from+y)*src.w+x]; !c.tail && c.text != "" {
				w := 1
				for x+w < src.w && src.cells[(from+y)*src.w+x+w].tail {
					w++
				}
				if x+w <= a.r.w {
					a.c.set(a.r.x+x, a.r.y+y, c.text, w, c.st, c.mk|a.mk)
				}
			}
		}
	}
}

// text turns the canvas into lines, without blanks at their ends.
func (c *canvas) text(t *theme) string {
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
	return !k.tail && (k.text == "" || k.text == " ") && k.mk&markSelected == 0 && k.st != chosen
}

// inner is the room inside a box, in the coordinates of the area.
func (a area) inner() rect { return rect{0, 0, a.r.w, a.r.h}.inset(2, 1) }

// popup is a cleared box in the middle of the area, with a blank column on each
// side to part it from what it covers.
func (a area) popup(w, h int) area {
	r := rect{(a.r.w - w) / 2, (a.r.h - h) / 2, w, h}
	x := max(r.x-1, 0)
	a.sub(rect{x, r.y, r.x + r.w + 1 - x, h}).clear()
	return a.sub(r)
}
