package tui

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// View returns the screen. It reads fields only; the last frame is kept until
// Update says that something visible changed.
func (m *model) View() string {
	if m.dirty || m.frame == "" {
		m.frame = m.draw(m.width, m.height).text(m.theme)
		m.dirty = false
	}
	return m.frame
}

// draw paints the whole screen.
func (m *model) draw(width, height int) *canvas {
	c := newCanvas(width, height, m.ascii)
	a := c.area(m.glyphs.more)
	l := arrange(width, height, m.zoom, m.focus)
	if l.tiny {
		m.drawTiny(a)
		return c
	}
	line := func(y int) area { return a.sub(rect{0, y, width, 1}) }
	body := a.sub(l.body)
	if m.freshness().kind == stale || m.freshness().kind == closed {
		body = body.marked(markStale)
	}
	if m.detail.kind == detailNone {
		m.drawHeader(line(0), m.headerParts())
		for p := paneWorkers; p < paneEnd; p++ {
			if l.shown(p) {
				r := l.panes[p]
				m.drawPane(body.sub(rect{r.x, r.y - l.body.y, r.w, r.h}), p, l)
			}
		}
	} else {
		m.drawHeader(line(0), m.detail.parts(m))
		m.detail.draw(m, body)
	}
	over := a.sub(l.body)
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
func (m *model) drawTiny(a area) {
	text := m.summary()
	switch {
	case m.ask != nil:
		text = m.ask.line(m)
	case m.typing != nil:
		text = m.typing.line(m)
	}
	a.spans(0, 0, a.w(), []span{{text, plain}})
	if note, st := m.noticeText(); note != "" && a.h() > 1 {
		a.spans(0, 1, a.w(), []span{{note, st}})
	}
}

// drawPane draws the box of a pane and what is in it.
func (m *model) drawPane(a area, p pane, l layout) {
	st := border
	mark := " "
	if p == m.focus.pane {
		st, mark = focused, m.glyphs.cursor
	}
	title, note := m.paneTitle(p)
	if textWidth(title)+textWidth(note)+9 > a.w() {
		note = ""
	}
	if note != "" {
		note = " " + note + " "
	}
	a.box(m.glyphs, mark+title+" ", note, st)
	if below := m.paneScroll(p, l); below != "" && textWidth(below)+6 <= a.w() {
		a.put(a.w()-3-textWidth(below)-1, a.h()-1, " "+below+" ", st)
	}
	in := a.sub(a.inner())
	if in.w() <= 0 || in.h() <= 0 {
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
	if p == paneWorkers || p == paneLeases || p == paneNodes || l.filter != "" {
		count := commas(l.total)
		if l.filter != "" {
			count = fmt.Sprintf("%s of %s", commas(len(l.rows)), commas(l.total))
		}
		title += " (" + count + ")"
	}
	var notes []string
	switch {
	case src.newest && l.cursor == 0:
		notes = append(notes, "following")
	case src.newest:
		notes = append(notes, "held")
	case p == paneLeases && src.keys[l.sort].id == "ttl" && !l.desc:
		notes = append(notes, "soonest first")
	case l.sort < len(src.keys):
		arrow := m.glyphs.up
		if l.desc {
			arrow = m.glyphs.down
		}
		notes = append(notes, "sort: "+src.keys[l.sort].id+" "+arrow)
	}
	switch {
	case l.filter != "":
		notes = append(notes, "filter: "+clip(l.filter, 20, m.glyphs.more))
	case p == paneWorkers:
		notes = append(notes, "filter: none")
	}
	return title, strings.Join(notes, "   ")
}

// paneScroll says which rows are shown when there are more.
func (m *model) paneScroll(p pane, l layout) string {
	list, page := &m.lists[p], l.rowsIn(p)
	if _, ok := m.rowsOf(p); !ok || len(list.rows) <= page || page == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d of %s", list.offset+1, min(list.offset+page, len(list.rows)), commas(len(list.rows)))
}

// drawTable draws the rows of a pane, or why there are none.
func (m *model) drawTable(a area, p pane, cols []column, old func(int) bool, none string) {
	l := &m.lists[p]
	if len(l.rows) == 0 {
		switch {
		case !m.have:
			none = m.freshness().text
		case l.filter != "" && l.total > 0:
			none = fmt.Sprintf("nothing of %s matches %q: esc clears the filter", commas(l.total), l.filter)
		}
		a.spans(0, min(1, max(a.h()-1, 0)), a.w(), []span{{none, dim}})
		return
	}
	cursor := -1
	if p == m.focus.pane {
		cursor = l.cursor
	}
	table{cols: cols, rows: l.rows, offset: l.offset, cursor: cursor, stale: old}.draw(a, m.glyphs)
}

// stateSummary counts workers by state, in the order of their life.
func (m *model) stateSummary() string {
	text := commas(len(m.snap.Workers)) + " workers"
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
