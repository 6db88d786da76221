package tui

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// drawFooter shows the keys of the view, or the text being typed. Keys that
// cannot act now are greyed, and stay.
func (m *model) drawFooter(a draw.Area) {
	if m.typing != nil {
		m.drawPrompt(a)
		return
	}
	gap := 2
	hints := m.hints(m.place())
	for width(hints, gap) > a.W()-1 {
		out := 0
		for i, h := range hints {
			if h.rank > hints[out].rank {
				out = i
			}
		}
		if len(hints) == 0 {
			return
		}
		hints = append(hints[:out], hints[out+1:]...)
	}
	x := 1
	for _, h := range hints {
		key, word := draw.KeyName, draw.Plain
		if h.off {
			key, word = draw.Disabled, draw.Disabled
		}
		x = a.Put(x, 0, h.key, key)
		x = a.Put(x, 0, " "+h.word, word) + gap
	}
}

// hint is one key in the footer.
type hint struct {
	key, word string
	rank      int
	off       bool
}

func (m *model) hints(at where) []hint {
	var out []hint
	if m.ask != nil || m.pop.kind != popNone {
		return nil // they print their own keys
	}
	if at == onDetail {
		out = append(out, hint{key: m.showKeys("j k"), word: "scroll", rank: 5})
	}
	for i := range m.keys {
		b := &m.keys[i]
		if b.hint == "" || b.on&at == 0 {
			continue
		}
		h := hint{key: m.showKeys(b.show), word: b.hint, rank: b.rank, off: b.why(m) != ""}
		if h.off && b.group == groupWorker {
			h.rank += 10 // of drain and resume, the one that can act stays longer
		}
		out = append(out, h)
	}
	return out
}

func width(hints []hint, gap int) int {
	n := 0
	for _, h := range hints {
		n += cells.Width(h.key) + 1 + cells.Width(h.word) + gap
	}
	return n - gap
}

// drawPrompt shows typed text at the left and its keys at the right; the end of
// the text stays visible.
func (m *model) drawPrompt(a draw.Area) {
	line, keys := m.typing.line(m), m.typing.keysLine()
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
