package tui

import (
	"encoding/json"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// bigMove is further than any list is long.
const bigMove = 1 << 30

// mover is a list that keys move.
type mover interface {
	MoveBy(n int)
	HalfPage() int
}

// mover returns the list over the panes, or that of the focused pane; nil if there is none.
func (m *model) mover() mover {
	if m.page != nil {
		return m.page
	}
	if rows := m.panes.rows(); rows != nil {
		return rows
	}
	return nil
}

func (m *model) cannotMove() string {
	switch l := m.panes.rows(); {
	case m.page != nil:
		return ""
	case l == nil:
		return m.panes.focused().title + " has no rows"
	case l.Len() == 0:
		return "no rows"
	}
	return ""
}

// typeCommand has a command typed.
func (m *model) typeCommand() {
	m.over.push(commandPrompt(m.shown.Glyphs,
		func(line string) tea.Cmd { return m.words.run(m, line) },
		func(line string) string { return m.words.complete(m, line) }))
}

// choose leaves the screen of a thing for a pane.
func (m *model) choose(i int) {
	m.page = nil
	m.panes.choose(i)
}

// open covers the panes with the screen of a thing.
func (m *model) open(s detail.Screen) { m.page = detail.NewPage(m.shown, s) }

func (m *model) cannotBack() string {
	if m.page == nil && !m.panes.narrowed() {
		return "nothing to go back from; q leaves"
	}
	return ""
}

// back undoes the last thing that narrowed the view.
func (m *model) back() {
	if m.page != nil {
		m.page = nil
		return
	}
	m.panes.back()
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
	m.over.push(&textBox{title: s.Title, lines: func() [][]draw.Span { return lines }, glyphs: m.shown.Glyphs})
}
