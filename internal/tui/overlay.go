package tui

import (
	"encoding/json"
	"fmt"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// popKind is what lies over the screen.
type popKind int

const (
	popNone popKind = iota
	popHelp
	popYAML
)

// overlay is a scrollable text over the panes. YAML text is taken when it is
// opened, so that it does not change while it is read.
type overlay struct {
	kind   popKind
	title  string
	text   [][]draw.Span
	scroll int
}

const overlayKeys = "j k scroll   esc close"

func (m *model) showHelp() { m.pop = overlay{kind: popHelp, title: "keys"} }

// pressOverlay takes the keys of an overlay; others reach the key map.
func (m *model) pressOverlay(key string) bool {
	switch key {
	case "esc", "q", "enter", "?", "y":
		m.pop = overlay{}
	case "j", "down":
		m.pop.scroll++
	case "k", "up":
		m.pop.scroll--
	case "ctrl+d", "pgdown", " ":
		m.pop.scroll += max(m.popRows()/2, 1)
	case "ctrl+u", "pgup":
		m.pop.scroll -= max(m.popRows()/2, 1)
	case "g", "home":
		m.pop.scroll = 0
	case "G", "end":
		m.pop.scroll = bigMove
	case "ctrl+z", "ctrl+l":
		return false
	}
	return true
}

func (o *overlay) lines(m *model) [][]draw.Span {
	if o.kind == popHelp {
		return m.helpLines()
	}
	return o.text
}

// popRows is how many lines of an overlay are visible.
func (m *model) popRows() int { return max(m.bodyHeight()-3, 1) }

func (m *model) drawOverlay(a draw.Area) {
	lines := m.pop.lines(m)
	w := 46
	for _, l := range lines {
		w = max(w, draw.Width(l)+4)
	}
	w = min(w, a.W())
	h := min(len(lines)+3, a.H())
	box := a.Popup(w, h)
	note := ""
	rows := h - 3
	if len(lines) > rows {
		note = fmt.Sprintf(" %d-%d of %d ", m.pop.scroll+1, min(m.pop.scroll+rows, len(lines)), len(lines))
	}
	box.Box(m.glyphs, " "+m.pop.title+" ", note, draw.Focused)
	in := box.Sub(box.Inner())
	for y := range rows {
		if i := m.pop.scroll + y; i < len(lines) {
			in.Spans(0, y, in.W(), lines[i])
		}
	}
	in.Put(0, in.H()-1, overlayKeys, draw.KeyName)
}

// helpLines is the key map as text: what works on this screen, with the reason
// where a key cannot act now.
func (m *model) helpLines() [][]draw.Span {
	at := m.place()
	var out [][]draw.Span
	for _, g := range keyGroups() {
		var lines [][]draw.Span
		for i := range m.keys {
			b := &m.keys[i]
			if b.group != g || b.on&at == 0 {
				continue
			}
			key, text := draw.KeyName, draw.Plain
			why := b.why(m)
			if why != "" {
				key, text = draw.Disabled, draw.Disabled
			}
			line := []draw.Span{key.Text(cells.PadRight("  "+m.showKeys(b.show), 17)), text.Text(b.help)}
			lines = append(lines, line)
			if why != "" {
				lines = append(lines, []draw.Span{draw.Plain.Text(cells.PadRight("", 17)), draw.Dim.Text("now not: " + why)})
			}
		}
		if len(lines) > 0 {
			out = append(out, []draw.Span{draw.Strong.Text(g)})
			out = append(out, lines...)
		}
	}
	out = append(out, []draw.Span{draw.Strong.Text("Command line")})
	for _, c := range m.words {
		name := ":" + c.name
		if c.args != "" {
			name += " " + c.args
		}
		out = append(out, []draw.Span{draw.KeyName.Text(cells.PadRight("  "+name, 30) + " "), draw.Plain.Text(c.help)})
	}
	out = append(out, []draw.Span{draw.Strong.Text("Signs")})
	g := m.glyphs
	out = append(out,
		[]draw.Span{draw.Plain.Text(fmt.Sprintf("  %s ready  %s starting  %s draining  %s drained  %s degraded  %s lost or failed", g.Ready, g.Starting, g.Draining, g.Drained, g.Degraded, g.Lost))},
		[]draw.Span{draw.Plain.Text("  14+2 sequences: 14 run, 2 wait   - unknown   ~ remembered, not known")},
	)
	return out
}

func (m *model) cannotYAML() string {
	if _, _, why := m.yamlTarget(); why != "" {
		return why
	}
	return ""
}

// yamlTarget is the value behind the row or the screen.
func (m *model) yamlTarget() (title string, value any, why string) {
	switch m.detail.kind {
	case detailWorker:
		if w, _ := m.worker(m.detail.worker); w != nil {
			return w.Name, w, ""
		}
		return "", nil, m.noWorker(m.detail.worker)
	case detailRoute:
		if ds := m.routeDecisions(); len(ds) > 0 {
			return ds[0].RequestID, ds, ""
		}
		return "", nil, "the decision is no longer in the list"
	case detailLease:
		if i, ok := m.known.leaseAt[m.detail.lease]; ok {
			return "lease " + m.detail.lease.String(), m.snap.Leases[i], ""
		}
		return "", nil, "the lease has ended"
	case detailQueue:
		return "queue", m.snap.Queue, ""
	case detailNode:
		if i, ok := m.known.nodeAt[m.detail.node]; ok {
			return m.detail.node, m.snap.Nodes[i], ""
		}
		return "", nil, "the node has left the cluster"
	}
	p := m.focus.pane
	switch p {
	case paneQueue:
		return "queue", m.snap.Queue, ""
	case paneLatency:
		return "latency", m.snap.Latency, ""
	}
	row, ok := m.lists[p].Selected()
	if !ok {
		return "", nil, "no row under the cursor"
	}
	switch p {
	case paneWorkers:
		return m.snap.Workers[row].Name, m.snap.Workers[row], ""
	case paneLeases:
		return "lease " + m.snap.Leases[row].ID.String(), m.snap.Leases[row], ""
	case paneEvents:
		return "KV event", m.snap.Events[row], ""
	case paneNodes:
		return m.snap.Nodes[row].Name, m.snap.Nodes[row], ""
	default:
		return m.snap.Decisions[row].RequestID, m.snap.Decisions[row], ""
	}
}

func (m *model) showYAML() {
	title, value, _ := m.yamlTarget()
	raw, err := json.Marshal(value)
	if err != nil {
		m.say(draw.Bad, "yaml: "+err.Error())
		return
	}
	m.pop = overlay{kind: popYAML, title: title, text: yamlLines(raw)}
}
