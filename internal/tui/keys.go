package tui

import (
	"slices"
	"strings"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/draw"
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
	groupOwn    = "This pane"
	groupRows   = "Rows"
	groupWorker = "Workers"
	groupScreen = "Screen"
	groupReplay = "Replay"
	groupLeave  = "Leave"
)

// keyGroups are the groups of the key map, in the order of the help.
func keyGroups() []string {
	return []string{groupMove, groupPanes, groupOwn, groupRows, groupWorker, groupScreen, groupReplay, groupLeave}
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
	if m.page != nil {
		return onDetail
	}
	return onPanes
}

// bindings are the key map with the keys of the focused pane.
func (m *model) bindings() []binding {
	own := m.panes.focused().Keys()
	if len(own) == 0 {
		return m.keys
	}
	all := slices.Clone(m.keys)
	for _, k := range own {
		b := binding{keys: []string{k.Name}, show: k.Name, group: groupOwn, help: k.Help, hint: k.Hint, rank: 6, on: onPanes}
		b.run = func(*model, string) tea.Cmd { k.Run(); return nil }
		if k.Cannot != nil {
			b.can = func(*model) string { return k.Cannot() }
		}
		all = append(all, b)
	}
	return all
}

// press takes one key: what lies over the screen first, then the key map. Pasted text
// reaches prompts only.
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
	if key == "ctrl+c" {
		return tea.Quit
	}
	if _, typed := m.over.top().(*prompt); k.Paste && !typed {
		return nil
	}
	if cmd, ok := m.over.press(k); ok {
		return cmd
	}
	keys := m.bindings()
	for i := range keys {
		b := &keys[i]
		if !slices.Contains(b.keys, key) {
			continue
		}
		if why := b.why(m); why != "" {
			m.say(draw.Warn, b.show+": "+why)
			return nil
		}
		if !m.flash.lasting {
			m.flash = flash{}
		}
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
	all := keyMap(paneTable())
	for _, g := range keyGroups() {
		for _, b := range all {
			if b.group == g {
				out = append(out, KeyHelp{g, b.show, b.help})
			}
		}
	}
	return out
}

// keyNames are the names of keys, in ASCII if nothing else can be drawn.
func keyNames(s string, ascii bool) string {
	if !ascii {
		return s
	}
	return strings.NewReplacer("→", "right", "←", "left", "↓", "down", "↑", "up").Replace(s)
}
