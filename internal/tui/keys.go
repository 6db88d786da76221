package tui

import (
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/draw"

	tea "github.com/charmbracelet/bubbletea"
)

// where says on which screens a key belongs.
type where uint8

const (
	onPanes where = 1 << iota
	onDetail
	everywhere = onPanes | onDetail
)

// binding is one line of the key map. Help, the footer and the documentation are
// made from it.
type binding struct {
	keys  []string // as Bubble Tea spells them
	show  string   // as people read them
	group string
	help  string
	hint  string // word in the footer; empty keeps it out
	rank  int    // the highest leaves the footer first
	on    where
	can   func(m *model) string // why it cannot act now; empty if it can; nil: always
	run   func(m *model, key string) tea.Cmd
}

// The groups of the key map.
const (
	groupMove   = "Move"
	groupPanes  = "Panes"
	groupRows   = "Rows"
	groupWorker = "Workers"
	groupScreen = "Screen"
	groupReplay = "Replay"
	groupLeave  = "Leave"
)

// keyGroups are the groups of the key map, in the order of the help.
func keyGroups() []string {
	return []string{groupMove, groupPanes, groupRows, groupWorker, groupScreen, groupReplay, groupLeave}
}

// keyMap is every key of the screen, in the order of the footer.
func keyMap() []binding {
	none := func(f func(*model)) func(*model, string) tea.Cmd {
		return func(m *model, _ string) tea.Cmd { f(m); return nil }
	}
	return []binding{
		{keys: []string{"?"}, show: "?", group: groupScreen, help: "keys of this view", hint: "help", rank: 1, on: everywhere, run: none((*model).showHelp)},
		{keys: []string{"/"}, show: "/", group: groupRows, help: "filter the focused pane; a leading ! shows the other rows", hint: "filter", rank: 6, on: onPanes, can: (*model).cannotFilter, run: none((*model).startFilter)},
		{keys: []string{":"}, show: ":", group: groupScreen, help: "command line, with the commands below", hint: "command", rank: 7, on: everywhere, run: none((*model).startCommand)},
		{keys: []string{"enter"}, show: "enter", group: groupRows, help: "inspect what the row is about; the queue", hint: "inspect", rank: 4, on: everywhere, can: (*model).cannotInspect, run: none((*model).inspect)},
		{keys: []string{"d"}, show: "d", group: groupWorker, help: "drain the worker, after a question", hint: "drain", rank: 3, on: everywhere, can: (*model).cannotDrain, run: none((*model).askDrain)},
		{keys: []string{"r"}, show: "r", group: groupWorker, help: "resume a drained worker, after a question", hint: "resume", rank: 4, on: everywhere, can: (*model).cannotResume, run: none((*model).askResume)},
		{keys: []string{"s"}, show: "s", group: groupRows, help: "sort by the next column", hint: "sort", rank: 8, on: onPanes, can: (*model).cannotSort, run: none((*model).sortNext)},
		{keys: []string{"S"}, show: "S", group: groupRows, help: "reverse the order", on: onPanes, can: (*model).cannotSort, run: none((*model).sortReverse)},
		{keys: []string{"p", " "}, show: "p", group: groupScreen, help: "freeze the screen, or hold a replay, and let it go on", hint: "pause", rank: 5, on: everywhere, run: none((*model).togglePause)},
		{keys: []string{"z"}, show: "z", group: groupPanes, help: "one pane over the whole screen, and back", hint: "zoom", rank: 9, on: onPanes, can: (*model).cannotZoom, run: none((*model).toggleZoom)},
		{keys: []string{"1", "2", "3", "4", "5", "6"}, show: "1-6", group: groupPanes, help: "choose a pane", hint: "pane", rank: 10, on: everywhere, run: (*model).choosePane},
		{keys: []string{"n"}, show: "n", group: groupPanes, help: "nodes, with their devices", hint: "nodes", rank: 12, on: everywhere, run: none(func(m *model) { m.detail = detail{}; m.setFocus(paneNodes) })},
		{keys: []string{"tab", "l", "right"}, show: "l → tab", group: groupPanes, help: "next pane", on: onPanes, run: none(func(m *model) { m.stepPane(1) })},
		{keys: []string{"shift+tab", "h", "left"}, show: "h ← shift-tab", group: groupPanes, help: "previous pane", on: onPanes, run: none(func(m *model) { m.stepPane(-1) })},
		{keys: []string{"j", "down"}, show: "j ↓", group: groupMove, help: "down", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(1) })},
		{keys: []string{"k", "up"}, show: "k ↑", group: groupMove, help: "up", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(-1) })},
		{keys: []string{"g", "home"}, show: "g", group: groupMove, help: "first row; follows new rows again", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(-bigMove) })},
		{keys: []string{"G", "end"}, show: "G", group: groupMove, help: "last row", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(bigMove) })},
		{keys: []string{"ctrl+d", "pgdown"}, show: "ctrl-d", group: groupMove, help: "half a page down", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(m.halfPage()) })},
		{keys: []string{"ctrl+u", "pgup"}, show: "ctrl-u", group: groupMove, help: "half a page up", on: everywhere, can: (*model).cannotMove, run: none(func(m *model) { m.moveBy(-m.halfPage()) })},
		{keys: []string{"y"}, show: "y", group: groupRows, help: "the row as YAML", on: everywhere, can: (*model).cannotYAML, run: none((*model).showYAML)},
		{keys: []string{"+", "="}, show: "+", group: groupScreen, help: "look more often; play faster", on: everywhere, can: (*model).cannotFaster, run: func(m *model, _ string) tea.Cmd { return m.stepInterval(-1) }},
		{keys: []string{"-"}, show: "-", group: groupScreen, help: "look less often; play slower", on: everywhere, can: (*model).cannotSlower, run: func(m *model, _ string) tea.Cmd { return m.stepInterval(1) }},
		{keys: []string{"[", "]"}, show: "[ ]", group: groupReplay, help: "10 seconds back and on", on: everywhere, can: (*model).cannotWind, run: (*model).wind},
		{keys: []string{"{", "}"}, show: "{ }", group: groupReplay, help: "a minute back and on", on: everywhere, can: (*model).cannotWind, run: (*model).wind},
		{keys: []string{",", "."}, show: ", .", group: groupReplay, help: "one snapshot back and on, and hold", on: everywhere, can: (*model).cannotWind, run: (*model).wind},
		{keys: []string{"w"}, show: "w", group: groupScreen, help: "save the screen as text", on: everywhere, can: (*model).cannotSave, run: func(m *model, _ string) tea.Cmd { return m.saveScreen() }},
		{keys: []string{"M"}, show: "M", group: groupScreen, help: "mouse on and off; off leaves text selection to the terminal", on: everywhere, run: func(m *model, _ string) tea.Cmd { return m.toggleMouse() }},
		{keys: []string{"ctrl+l"}, show: "ctrl-l", group: groupScreen, help: "draw the screen again", on: everywhere, run: func(*model, string) tea.Cmd { return tea.ClearScreen }},
		{keys: []string{"esc"}, show: "esc", group: groupLeave, help: "back, or clear the filter", hint: "back", rank: 11, on: everywhere, can: (*model).cannotBack, run: none((*model).back)},
		{keys: []string{"ctrl+z"}, show: "ctrl-z", group: groupLeave, help: "suspend; fg comes back", on: everywhere, run: func(*model, string) tea.Cmd { return tea.Suspend }},
		{keys: []string{"q", "ctrl+c"}, show: "q", group: groupLeave, help: "leave; also ctrl-c", hint: "quit", rank: 2, on: everywhere, run: func(*model, string) tea.Cmd { return tea.Quit }},
	}
}

// why says why the key cannot act now; empty when it can.
func (b *binding) why(m *model) string {
	if m.place()&b.on == 0 {
		return "esc first: " + b.help + " belongs to the panes"
	}
	if b.can == nil {
		return ""
	}
	return b.can(m)
}

// place is the screen that keys belong to.
func (m *model) place() where {
	if m.detail.kind != detailNone {
		return onDetail
	}
	return onPanes
}

// press takes one key: dialogs first, then typed text, then what covers the
// screen, then the key map. Pasted text reaches prompts only.
func (m *model) press(k tea.KeyMsg) tea.Cmd {
	// Keys typed faster than they are read arrive as one message.
	if k.Type == tea.KeyRunes && len(k.Runes) > 1 && !k.Paste {
		var cmds []tea.Cmd
		for _, r := range k.Runes {
			one := tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune{r}, Alt: k.Alt}
			if cmd := m.press(one); cmd != nil {
				cmds = append(cmds, cmd)
			}
		}
		return tea.Sequence(cmds...)
	}
	key := k.String()
	switch {
	case key == "ctrl+c":
		return tea.Quit
	case k.Paste && m.typing == nil:
		return nil
	case m.ask != nil:
		return m.pressDialog(key)
	case m.typing != nil:
		return m.pressPrompt(k)
	case m.pop.kind != popNone && m.pressOverlay(key):
		return nil
	}
	for i := range m.keys {
		b := &m.keys[i]
		if !slices.Contains(b.keys, key) {
			continue
		}
		if why := b.why(m); why != "" {
			m.say(draw.Warn, b.show+": "+why)
			return nil
		}
		m.flash = flash{}
		return b.run(m, key)
	}
	return nil
}

// KeyHelp is one line of the key map, for documentation made from it.
type KeyHelp struct {
	Group string // Move, Panes, Rows, Workers, Screen, Replay or Leave
	Keys  string // as people read them
	Help  string
}

// Keys lists the key map in the order of the help.
func Keys() []KeyHelp {
	var out []KeyHelp
	all := keyMap()
	for _, g := range keyGroups() {
		for _, b := range all {
			if b.group == g {
				out = append(out, KeyHelp{g, b.show, b.help})
			}
		}
	}
	return out
}

// showKeys are the names of keys in the glyphs of the screen.
func (m *model) showKeys(s string) string {
	if !m.ascii {
		return s
	}
	return strings.NewReplacer("→", "right", "←", "left", "↓", "down", "↑", "up").Replace(s)
}
