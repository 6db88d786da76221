package tui

import tea "github.com/charmbracelet/bubbletea"

// pointer takes a mouse event: the wheel moves, a click chooses pane and row.
// Nothing acts by mouse alone.
func (m *model) pointer(e tea.MouseEvent) {
	if m.ask != nil || m.typing != nil {
		return
	}
	step := 0
	switch {
	case e.Button == tea.MouseButtonWheelUp:
		step = -3
	case e.Button == tea.MouseButtonWheelDown:
		step = 3
	}
	if step != 0 && m.pop.kind != popNone {
		m.pop.scroll += step
		return
	}
	if m.detail.kind != detailNone || m.pop.kind != popNone {
		if step != 0 {
			m.moveBy(step)
		}
		return
	}
	l := m.layout()
	for p := paneWorkers; p < paneEnd; p++ {
		r := l.panes[p]
		if !l.shown(p) || !r.Contains(e.X, e.Y) {
			continue
		}
		src, rows := m.rowsOf(p)
		list := &m.lists[p]
		switch {
		case step != 0 && rows:
			list.Move(list.Cursor+step, src)
		case e.Button == tea.MouseButtonLeft && e.Action == tea.MouseActionPress:
			m.setFocus(p)
			if row := e.Y - r.Y - 2; rows && row >= 0 && row < l.rowsIn(p) && list.Offset+row < len(list.Rows) {
				list.Move(list.Offset+row, src)
			}
		}
		return
	}
}
