package tui

import (
	tea "github.com/charmbracelet/bubbletea"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// prompt is a line being typed in the footer.
type prompt struct {
	sign     string // before the text
	text     string
	before   string // what esc goes back to
	keys     string // what its own keys do
	caret    string
	changed  func(text string)         // called as the text is typed; nil: nobody listens
	enter    func(text string) tea.Cmd // nil: nothing but closing
	complete func(text string) string  // nil: tab does nothing
}

// promptLimit bounds what can be typed or pasted.
const promptLimit = 200

// filterPrompt has the filter of a list typed. It works as it is typed.
func filterPrompt(rows *table.List, g *draw.Glyphs) *prompt {
	return &prompt{
		sign: "/", text: rows.Filter(), before: rows.Filter(), caret: g.Caret,
		keys: "enter keep   esc undo   ! first inverts", changed: rows.SetFilter,
	}
}

// commandPrompt has a command typed.
func commandPrompt(g *draw.Glyphs, run func(string) tea.Cmd, complete func(string) string) *prompt {
	return &prompt{
		sign: ":", caret: g.Caret,
		keys: "enter run   tab complete   esc cancel", enter: run, complete: complete,
	}
}

func (p *prompt) press(k tea.KeyMsg) reply {
	switch key := k.String(); {
	case k.Type == tea.KeyEsc:
		p.set(p.before)
		return reply{close: true}
	case k.Type == tea.KeyEnter && p.enter != nil:
		return reply{close: true, then: func() tea.Cmd { return p.enter(p.text) }}
	case k.Type == tea.KeyEnter, k.Type == tea.KeyBackspace && p.text == "":
		return reply{close: true}
	case k.Type == tea.KeyBackspace:
		p.set(cells.DropLast(p.text))
	case key == "ctrl+u":
		p.set("")
	case key == "ctrl+w":
		p.set(cells.DropWord(p.text))
	case k.Type == tea.KeyTab && p.complete != nil:
		p.set(p.complete(p.text))
	case k.Type == tea.KeySpace || k.Type == tea.KeyRunes && !k.Alt:
		if len(p.text)+len(string(k.Runes)) <= promptLimit {
			p.set(p.text + cells.Clean(string(k.Runes)))
		}
	}
	return reply{}
}

func (p *prompt) set(text string) {
	p.text = text
	if p.changed != nil {
		p.changed(text)
	}
}

func (p *prompt) wheel(int) {}

func (p *prompt) size(int, int) {}

func (p *prompt) draw(draw.Area) {}

// line is the prompt with its caret.
func (p *prompt) line() (text, keys string) { return p.sign + p.text + p.caret, p.keys }

// drawFooter shows typed text at the left and its keys at the right; the end of
// the text stays visible.
func (p *prompt) drawFooter(a draw.Area) {
	line, keys := p.line()
	room := a.W() - 2
	if cells.Width(line)+cells.Width(keys)+3 <= room {
		a.Put(a.W()-1-cells.Width(keys), 0, keys, draw.Dim)
		room -= cells.Width(keys) + 3
	}
	for cells.Width(line) > room && line != "" {
		_, _, line = cells.Next(line)
	}
	a.Put(1, 0, line, draw.Strong)
}
