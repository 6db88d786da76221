package tui

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// View returns the screen. It reads fields only; the last frame is kept until
// Update says that something visible changed.
func (m *model) View() string {
	if m.dirty || m.frame == "" {
		m.frame = m.draw().Text(m.theme)
		m.dirty = false
	}
	return m.frame
}

// draw paints the whole screen.
func (m *model) draw() *draw.Canvas {
	width, height := m.shown.Width, m.shown.Height
	c := draw.NewCanvas(width, height, m.shown.ASCII)
	a := c.Area(m.shown.Glyphs.More)
	l := m.layout()
	if l.Tiny {
		m.drawTiny(a)
		return c
	}
	line := func(y int) draw.Area { return a.Sub(draw.Rect{X: 0, Y: y, W: width, H: 1}) }
	body := a.Sub(l.Body)
	if m.feed.state.old() {
		body = body.Marked(draw.MarkStale)
	}
	clock := m.feed.clock().In(m.opts.Location).Format("15:04:05 MST")
	if m.page == nil {
		drawHeader(line(l.Header), headerParts(m.shown, m.opts.Recording), m.feed.state, clock)
		m.panes.shown(l, func(i int, o *placed) {
			r := l.Slots[o.slot]
			r.Y -= l.Body.Y
			drawPane(body.Sub(r), o, m.shown.Glyphs, i == m.panes.at)
		})
	} else {
		drawHeader(line(l.Header), m.page.Header(), m.feed.state, clock)
		m.page.Draw(body)
	}
	if o := m.over.top(); o != nil {
		o.draw(a.Sub(l.Body))
	}
	if text, st := m.notice(); text != "" {
		line(l.Notice).Spans(1, 0, width-1, []draw.Span{st.Text(text)})
	}
	switch o := m.over.top().(type) {
	case nil:
		drawHints(line(l.Footer), m.hints())
	case *prompt:
		o.drawFooter(line(l.Footer))
	}
	return c
}

// drawPane draws the box of a pane and what is in it.
func drawPane(a draw.Area, o *placed, g *draw.Glyphs, focused bool) {
	st, mark := draw.Border, " "
	if focused {
		st, mark = draw.Focused, g.Cursor
	}
	title, note, below := o.Heading()
	title = o.key + " " + o.title + title
	if cells.Width(title)+cells.Width(note)+9 > a.W() {
		note = ""
	}
	if note != "" {
		note = " " + note + " "
	}
	a.Box(g, mark+title+" ", note, st)
	if below != "" && cells.Width(below)+6 <= a.W() {
		a.Put(a.W()-3-cells.Width(below)-1, a.H()-1, " "+below+" ", st)
	}
	if in := a.Sub(a.Inner()); in.W() > 0 && in.H() > 0 {
		o.Draw(in, focused)
	}
}

// drawTiny draws screens without room for a pane: the object that keys act on, else the
// summary.
func (m *model) drawTiny(a draw.Area) {
	text := ""
	if o := m.over.top(); o != nil {
		text, _ = o.line()
	}
	if text == "" {
		text = summary(m.shown, m.feed.state)
	}
	a.Spans(0, 0, a.W(), []draw.Span{draw.Plain.Text(text)})
	if note, st := m.notice(); note != "" && a.H() > 1 {
		a.Spans(0, 1, a.W(), []draw.Span{st.Text(note)})
	}
}

// summary is the one line of screens too small for a pane.
func summary(m *moment.Moment, state freshness) string {
	need, dot := fmt.Sprintf("needs %dx%d", layout.MinWidth, layout.MinHeight), " "+m.Glyphs.Dot+" "
	if !m.Have {
		return need + dot + state.text
	}
	return strings.Join([]string{need, cells.OrUnknown(m.Snap.Cluster) + " " + state.text, stateSummary(m), "queue " + m.Depth()}, dot)
}

// stateSummary counts workers by state, in the order of their life.
func stateSummary(m *moment.Moment) string {
	text := cells.Commas(len(m.Snap.Workers)) + " workers"
	if len(m.Snap.Workers) == 1 {
		text = "1 worker"
	}
	var parts []string
	for _, s := range []cluster.State{
		cluster.StateReady, cluster.StateDegraded, cluster.StateDraining, cluster.StateLost, cluster.StateFailed,
		cluster.StatePending, cluster.StateLoading, cluster.StateWarming, cluster.StateSleeping, cluster.StateDrained, cluster.StateStopped,
	} {
		if n := m.Known.StateCount[s]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, s))
		}
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, " ")
	}
	return text
}

// notice is the line above the footer: a message, or the worst of the cluster's notices.
func (m *model) notice() (string, draw.Style) {
	if m.flash.text != "" && m.feed.now.Before(m.flash.until) {
		return m.flash.text, m.flash.st
	}
	s, f, sign := &m.shown.Snap, &m.shown.Snap.Fresh, m.shown.Glyphs.Degraded+" "
	switch {
	case !m.shown.Have:
		return "", draw.Plain
	case !f.EtcdOK && f.EtcdErr != "":
		return sign + f.EtcdErr, draw.Bad
	case !f.NATSOK && f.NATSErr != "":
		return sign + f.NATSErr, draw.Bad
	case len(s.Notices) > 0:
		text := sign + s.Notices[0]
		if n := len(s.Notices) - 1; n > 0 {
			text += fmt.Sprintf(" (%d more)", n)
		}
		return text, draw.Warn
	}
	return "", draw.Plain
}
