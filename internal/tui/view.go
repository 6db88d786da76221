package tui

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// View returns the screen. It reads fields only; the last frame is kept until
// Update says that something visible changed.
func (m *model) View() string {
	if m.dirty || m.frame == "" {
		m.frame = m.draw(m.width, m.height).Text(m.theme)
		m.dirty = false
	}
	return m.frame
}

// draw paints the whole screen.
func (m *model) draw(width, height int) *draw.Canvas {
	c := draw.NewCanvas(width, height, m.ascii)
	a := c.Area(m.glyphs.More)
	l := arrange(width, height, m.zoom, m.focus)
	if l.tiny {
		m.drawTiny(a)
		return c
	}
	line := func(y int) draw.Area { return a.Sub(draw.Rect{X: 0, Y: y, W: width, H: 1}) }
	body := a.Sub(l.body)
	if m.freshness().kind == stale || m.freshness().kind == closed {
		body = body.Marked(draw.MarkStale)
	}
	if m.detail.kind == detailNone {
		m.drawHeader(line(0), m.headerParts())
		for p := paneWorkers; p < paneEnd; p++ {
			if l.shown(p) {
				r := l.panes[p]
				m.drawPane(body.Sub(draw.Rect{X: r.X, Y: r.Y - l.body.Y, W: r.W, H: r.H}), p, l)
			}
		}
	} else {
		m.drawHeader(line(0), m.detail.parts(m))
		m.detail.draw(m, body)
	}
	over := a.Sub(l.body)
	switch {
	case m.ask != nil:
		m.drawDialog(over)
	case m.pop.kind != popNone:
		m.drawOverlay(over)
	}
	m.drawNotice(line(l.notice))
	m.drawFooter(line(l.footer))
	return c
}

// drawTiny is what screens without room for a pane show: what keys act on now,
// else the summary.
func (m *model) drawTiny(a draw.Area) {
	text := m.summary()
	switch {
	case m.ask != nil:
		text = m.ask.line(m)
	case m.typing != nil:
		text = m.typing.line(m)
	}
	a.Spans(0, 0, a.W(), []draw.Span{draw.Plain.Text(text)})
	if note, st := m.noticeText(); note != "" && a.H() > 1 {
		a.Spans(0, 1, a.W(), []draw.Span{st.Text(note)})
	}
}

// drawPane draws the box of a pane and what is in it.
func (m *model) drawPane(a draw.Area, p pane, l layout) {
	st := draw.Border
	mark := " "
	if p == m.focus.pane {
		st, mark = draw.Focused, m.glyphs.Cursor
	}
	title, note := m.paneTitle(p)
	if cells.Width(title)+cells.Width(note)+9 > a.W() {
		note = ""
	}
	if note != "" {
		note = " " + note + " "
	}
	a.Box(m.glyphs, mark+title+" ", note, st)
	if below := m.paneScroll(p, l); below != "" && cells.Width(below)+6 <= a.W() {
		a.Put(a.W()-3-cells.Width(below)-1, a.H()-1, " "+below+" ", st)
	}
	in := a.Sub(a.Inner())
	if in.W() <= 0 || in.H() <= 0 {
		return
	}
	switch p {
	case paneWorkers:
		m.drawWorkers(in)
	case paneLeases:
		m.drawLeases(in)
	case paneQueue:
		m.drawQueue(in)
	case paneLatency:
		m.drawLatency(in)
	case paneEvents:
		m.drawEvents(in)
	case paneDecisions:
		m.drawDecisions(in)
	case paneNodes:
		m.drawNodes(in)
	}
}

// paneTitle is what stands in the border: number, name and count on the left,
// order and filter on the right.
func (m *model) paneTitle(p pane) (title, note string) {
	name := p.info().title
	if p == paneLatency {
		name = m.latencyTitle()
	}
	title = fmt.Sprintf("%d %s", p, name)
	if p == paneNodes {
		title = "n " + name
	}
	src, ok := m.rowsOf(p)
	if !ok {
		return title, ""
	}
	l := &m.lists[p]
	if p == paneWorkers || p == paneLeases || p == paneNodes || l.Filter != "" {
		count := cells.Commas(l.Total)
		if l.Filter != "" {
			count = fmt.Sprintf("%s of %s", cells.Commas(len(l.Rows)), cells.Commas(l.Total))
		}
		title += " (" + count + ")"
	}
	var notes []string
	switch {
	case src.Newest && l.Cursor == 0:
		notes = append(notes, "following")
	case src.Newest:
		notes = append(notes, "held")
	case p == paneLeases && src.Keys[l.Sort].Id == "ttl" && !l.Desc:
		notes = append(notes, "soonest first")
	case l.Sort < len(src.Keys):
		arrow := m.glyphs.Up
		if l.Desc {
			arrow = m.glyphs.Down
		}
		notes = append(notes, "sort: "+src.Keys[l.Sort].Id+" "+arrow)
	}
	switch {
	case l.Filter != "":
		notes = append(notes, "filter: "+cells.Clip(l.Filter, 20, m.glyphs.More))
	case p == paneWorkers:
		notes = append(notes, "filter: none")
	}
	return title, strings.Join(notes, "   ")
}

// paneScroll says which rows are shown when there are more.
func (m *model) paneScroll(p pane, l layout) string {
	list, page := &m.lists[p], l.rowsIn(p)
	if _, ok := m.rowsOf(p); !ok || len(list.Rows) <= page || page == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d of %s", list.Offset+1, min(list.Offset+page, len(list.Rows)), cells.Commas(len(list.Rows)))
}

// drawTable draws the rows of a pane, or why there are none.
func (m *model) drawTable(a draw.Area, p pane, cols []table.Column, old func(int) bool, none string) {
	l := &m.lists[p]
	if len(l.Rows) == 0 {
		switch {
		case !m.have:
			none = m.freshness().text
		case l.Filter != "" && l.Total > 0:
			none = fmt.Sprintf("nothing of %s matches %q: esc clears the filter", cells.Commas(l.Total), l.Filter)
		}
		a.Spans(0, min(1, max(a.H()-1, 0)), a.W(), []draw.Span{draw.Dim.Text(none)})
		return
	}
	cursor := -1
	if p == m.focus.pane {
		cursor = l.Cursor
	}
	table.Table{Cols: cols, Rows: l.Rows, Offset: l.Offset, Cursor: cursor, Stale: old}.Draw(a, m.glyphs)
}

// stateSummary counts workers by state, in the order of their life.
func (m *model) stateSummary() string {
	text := cells.Commas(len(m.snap.Workers)) + " workers"
	if len(m.snap.Workers) == 1 {
		text = "1 worker"
	}
	var parts []string
	for _, s := range []cluster.State{
		cluster.StateReady, cluster.StateDegraded, cluster.StateDraining, cluster.StateLost, cluster.StateFailed,
		cluster.StatePending, cluster.StateLoading, cluster.StateWarming, cluster.StateDrained, cluster.StateStopped,
	} {
		if n := m.known.stateCount[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, " ")
	}
	return text
}
