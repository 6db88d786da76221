package tui

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// pane is one of the six boxes, numbered as their keys, or the list of nodes.
type pane int

const (
	paneNone pane = iota
	paneWorkers
	paneLeases
	paneQueue
	paneLatency
	paneEvents
	paneDecisions
	paneNodes // not among the boxes of the screen: it covers them
	paneEnd
)

// paneInfo is what a pane is called. name is what --view and the command line
// know it by.
type paneInfo struct{ name, title string }

func (p pane) info() paneInfo {
	switch p {
	case paneWorkers:
		return paneInfo{"workers", "workers"}
	case paneLeases:
		return paneInfo{"leases", "leases"}
	case paneQueue:
		return paneInfo{"queue", "queue depth"}
	case paneLatency:
		return paneInfo{"latency", "latency"}
	case paneEvents:
		return paneInfo{"events", "KV events"}
	case paneDecisions:
		return paneInfo{"router", "router decisions"}
	case paneNodes:
		return paneInfo{"nodes", "nodes"}
	}
	return paneInfo{"none", "none"}
}

// The smallest screen that shows a pane.
const (
	minWidth  = 60
	minHeight = 12
)

// focus is where keys go, and which lower pane stays beside the workers on
// screens that have room for two.
type focus struct{ pane, lower pane }

// layout is where everything stands. Panes without a size are not shown.
type layout struct {
	tiny   bool
	body   draw.Rect
	header int // rows of the three single lines
	notice int
	footer int
	panes  [paneEnd]draw.Rect
}

// arrange is a pure function of the screen's size, the zoom and the focus.
func arrange(width, height int, zoom bool, f focus) layout {
	if width < minWidth || height < minHeight {
		return layout{tiny: true}
	}
	l := layout{body: draw.Rect{X: 0, Y: 1, W: width, H: height - 3}, notice: height - 2, footer: height - 1}
	switch {
	case zoom || l.body.H < 14 || f.pane == paneNodes:
		l.panes[f.pane] = l.body
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
func (l *layout) full() {
	w, h := l.body.W, l.body.H
	middle := cells.Clamp(h*8/27, 8, 12)
	top := ((h-middle)*10 + 18) / 19
	rows := split(l.body, top, middle, h-top-middle)
	l.panes[paneWorkers] = rows[0]
	leases, latency := w*37/100, max(w*31/100, 31)
	l.across(rows[1], []pane{paneLeases, paneQueue, paneLatency}, leases, w-leases-latency, latency)
	events := w * 48 / 100
	l.across(rows[2], []pane{paneEvents, paneDecisions}, events, w-events)
}

// tall shows all six on narrow screens.
func (l *layout) tall() {
	w, h := l.body.W, l.body.H
	third := (h - 8) / 4
	rows := split(l.body, h-8-3*third, third, 8, third, third)
	l.panes[paneWorkers] = rows[0]
	l.panes[paneLeases] = rows[1]
	queue := w / 2
	l.across(rows[2], []pane{paneQueue, paneLatency}, queue, w-queue)
	l.panes[paneEvents] = rows[3]
	l.panes[paneDecisions] = rows[4]
}

// stacked shows the workers and one lower pane.
func (l *layout) stacked(f focus) {
	lower := f.pane
	if lower == paneWorkers {
		lower = f.lower
	}
	if lower <= paneWorkers || lower >= paneEnd {
		lower = paneLeases
	}
	low := cells.Clamp(l.body.H*3/7, 6, 9)
	rows := split(l.body, l.body.H-low, low)
	l.panes[paneWorkers], l.panes[lower] = rows[0], rows[1]
}

func (l *layout) across(r draw.Rect, panes []pane, widths ...int) {
	x := r.X
	for i, p := range panes {
		l.panes[p] = draw.Rect{X: x, Y: r.Y, W: widths[i], H: r.H}
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

// shown reports whether a pane has a place on the screen.
func (l layout) shown(p pane) bool { return l.panes[p].W > 0 && l.panes[p].H > 0 }

// rowsIn is how many list rows a pane has room for: its height without border,
// column titles and, where there is one, the summary line.
func (l layout) rowsIn(p pane) int {
	h := l.panes[p].H - 3
	if p == paneEvents || p == paneDecisions {
		h--
	}
	return max(h, 0)
}
