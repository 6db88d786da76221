package tui

import (
	"slices"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// drawFooter shows the keys of the view, or the text being typed. Keys that
// cannot act now are greyed, and stay.
func (m *model) drawFooter(a draw.Area) {
	if o := m.top(); o != nil {
		if p, ok := o.(*prompt); ok {
			p.drawFooter(a)
		}
		return // dialogs and texts print their own keys
	}
	const gap = 2
	hints := m.hints()
	for len(hints) > 0 && width(hints, gap) > a.W()-1 {
		out := 0
		for i, h := range hints {
			if h.rank > hints[out].rank {
				out = i
			}
		}
		hints = slices.Delete(hints, out, out+1)
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

func (m *model) hints() []hint {
	var out []hint
	if m.page != nil {
		out = append(out, hint{key: m.showKeys("j k"), word: "scroll", rank: 5})
	}
	for _, b := range m.bindings() {
		if b.hint == "" || b.on&m.place() == 0 {
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
