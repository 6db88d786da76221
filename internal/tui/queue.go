package tui

import (
	"fmt"
	"strconv"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// depth is the total number of waiting requests; ok is false when no part is known.
func (m *model) depth() (n int, ok bool) {
	for _, p := range []*int{m.snap.Queue.Prefill, m.snap.Queue.Waiting} {
		if p != nil {
			n, ok = n+*p, true
		}
	}
	return n, ok
}

func (m *model) depthText() string {
	if n, ok := m.depth(); ok {
		return strconv.Itoa(n)
	}
	return cells.Unknown
}

// drawQueue is pane 3: the history of the depth and what requests wait for.
func (m *model) drawQueue(a draw.Area) {
	q := &m.snap.Queue
	chart := max(a.H()-5, 1)
	window := q.History
	if len(window) > a.W() {
		window = window[len(window)-a.W():]
	}
	top, some := draw.Peak(window)
	x := a.Put(0, 0, "waiting ", draw.Dim)
	a.Put(x, 0, m.depthText(), draw.Strong)
	scale := "no samples yet"
	if some {
		scale = fmt.Sprintf("max %s  %ds", cells.Compact(top), len(window))
	}
	a.Put(max(a.W()-cells.Width(scale), x+6), 0, scale, draw.Dim)
	for y, line := range draw.Sparkline(window, a.W(), chart, top, m.glyphs.Spark) {
		a.Put(0, 1+y, line, draw.Focused)
	}
	rate := cells.Unknown
	if q.AdmittedS != nil {
		rate = cells.PerSecond(*q.AdmittedS)
	}
	m.pairs(a, chart+1, [][4]string{
		{"admitted", rate, "fallback", cells.Commas(q.Fallbacks)},
		{"prefill wait", cells.IntOr(q.Prefill), "xfer wait", cells.IntOr(q.RemoteWait)},
		{"rejected", cells.Commas(q.Rejected), "preempted", cells.Commas(q.Preempted)},
		{"in flight", cells.IntOr(q.InFlight), "cancelled", cells.Commas(q.Cancelled)},
	})
}

// pairs writes two names with values on each line, the values at the right of
// their halves.
func (m *model) pairs(a draw.Area, y int, lines [][4]string) {
	left := (a.W() - 1) / 2
	wide, narrow := 0, 0
	for _, l := range lines {
		wide = max(wide, cells.Width(l[0])+cells.Width(l[1])+1)
		narrow = max(narrow, cells.Width(l[2])+cells.Width(l[3])+1)
	}
	left = cells.Clamp(left, min(wide, a.W()), max(wide, a.W()-narrow-1))
	for _, l := range lines {
		m.pair(a.Sub(draw.Rect{X: 0, Y: y, W: left, H: 1}), l[0], l[1])
		m.pair(a.Sub(draw.Rect{X: left + 1, Y: y, W: a.W() - left - 1, H: 1}), l[2], l[3])
		y++
	}
}

func (m *model) pair(a draw.Area, name, value string) {
	a.Put(0, 0, name, draw.Dim)
	a.Put(max(min(a.W(), 22)-cells.Width(value), cells.Width(name)+1), 0, value, draw.Plain)
}
