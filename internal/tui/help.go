package tui

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

func (m *model) showHelp() {
	lines := func() [][]draw.Span { return helpLines(m) }
	m.over.push(&textBox{title: "keys", lines: lines, glyphs: m.shown.Glyphs})
}

// helpLines is the key map as text: what works on this screen, with the reason where a key
// cannot act now, then the command line and the words and signs on the screen.
func helpLines(m *model) [][]draw.Span {
	var out [][]draw.Span
	head := func(title string) { out = append(out, []draw.Span{draw.Strong.Text(title)}) }
	row := func(width int, name, text string) {
		out = append(out, []draw.Span{draw.KeyName.Text(cells.PadRight("  "+name, width) + " "), draw.Plain.Text(text)})
	}
	keys := m.bindings()
	for _, g := range keyGroups() {
		first := true
		for i := range keys {
			b := &keys[i]
			if b.group != g || b.on&m.place() == 0 {
				continue
			}
			if first {
				head(g)
				first = false
			}
			out = append(out, keyHelp(b.help, keyNames(b.show, m.shown.ASCII), b.why(m))...)
		}
	}
	head("Command line")
	for _, c := range m.words {
		name := ":" + c.name
		if c.args != "" {
			name += " " + c.args
		}
		row(30, name, c.help)
	}
	if terms := m.panes.focused().Help(); len(terms) > 0 && m.page == nil {
		head("Columns")
		for _, t := range terms {
			row(16, t.Word, t.Meaning)
		}
	}
	head("Signs")
	g := m.shown.Glyphs
	return append(out,
		[]draw.Span{draw.Plain.Text(fmt.Sprintf("  %s ready  %s starting  %s draining  %s drained  %s degraded  %s lost or failed", g.Ready, g.Starting, g.Draining, g.Drained, g.Degraded, g.Lost))},
		[]draw.Span{draw.Plain.Text("  14+2 sequences: 14 run, 2 wait; of encode workers images   - unknown   ~ remembered, not known")},
	)
}

// keyHelp is one key with what it does and, greyed, why it cannot do so now.
func keyHelp(help, show, why string) [][]draw.Span {
	const column = 17
	name := cells.PadRight("  "+show, column)
	if why == "" {
		return [][]draw.Span{{draw.KeyName.Text(name), draw.Plain.Text(help)}}
	}
	return [][]draw.Span{
		{draw.Disabled.Text(name), draw.Disabled.Text(help)},
		{draw.Plain.Text(cells.PadRight("", column)), draw.Dim.Text("not now: " + why)},
	}
}
