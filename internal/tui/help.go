package tui

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

func (m *model) showHelp() {
	m.push(&textBox{title: "keys", lines: m.helpLines, glyphs: m.shown.Glyphs})
}

// helpLines is the key map as text: what works on this screen, with the reason where a key
// cannot act now, then the command line and the words and signs on the screen.
func (m *model) helpLines() [][]draw.Span {
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
			out = append(out, m.keyHelp(b)...)
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
		[]draw.Span{draw.Plain.Text("  14+2 sequences: 14 run, 2 wait   - unknown   ~ remembered, not known")},
	)
}

// keyHelp is one key with what it does and, greyed, why it cannot do so now.
func (m *model) keyHelp(b *binding) [][]draw.Span {
	key, text := draw.KeyName, draw.Plain
	why := b.why(m)
	if why != "" {
		key, text = draw.Disabled, draw.Disabled
	}
	out := [][]draw.Span{{key.Text(cells.PadRight("  "+m.showKeys(b.show), 17)), text.Text(b.help)}}
	if why != "" {
		out = append(out, []draw.Span{draw.Plain.Text(cells.PadRight("", 17)), draw.Dim.Text("now not: " + why)})
	}
	return out
}
