package tui

import tea "github.com/charmbracelet/bubbletea"

// wheelLines is the number of lines that a notch of the wheel scrolls.
const wheelLines = 3

// pointer takes a mouse event: the wheel moves, a click chooses pane and row.
// Nothing acts by mouse alone.
func (m *model) pointer(e tea.MouseEvent) {
	step := 0
	switch e.Button {
	case tea.MouseButtonWheelUp:
		step = -wheelLines
	case tea.MouseButtonWheelDown:
		step = wheelLines
	}
	switch o := m.over.top(); {
	case o != nil:
		o.wheel(step)
		return
	case m.page != nil:
		m.page.MoveBy(step)
		return
	}
	l := m.layout()
	m.panes.shown(l, func(i int, o *placed) {
		r, rows := l.Slots[o.slot], o.Rows()
		switch {
		case !r.Contains(e.X, e.Y):
		case step != 0 && rows != nil:
			rows.MoveBy(step)
		case e.Button == tea.MouseButtonLeft && e.Action == tea.MouseActionPress:
			m.panes.choose(i)
			if rows != nil {
				rows.Point(e.Y - r.Y - 2)
			}
		}
	})
}
