package tui

import (
	"encoding/json"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// bigMove is further than any list is long.
const bigMove = 1 << 30

// rows are those of the focused pane; nil: it has none.
func (m *model) rows() *table.List { return m.panes.focused().Rows() }

func (m *model) cannotMove() string {
	switch l := m.rows(); {
	case m.page != nil:
		return ""
	case l == nil:
		return m.panes.focused().title + " has no rows"
	case l.Len() == 0:
		return "no rows"
	}
	return ""
}

// moveBy moves the cursor of the focused pane, or scrolls what covers it.
func (m *model) moveBy(n int) {
	if m.page != nil {
		m.page.Scroll(n)
	} else if l := m.rows(); l != nil {
		l.MoveBy(n)
	}
}

func (m *model) halfPage() int {
	if m.page != nil {
		return m.page.HalfPage()
	}
	return m.rows().HalfPage()
}

// choose leaves the screen of a thing for a pane.
func (m *model) choose(i int) {
	m.page = nil
	m.panes.choose(i)
}

// open covers the panes with the screen of a thing.
func (m *model) open(s detail.Screen) { m.page = detail.NewPage(m.shown, s) }

func (m *model) cannotInspect() string { return m.subject().NoOpen }

func (m *model) cannotZoom() string {
	if o := m.panes.focused(); o.slot == layout.Cover {
		return "the " + o.title + " cover the screen already"
	}
	return ""
}

func (m *model) cannotSort() string {
	title, l := m.panes.focused().title, m.rows()
	switch {
	case l == nil:
		return title + " has no rows to sort"
	case len(l.SortKeys()) == 0:
		return title + " stay newest first"
	}
	return ""
}

func (m *model) cannotFilter() string {
	if m.rows() == nil {
		return m.panes.focused().title + " has no rows to filter"
	}
	return ""
}

func (m *model) cannotBack() string {
	o := m.panes.focused()
	if m.page == nil && !m.filtered() && !m.panes.zoom && o.slot != layout.Cover {
		return "nothing to go back from; q leaves"
	}
	return ""
}

func (m *model) filtered() bool {
	l := m.rows()
	return l != nil && l.Filter() != ""
}

// back undoes the last thing that narrowed the view.
func (m *model) back() {
	switch {
	case m.page != nil:
		m.page = nil
	case m.filtered():
		m.rows().SetFilter("")
	case m.panes.focused().slot == layout.Cover:
		m.panes.choose(m.panes.before)
	case m.panes.zoom:
		m.panes.zoom = false
	}
}

func (m *model) togglePause() {
	if play := m.feed.play; play != nil {
		play.hold(!play.held)
	} else if m.feed.freeze() {
		m.refresh()
	}
}

// stepPace looks more often or less often; a replay is played faster or slower.
func (m *model) stepPace(faster bool) tea.Cmd {
	if play := m.feed.play; play != nil {
		v, _ := play.nextSpeed(faster)
		play.setSpeed(v)
		return nil
	}
	m.feed.interval, _ = m.feed.step(!faster)
	return m.cmds.setInterval(m.source, m.feed.interval)
}

func (m *model) toggleMouse() tea.Cmd {
	m.mouse = !m.mouse
	if m.mouse {
		m.say(draw.Plain, "mouse on: M gives text selection back")
		return tea.EnableMouseCellMotion
	}
	m.say(draw.Plain, "mouse off")
	return tea.DisableMouse
}

func (m *model) cannotSave() string {
	if !m.shown.Have {
		return "nothing to save yet"
	}
	return ""
}

func (m *model) saveScreen() tea.Cmd {
	name := "dynctl-top-" + m.feed.now.In(m.opts.Location).Format("20060102-150405") + ".txt"
	return m.cmds.save(m.opts.Save, name, []byte(m.draw().Text(draw.PlainTheme())+"\n"))
}

// showYAML prints the thing that keys act on. The text is taken once, so that it does not
// change while it is read.
func (m *model) showYAML() {
	s := m.subject()
	raw, err := json.Marshal(s.Value)
	if err != nil {
		m.say(draw.Bad, "yaml: "+err.Error())
		return
	}
	lines := yamlLines(raw)
	m.push(&textBox{title: s.Title, lines: func() [][]draw.Span { return lines }, glyphs: m.shown.Glyphs})
}
