package tui

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// detailKind is what covers the panes.
type detailKind int

const (
	detailNone detailKind = iota
	detailWorker
	detailRoute
	detailLease
	detailQueue
	detailNode
)

// detail is a screen about one thing of the cluster. It keeps a name, not a value:
// each snapshot shows it anew.
type detail struct {
	kind   detailKind
	worker string
	route  string // request id
	lease  cluster.InstanceID
	owner  string // of the lease
	node   string // name
	scroll int
}

// section is a titled box of lines on a detail screen.
type section struct {
	title string
	lines [][]draw.Span
}

// ownerDetail is the screen of the worker or node of that name.
func (m *model) ownerDetail(name string) (detail, bool) {
	if w, _ := m.worker(name); w != nil {
		return detail{kind: detailWorker, worker: name}, true
	}
	if _, ok := m.known.nodeAt[name]; ok {
		return detail{kind: detailNode, node: name}, true
	}
	return detail{}, false
}

// further is the screen that enter opens from here, or why there is none.
func (m *model) further() (d detail, why string) {
	name := ""
	switch m.detail.kind {
	case detailNone:
		return m.ofRow()
	case detailLease:
		name = m.detail.owner
	case detailWorker:
		w, _ := m.worker(m.detail.worker)
		if w == nil {
			return d, m.noWorker(m.detail.worker)
		}
		name = w.Node
	default:
		return d, "there is nothing further to inspect here"
	}
	d, ok := m.ownerDetail(name)
	if !ok {
		return d, cells.OrUnknown(name) + " is neither a worker nor a node of the cluster"
	}
	return d, ""
}

// ofRow is the screen of the row under the cursor.
func (m *model) ofRow() (d detail, why string) {
	if m.focus.pane == paneQueue {
		return detail{kind: detailQueue}, ""
	}
	row, ok := m.lists[m.focus.pane].Selected()
	if _, list := m.rowsOf(m.focus.pane); !list {
		return d, "nothing to inspect here: choose a worker (1) or a decision (6)"
	}
	if !ok {
		return d, "no row under the cursor"
	}
	switch m.focus.pane {
	case paneWorkers:
		return detail{kind: detailWorker, worker: m.snap.Workers[row].Name}, ""
	case paneLeases:
		l := &m.snap.Leases[row]
		return detail{kind: detailLease, lease: l.ID, owner: l.Owner}, ""
	case paneNodes:
		return detail{kind: detailNode, node: m.snap.Nodes[row].Name}, ""
	case paneDecisions:
		return detail{kind: detailRoute, route: m.snap.Decisions[row].RequestID}, ""
	}
	name := m.snap.Events[row].Worker
	if w, _ := m.worker(name); w == nil {
		return d, cells.OrUnknown(name) + " is not a worker of the list"
	}
	return detail{kind: detailWorker, worker: name}, ""
}

func (m *model) cannotInspect() string {
	_, why := m.further()
	return why
}

func (m *model) inspect() {
	if d, why := m.further(); why == "" {
		m.detail = d
	}
}

// titled is the header of a screen that is not about a worker.
func (m *model) titled(what, name string) []part {
	return []part{{[]draw.Span{draw.Dim.Text("dynctl top " + m.glyphs.Cursor + " " + what + " "), draw.Strong.Text(cells.ClipMiddle(cells.OrUnknown(name), 40, m.glyphs.More))}, 0}}
}

// parts are the header of a detail screen.
func (d *detail) parts(m *model) []part {
	switch d.kind {
	case detailRoute:
		return m.titled("route", d.route)
	case detailLease:
		return m.titled("lease", d.lease.String())
	case detailQueue:
		return m.titled("prefill", "queue")
	case detailNode:
		return m.titled("node", d.node)
	}
	return m.workerParts()
}

// wideDetail is the width from which sections stand in two columns.
const wideDetail = 96

// columnsOf are the sections of the screen for a width.
func (d *detail) columnsOf(m *model, width int) [][]section {
	var cols [][]section
	switch d.kind {
	case detailWorker:
		cols = m.workerSections()
	case detailRoute:
		return [][]section{m.routeSections()}
	case detailLease:
		return [][]section{m.leaseSections()}
	case detailQueue:
		return [][]section{m.queueSections()}
	case detailNode:
		return [][]section{m.nodeSections()}
	default:
		return nil
	}
	if width < wideDetail {
		var all []section
		for _, c := range cols {
			all = append(all, c...)
		}
		return [][]section{all}
	}
	return cols
}

// height is how many rows the screen would like to have.
func (d *detail) height(m *model) int {
	top := 0
	for _, c := range d.columnsOf(m, m.width) {
		n := 0
		for _, s := range c {
			n += len(s.lines) + 2
		}
		top = max(top, n)
	}
	return top
}

// draw paints all sections on a canvas of their own and shows the part that was
// scrolled to.
func (d *detail) draw(m *model, a draw.Area) {
	cols := d.columnsOf(m, a.W())
	if len(cols) == 0 {
		return
	}
	tall := draw.NewCanvas(a.W(), max(d.height(m), a.H()), m.ascii)
	x, rest := 0, a.W()
	for i, col := range cols {
		w := rest / (len(cols) - i)
		if d.kind == detailWorker && i == 0 && len(cols) == 2 {
			w = rest * 58 / 100 // its lists are wider than its facts
		}
		y := 0
		for _, s := range col {
			h := len(s.lines) + 2
			box := tall.Area(m.glyphs.More).Sub(draw.Rect{X: x, Y: y, W: w, H: h})
			box.Box(m.glyphs, " "+s.title+" ", "", draw.Border)
			in := box.Sub(box.Inner())
			for n, line := range s.lines {
				in.Spans(0, n, in.W(), line)
			}
			y += h
		}
		x, rest = x+w, rest-w
	}
	a.Blit(tall, d.scroll)
}
