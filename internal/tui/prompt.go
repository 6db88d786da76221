package tui

import (
	"github.com/dynctl/dynctl/internal/tui/cells"

	tea "github.com/charmbracelet/bubbletea"
)

// prompt is text being typed in the footer: a filter or a command.
type prompt struct {
	command bool   // else a filter of the focused pane
	text    string // what stands there
	before  string // the filter before, for esc
}

// promptLimit bounds what can be typed or pasted.
const promptLimit = 200

func (m *model) cannotFilter() string {
	if _, ok := m.rowsOf(m.focus.pane); !ok {
		return m.focus.pane.info().title + " has no rows to filter"
	}
	return ""
}

func (m *model) startFilter() {
	f := m.lists[m.focus.pane].Filter
	m.typing = &prompt{text: f, before: f}
}

func (m *model) startCommand() { m.typing = &prompt{command: true} }

// pressPrompt takes a key while text is typed. A filter works as it is typed.
func (m *model) pressPrompt(k tea.KeyMsg) tea.Cmd {
	p := m.typing
	switch key := k.String(); {
	case k.Type == tea.KeyEsc:
		m.typing = nil
		if !p.command {
			m.setFilter(p.before)
		}
		return nil
	case k.Type == tea.KeyEnter:
		m.typing = nil
		if p.command {
			return m.runCommand(p.text)
		}
		return nil
	case k.Type == tea.KeyBackspace:
		if p.text == "" {
			m.typing = nil
			return nil
		}
		p.text = cells.DropLast(p.text)
	case key == "ctrl+u":
		p.text = ""
	case key == "ctrl+w":
		p.text = cells.DropWord(p.text)
	case k.Type == tea.KeyTab && p.command:
		p.text = m.complete(p.text)
	case k.Type == tea.KeySpace || k.Type == tea.KeyRunes && !k.Alt:
		if len(p.text)+len(string(k.Runes)) <= promptLimit {
			p.text += cells.Clean(string(k.Runes))
		}
	default:
		return nil
	}
	if !p.command {
		m.setFilter(p.text)
	}
	return nil
}

func (m *model) setFilter(f string) {
	m.lists[m.focus.pane].Filter = f
	m.rebuild(m.focus.pane)
}

// line is the prompt with its caret. Long text shows its end.
func (p *prompt) line(m *model) string {
	sign := "/"
	if p.command {
		sign = ":"
	}
	return sign + p.text + m.glyphs.Caret
}

// keysLine says what the prompt's own keys do.
func (p *prompt) keysLine() string {
	if p.command {
		return "enter run   tab complete   esc cancel"
	}
	return "enter keep   esc undo   ! first inverts"
}
