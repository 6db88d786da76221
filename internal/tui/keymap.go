package tui

import (
	"strconv"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/layout"
)

// keyMap is every key of the screen, in the order of the footer.
func keyMap(specs []paneSpec) []binding {
	none := func(f func(*model)) func(*model, string) tea.Cmd {
		return func(m *model, _ string) tea.Cmd { f(m); return nil }
	}
	move := func(show, help string, by func(m *model) int, keys ...string) binding {
		return binding{keys: keys, show: show, group: groupMove, help: help, on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.mover().MoveBy(by(m)) })}
	}
	by := func(n int) func(*model) int { return func(*model) int { return n } }
	wind := func(show, help string, keys ...string) binding {
		return binding{keys: keys, show: show, group: groupReplay, help: help, on: everywhere,
			can: func(m *model) string { return m.feed.play.cannotWind() }, run: func(m *model, key string) tea.Cmd { m.feed.play.wind(key); return nil }}
	}
	pace := func(show, help string, faster bool, keys ...string) binding {
		return binding{keys: keys, show: show, group: groupScreen, help: help, on: everywhere,
			can: func(m *model) string { return m.feed.cannotStep(faster) }, run: func(m *model, _ string) tea.Cmd { return m.stepPace(faster) }}
	}
	cannotSort := func(m *model) string { return m.panes.cannotSort() }
	cannotFilter := func(m *model) string { return m.panes.cannotFilter() }
	cannotSave := func(m *model) string {
		if !m.shown.Have {
			return "nothing to save yet"
		}
		return ""
	}
	canDrain, askDrain := drain().key()
	canResume, askResume := resume().key()
	out := []binding{
		{keys: []string{"?"}, show: "?", group: groupScreen, help: "keys of this view", hint: "help", rank: 1, on: everywhere, run: none((*model).showHelp)},
		{keys: []string{"/"}, show: "/", group: groupRows, help: "filter the focused pane; a leading ! shows the other rows", hint: "filter", rank: 6, on: onPanes, can: cannotFilter, run: none(func(m *model) { m.over.push(filterPrompt(m.panes.rows(), m.shown.Glyphs)) })},
		{keys: []string{":"}, show: ":", group: groupScreen, help: "command line, with the commands below", hint: "command", rank: 7, on: everywhere, run: none((*model).typeCommand)},
		{keys: []string{"enter"}, show: "enter", group: groupRows, help: "inspect what the row is about; the queue, the latencies", hint: "inspect", rank: 4, on: everywhere, can: func(m *model) string { return m.subject().NoOpen }, run: none(func(m *model) { m.open(m.subject().Open) })},
		{keys: []string{"d"}, show: "d", group: groupWorker, help: "drain the worker, after a question", hint: "drain", rank: 3, on: everywhere, can: canDrain, run: askDrain},
		{keys: []string{"r"}, show: "r", group: groupWorker, help: "resume a drained worker, after a question", hint: "resume", rank: 4, on: everywhere, can: canResume, run: askResume},
		{keys: []string{"L"}, show: "L", group: groupWorker, help: "log of the worker, or of the node's agent, as it grows", on: everywhere, can: func(m *model) string { return m.cannotLog(m.logged()) }, run: func(m *model, _ string) tea.Cmd { return m.openLog(m.logged()) }},
		{keys: []string{"s"}, show: "s", group: groupRows, help: "sort by the next column", hint: "sort", rank: 8, on: onPanes, can: cannotSort, run: none(func(m *model) { m.panes.rows().SortNext() })},
		{keys: []string{"S"}, show: "S", group: groupRows, help: "reverse the order", on: onPanes, can: cannotSort, run: none(func(m *model) { m.panes.rows().Reverse() })},
		{keys: []string{"p", " "}, show: "p", group: groupScreen, help: "freeze the screen, or hold a replay, and let it go on", hint: "pause", rank: 5, on: everywhere, run: none((*model).togglePause)},
		{keys: []string{"z"}, show: "z", group: groupPanes, help: "one pane over the whole screen, and back", hint: "zoom", rank: 9, on: onPanes, can: func(m *model) string { return m.panes.cannotZoom() }, run: none(func(m *model) { m.panes.zoom = !m.panes.zoom })},
	}
	out = append(out, paneKeys(specs)...)
	return append(out,
		binding{keys: []string{"tab", "l", "right"}, show: "l → tab", group: groupPanes, help: "next pane", on: onPanes, run: none(func(m *model) { m.panes.step(1) })},
		binding{keys: []string{"shift+tab", "h", "left"}, show: "h ← shift-tab", group: groupPanes, help: "previous pane", on: onPanes, run: none(func(m *model) { m.panes.step(-1) })},
		move("j ↓", "down", by(1), "j", "down"),
		move("k ↑", "up", by(-1), "k", "up"),
		move("g", "first row; follows new rows again", by(-bigMove), "g", "home"),
		move("G", "last row", by(bigMove), "G", "end"),
		move("ctrl-d", "half a page down", func(m *model) int { return m.mover().HalfPage() }, "ctrl+d", "pgdown"),
		move("ctrl-u", "half a page up", func(m *model) int { return -m.mover().HalfPage() }, "ctrl+u", "pgup"),
		binding{keys: []string{"y"}, show: "y", group: groupRows, help: "the row as YAML", on: everywhere, can: func(m *model) string { return m.subject().NoValue }, run: none((*model).showYAML)},
		pace("+", "shorten the interval; play faster", true, "+", "="),
		pace("-", "lengthen the interval; play slower", false, "-"),
		wind("[ ]", "10 seconds back and on", "[", "]"),
		wind("{ }", "a minute back and on", "{", "}"),
		wind(", .", "one snapshot back and on, and hold", ",", "."),
		binding{keys: []string{"w"}, show: "w", group: groupScreen, help: "save the screen as text", on: everywhere, can: cannotSave, run: func(m *model, _ string) tea.Cmd { return m.saveScreen() }},
		binding{keys: []string{"M"}, show: "M", group: groupScreen, help: "mouse on and off; off leaves text selection to the terminal", on: everywhere, run: func(m *model, _ string) tea.Cmd { return m.toggleMouse() }},
		binding{keys: []string{"ctrl+l"}, show: "ctrl-l", group: groupScreen, help: "draw the screen again", on: everywhere, run: func(*model, string) tea.Cmd { return tea.ClearScreen }},
		binding{keys: []string{"esc"}, show: "esc", group: groupLeave, help: "back, or clear the filter", hint: "back", rank: 11, on: everywhere, can: (*model).cannotBack, run: none((*model).back)},
		binding{keys: []string{"ctrl+z"}, show: "ctrl-z", group: groupLeave, help: "suspend; fg comes back", on: everywhere, run: func(*model, string) tea.Cmd { return tea.Suspend }},
		binding{keys: []string{"q", "ctrl+c"}, show: "q", group: groupLeave, help: "leave; also ctrl-c", hint: "quit", rank: 2, on: everywhere, run: func(*model, string) tea.Cmd { return tea.Quit }},
	)
}

// paneKeys choose the panes of a table: one line for the numbered ones, one for each that
// covers the others.
func paneKeys(specs []paneSpec) []binding {
	numbers := binding{group: groupPanes, help: "choose a pane", hint: "pane", rank: 10, on: everywhere}
	var covers []binding
	for i, s := range specs {
		choose := func(m *model, _ string) tea.Cmd { m.choose(i); return nil }
		if s.slot == layout.Cover {
			covers = append(covers, binding{keys: []string{s.key}, show: s.key, group: groupPanes, help: s.about, hint: s.name, rank: 12, on: everywhere, run: choose})
			continue
		}
		numbers.keys = append(numbers.keys, s.key)
	}
	numbers.show = "1-" + strconv.Itoa(len(numbers.keys))
	numbers.run = func(m *model, key string) tea.Cmd {
		if i, ok := m.panes.named(key); ok {
			m.choose(i)
		}
		return nil
	}
	return append([]binding{numbers}, covers...)
}
