package tui

import (
	"slices"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// hint is one key in the footer.
type hint struct {
	key, word string
	rank      int
	off       bool // it cannot act now
}

// hintGap parts two hints.
const hintGap = 2

// drawHints shows the keys of the view that have room. Keys that cannot act now are greyed,
// and stay.
func drawHints(a draw.Area, hints []hint) {
	for len(hints) > 0 && hintsWidth(hints) > a.W()-1 {
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
		x = a.Put(x, 0, " "+h.word, word) + hintGap
	}
}

func hintsWidth(hints []hint) int {
	n := -hintGap
	for _, h := range hints {
		n += cells.Width(h.key) + 1 + cells.Width(h.word) + hintGap
	}
	return n
}

// hints are the keys of the view, in the order of the key map.
func (m *model) hints() []hint {
	var out []hint
	if m.page != nil {
		out = append(out, hint{key: keyNames("j k", m.shown.ASCII), word: "scroll", rank: 5})
	}
	for _, b := range m.bindings() {
		if b.hint == "" || b.on&m.place() == 0 {
			continue
		}
		h := hint{key: keyNames(b.show, m.shown.ASCII), word: b.hint, rank: b.rank, off: b.why(m) != ""}
		if h.off && b.group == groupWorker {
			h.rank += 10 // of drain and resume, the one that can act stays longer
		}
		out = append(out, h)
	}
	return out
}
