package pane

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// list is the part of the panes with rows.
type list struct {
	m       *moment.Moment
	rows    *table.List
	columns func() []table.Column // for the newest snapshot and the size of the screen
	old     func(row int) bool    // rows drawn faint; nil: none
	none    string                // what the pane says without rows
	counts  bool                  // the border says how many rows there are
	invites bool                  // and that there is no filter
	// summary returns the lines below the rows for a room of that size; nil: none.
	summary func(width, height int) [][]draw.Span

	made  []table.Column // by columns, for screens of that width; nil: the snapshot is new
	width int
}

func (l *list) Update() {
	l.rows.Rebuild()
	l.made = nil
}

func (l *list) Size(width, height int) {
	page := height - 1
	if l.summary != nil {
		page -= len(l.summary(width, height))
	}
	l.rows.Scroll(page)
	if l.made == nil || l.width != l.m.Width { // wide screens have more columns
		l.made, l.width = l.columns(), l.m.Width
	}
}

func (l *list) Rows() *table.List { return l.rows }

func (l *list) Keys() []Key { return nil }

// Help explains the columns.
func (l *list) Help() []Term {
	var out []Term
	for _, c := range l.made {
		if c.Help != "" {
			out = append(out, Term{c.Title, c.Help})
		}
	}
	return out
}

// Heading is the number of rows, their order and their filter.
func (l *list) Heading() (title, note, below string) {
	filter := l.rows.Filter()
	if l.counts || filter != "" {
		title = " (" + l.rows.Count() + ")"
	}
	var notes []string
	if order := l.rows.Order(l.m.Glyphs); order != "" {
		notes = append(notes, order)
	}
	switch {
	case filter != "":
		notes = append(notes, "filter: "+cells.Clip(filter, 20, l.m.Glyphs.More))
	case l.invites:
		notes = append(notes, "filter: none")
	}
	return title, strings.Join(notes, "   "), l.rows.Place()
}

func (l *list) Draw(a draw.Area, focused bool) {
	if l.summary != nil {
		lines := l.summary(a.W(), a.H())
		for i, line := range lines {
			a.Spans(0, a.H()-len(lines)+i, a.W(), line)
		}
		a = a.Sub(draw.Rect{W: a.W(), H: a.H() - len(lines)})
	}
	if l.rows.Len() > 0 {
		l.rows.Draw(a, l.m.Glyphs, l.made, l.old, focused)
		return
	}
	none := l.none
	switch {
	case !l.m.Have:
		none = l.m.Waiting
	case l.rows.Filter() != "" && l.rows.Total() > 0:
		none = fmt.Sprintf("nothing of %s matches %q: esc clears the filter", cells.Commas(l.rows.Total()), l.rows.Filter())
	}
	a.Spans(0, min(1, max(a.H()-1, 0)), a.W(), []draw.Span{draw.Dim.Text(none)})
}

// widest is the width of the widest of n texts.
func widest(n int, text func(row int) string) (w int) {
	for i := range n {
		w = max(w, cells.Width(text(i)))
	}
	return w
}

// figure is a figure with its name, for a summary.
func figure(leave int, name, value string) draw.Part {
	return draw.Part{Leave: leave, Spans: []draw.Span{draw.Dim.Text(name + " "), draw.Plain.Text(value)}}
}

// figures are a line of a summary: those that have room.
func figures(width int, parts ...draw.Part) (line []draw.Span) {
	gap := 3
	if all := draw.FitParts(slices.Clone(parts), width+gap, 0, gap); len(all) < len(parts) {
		gap = 2
	}
	for i, o := range draw.FitParts(parts, width+gap, 0, gap) {
		if i > 0 {
			line = append(line, draw.Dim.Text(strings.Repeat(" ", gap)))
		}
		line = append(line, o.Spans...)
	}
	return line
}

// subject is that of a pane without a row under the cursor.
func (l *list) subject(noWorker string) detail.Subject {
	return detail.Subject{NoValue: noRow, NoWorker: noWorker, NoOpen: noRow}
}
