package tui

import (
	"fmt"
	"strconv"
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
	return unknown
}

// drawQueue is pane 3: the history of the depth and what requests wait for.
func (m *model) drawQueue(a area) {
	q := &m.snap.Queue
	chart := max(a.h()-5, 1)
	window := q.History
	if len(window) > a.w() {
		window = window[len(window)-a.w():]
	}
	top, some := peak(window)
	x := a.put(0, 0, "waiting ", dim)
	a.put(x, 0, m.depthText(), strong)
	scale := "no samples yet"
	if some {
		scale = fmt.Sprintf("max %s  %ds", compact(top), len(window))
	}
	a.put(max(a.w()-textWidth(scale), x+6), 0, scale, dim)
	for y, line := range sparkline(window, a.w(), chart, top, m.glyphs.spark) {
		a.put(0, 1+y, line, focused)
	}
	rate := unknown
	if q.AdmittedS != nil {
		rate = perSecond(*q.AdmittedS)
	}
	m.pairs(a, chart+1, [][4]string{
		{"admitted", rate, "fallback", commas(q.Fallbacks)},
		{"prefill wait", intOr(q.Prefill), "xfer wait", intOr(q.RemoteWait)},
		{"rejected", commas(q.Rejected), "preempted", commas(q.Preempted)},
		{"in flight", intOr(q.InFlight), "cancelled", commas(q.Cancelled)},
	})
}

// pairs writes two names with values on each line, the values at the right of
// their halves.
func (m *model) pairs(a area, y int, lines [][4]string) {
	left := (a.w() - 1) / 2
	wide, narrow := 0, 0
	for _, l := range lines {
		wide = max(wide, textWidth(l[0])+textWidth(l[1])+1)
		narrow = max(narrow, textWidth(l[2])+textWidth(l[3])+1)
	}
	left = clamp(left, min(wide, a.w()), max(wide, a.w()-narrow-1))
	for _, l := range lines {
		m.pair(a.sub(rect{0, y, left, 1}), l[0], l[1])
		m.pair(a.sub(rect{left + 1, y, a.w() - left - 1, 1}), l[2], l[3])
		y++
	}
}

func (m *model) pair(a area, name, value string) {
	a.put(0, 0, name, dim)
	a.put(max(min(a.w(), 22)-textWidth(value), textWidth(name)+1), 0, value, plain)
}
