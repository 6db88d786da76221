// Package layout says where the panes stand on a screen of a given size.
//
// It is a pure function of the size, the focus and the zoom; tests draw it as pictures.
package layout

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Slot is a place on the screen that a pane can take.
type Slot int

// The slots, in the order of the keys that choose them.
const (
	None Slot = iota
	Top       // stays where there is room for two panes
	Left
	Middle
	Right
	BottomLeft
	BottomRight
	Cover // the whole screen, over the others
	slots
)

// The smallest screen that shows a pane.
const (
	MinWidth  = 60
	MinHeight = 12
)

// Focus is the slot that gets keys, and the lower slot beside the top on screens that
// have room for two.
type Focus struct{ Slot, Lower Slot }

// Layout holds the areas of all slots. Slots without a size are not shown.
type Layout struct {
	Tiny   bool // too small for a pane
	Body   draw.Rect
	Header int // rows of the three single lines
	Notice int
	Footer int
	Slots  [slots]draw.Rect
}

// Arrange is a pure function of the screen's size, the zoom and the focus.
func Arrange(width, height int, zoom bool, f Focus) Layout {
	if width < MinWidth || height < MinHeight {
		return Layout{Tiny: true}
	}
	l := Layout{Body: draw.Rect{X: 0, Y: 1, W: width, H: height - 3}, Notice: height - 2, Footer: height - 1}
	switch {
	case zoom || l.Body.H < 14 || f.Slot == Cover:
		l.Slots[f.Slot] = l.Body
	case width >= 96 && height >= 26:
		l.full()
	case width < 96 && height >= 44:
		l.tall()
	default:
		l.stacked(f)
	}
	return l
}

// full shows all six panes in three rows.
func (l *Layout) full() {
	w, h := l.Body.W, l.Body.H
	middle := cells.Clamp(h*8/27, 8, 12)
	top := ((h-middle)*10 + 18) / 19
	rows := split(l.Body, top, middle, h-top-middle)
	l.Slots[Top] = rows[0]
	leases, latency := w*37/100, max(w*31/100, 31)
	l.across(rows[1], []Slot{Left, Middle, Right}, leases, w-leases-latency, latency)
	events := w * 48 / 100
	l.across(rows[2], []Slot{BottomLeft, BottomRight}, events, w-events)
}

// tall shows all six on narrow screens.
func (l *Layout) tall() {
	w, h := l.Body.W, l.Body.H
	third := (h - 8) / 4
	rows := split(l.Body, h-8-3*third, third, 8, third, third)
	l.Slots[Top] = rows[0]
	l.Slots[Left] = rows[1]
	queue := w / 2
	l.across(rows[2], []Slot{Middle, Right}, queue, w-queue)
	l.Slots[BottomLeft] = rows[3]
	l.Slots[BottomRight] = rows[4]
}

// stacked shows the workers and one lower pane.
func (l *Layout) stacked(f Focus) {
	lower := f.Slot
	if lower == Top {
		lower = f.Lower
	}
	if lower <= Top || lower >= Cover {
		lower = Left
	}
	low := cells.Clamp(l.Body.H*3/7, 6, 9)
	rows := split(l.Body, l.Body.H-low, low)
	l.Slots[Top], l.Slots[lower] = rows[0], rows[1]
}

func (l *Layout) across(r draw.Rect, panes []Slot, widths ...int) {
	x := r.X
	for i, p := range panes {
		l.Slots[p] = draw.Rect{X: x, Y: r.Y, W: widths[i], H: r.H}
		x += widths[i]
	}
}

func split(r draw.Rect, heights ...int) []draw.Rect {
	out := make([]draw.Rect, len(heights))
	y := r.Y
	for i, h := range heights {
		out[i] = draw.Rect{X: r.X, Y: y, W: r.W, H: h}
		y += h
	}
	return out
}

// Shown reports whether a slot has a place on the screen.
func (l Layout) Shown(s Slot) bool { return l.Slots[s].W > 0 && l.Slots[s].H > 0 }
