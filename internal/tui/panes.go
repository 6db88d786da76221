package tui

import (
	"strconv"

	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/pane"
)

// paneSpec is a pane in the table of panes.
type paneSpec struct {
	slot  layout.Slot // panes in layout.Cover cover the others
	key   string      // chooses the pane
	name  string      // for --view and the command line
	title string
	about string // what a pane that covers the others is, for the help
	open  func(m *moment.Moment) pane.Pane
}

// paneTable is every pane, in the order in which tab goes through them. To add one, write
// its file in package pane and its line here.
func paneTable() []paneSpec {
	return []paneSpec{
		{layout.Top, "1", "workers", "workers", "", pane.Workers},
		{layout.Left, "2", "leases", "leases", "", pane.Leases},
		{layout.Middle, "3", "queue", "queue depth", "", pane.Queue},
		{layout.Right, "4", "latency", "latency", "", pane.Latency},
		{layout.BottomLeft, "5", "events", "KV events", "", pane.Events},
		{layout.BottomRight, "6", "router", "router decisions", "", pane.Decisions},
		{layout.Cover, "n", "nodes", "nodes", "nodes, with their devices", pane.Nodes},
	}
}

// Views lists the values of [Options.View], in the order of their keys.
func Views() []string { return paneNames(paneTable()) }

func paneNames(specs []paneSpec) []string {
	var names []string
	for _, s := range specs {
		names = append(names, s.name)
	}
	return names
}

func paneNamed(specs []paneSpec, name string) (int, bool) {
	for i, s := range specs {
		if name == s.name || name == strconv.Itoa(i+1) {
			return i, true
		}
	}
	return 0, false
}

// placed is a pane on the screen.
type placed struct {
	paneSpec
	pane.Pane
}

// panes are the panes of the screen and which of them has the focus.
type panes struct {
	specs  []paneSpec
	all    []placed
	at     int // has the focus
	lower  int // stays beside the first where two have room
	before int // where esc goes back to from a pane that covers the others
	zoom   bool
}

func newPanes(m *moment.Moment, specs []paneSpec) panes {
	p := panes{specs: specs, lower: 1}
	for _, s := range specs {
		p.all = append(p.all, placed{s, s.open(m)})
	}
	return p
}

// focused is the pane that keys go to.
func (p *panes) focused() *placed { return &p.all[p.at] }

// named finds a pane by its name or number.
func (p *panes) named(name string) (int, bool) { return paneNamed(p.specs, name) }

// choose moves the focus.
func (p *panes) choose(i int) {
	switch {
	case p.all[i].slot == layout.Cover:
		if p.focused().slot != layout.Cover {
			p.before = p.at
		}
	case p.all[i].slot != layout.Top:
		p.lower = i
	}
	p.at = i
}

// step moves the focus to a pane beside; panes that cover the others are left.
func (p *panes) step(n int) {
	if p.focused().slot == layout.Cover {
		p.at = p.before
	}
	for i := p.at + n; ; i += n {
		i = (i + len(p.all)) % len(p.all)
		if p.all[i].slot != layout.Cover {
			p.choose(i)
			return
		}
	}
}

// arrange says where everything stands.
func (p *panes) arrange(width, height int) layout.Layout {
	return layout.Arrange(width, height, p.zoom, layout.Focus{Slot: p.focused().slot, Lower: p.all[p.lower].slot})
}

// shown calls f for each pane on the screen.
func (p *panes) shown(l layout.Layout, f func(i int, o *placed)) {
	for i := range p.all {
		if o := &p.all[i]; l.Shown(o.slot) && (o.slot != layout.Cover || i == p.at) {
			f(i, o)
		}
	}
}
