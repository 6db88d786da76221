package pane

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
)

// queue is the pane of the waiting requests: the history of their number and what they
// wait for.
type queue struct{ still }

// Queue returns the pane of the waiting requests.
func Queue(m *moment.Moment) Pane { return &queue{still{m}} }

func (p *queue) Draw(a draw.Area, _ bool) {
	q := &p.m.Snap.Queue
	chart := max(a.H()-5, 1)
	window := q.History
	if len(window) > a.W() {
		window = window[len(window)-a.W():]
	}
	top, some := draw.Peak(window)
	x := a.Put(0, 0, "waiting ", draw.Dim)
	a.Put(x, 0, p.m.Depth(), draw.Strong)
	scale := "no samples yet"
	if some {
		scale = fmt.Sprintf("max %s  %ds", cells.Compact(top), len(window))
	}
	a.Put(max(a.W()-cells.Width(scale), x+6), 0, scale, draw.Dim)
	for y, line := range draw.Sparkline(window, a.W(), chart, top, p.m.Glyphs.Spark) {
		a.Put(0, 1+y, line, draw.Focused)
	}
	rate := cells.Unknown
	if q.AdmittedS != nil {
		rate = cells.PerSecond(*q.AdmittedS)
	}
	pairs(a, chart+1, [][4]string{
		{"admitted", rate, "fallback", cells.Commas(q.Fallbacks)},
		{"prefill wait", cells.IntOr(q.Prefill), "xfer wait", cells.IntOr(q.RemoteWait)},
		{"rejected", cells.Commas(q.Rejected), "preempted", cells.Commas(q.Preempted)},
		{"in flight", cells.IntOr(q.InFlight), "cancelled", cells.Commas(q.Cancelled)},
	})
}

// pairs writes two names with values on each line, the values at the right of
// their halves.
func pairs(a draw.Area, y int, lines [][4]string) {
	left := (a.W() - 1) / 2
	wide, narrow := 0, 0
	for _, l := range lines {
		wide = max(wide, cells.Width(l[0])+cells.Width(l[1])+1)
		narrow = max(narrow, cells.Width(l[2])+cells.Width(l[3])+1)
	}
	left = cells.Clamp(left, min(wide, a.W()), max(wide, a.W()-narrow-1))
	for _, l := range lines {
		pair(a.Sub(draw.Rect{X: 0, Y: y, W: left, H: 1}), l[0], l[1])
		pair(a.Sub(draw.Rect{X: left + 1, Y: y, W: a.W() - left - 1, H: 1}), l[2], l[3])
		y++
	}
}

func pair(a draw.Area, name, value string) {
	a.Put(0, 0, name, draw.Dim)
	a.Put(max(min(a.W(), 22)-cells.Width(value), cells.Width(name)+1), 0, value, draw.Plain)
}

func (p *queue) Subject() detail.Subject {
	return detail.Subject{Title: "queue", Value: p.m.Snap.Queue, NoWorker: chooseWorker, Open: detail.Queue(p.m)}
}

func (p *queue) Table(o plain.Options) plain.Table {
	q := &p.m.Snap.Queue
	t := plain.New("queue", "WHAT", ">VALUE")
	t.Add("depth", p.m.Depth())
	t.Add("prefill queue", cells.IntOr(q.Prefill))
	t.Add("prefill in work", cells.IntOr(q.PrefillBusy))
	t.Add("waiting in engines", cells.IntOr(q.Waiting))
	t.Add("waiting for transfer", cells.IntOr(q.RemoteWait))
	t.Add("in flight", cells.IntOr(q.InFlight))
	t.Add("admitted/s", o.Float(q.AdmittedS, cells.Millis)) // three digits
	t.Add("rejected", fmt.Sprint(q.Rejected))
	t.Add("preempted", fmt.Sprint(q.Preempted))
	t.Add("cancelled", fmt.Sprint(q.Cancelled))
	t.Add("fallback", fmt.Sprint(q.Fallbacks))
	return t
}
