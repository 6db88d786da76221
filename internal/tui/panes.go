package tui

import (
	"github.com/dynctl/dynctl/internal/tui/layout"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/pane"
	"github.com/dynctl/dynctl/internal/tui/table"
)

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

// rows returns the rows of the focused pane; nil if it has none.
func (p *panes) rows() *table.List { return p.focused().Rows() }

func (p *panes) cannotSort() string {
	switch l := p.rows(); {
	case l == nil:
		return p.focused().title + " has no rows to sort"
	case len(l.SortKeys()) == 0:
		return p.focused().title + " stay newest first"
	}
	return ""
}

func (p *panes) cannotFilter() string {
	if p.rows() == nil {
		return p.focused().title + " has no rows to filter"
	}
	return ""
}

func (p *panes) cannotZoom() string {
	if o := p.focused(); o.slot == layout.Cover {
		return "the " + o.title + " cover the screen already"
	}
	return ""
}

func (p *panes) filtered() bool {
	l := p.rows()
	return l != nil && l.Filter() != ""
}

// narrowed reports whether [panes.back] has something to undo.
func (p *panes) narrowed() bool {
	return p.filtered() || p.zoom || p.focused().slot == layout.Cover
}

// back undoes the last thing that narrowed the view.
func (p *panes) back() {
	switch {
	case p.filtered():
		p.rows().SetFilter("")
	case p.focused().slot == layout.Cover:
		p.choose(p.before)
	default:
		p.zoom = false
	}
}
