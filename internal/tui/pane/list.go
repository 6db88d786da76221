package pane

import (
	"fmt"
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
	summary func() []draw.Span    // line below the rows; nil: none

	made  []table.Column // by columns, for screens of that width; nil: the snapshot is new
	width int
}

func (l *list) Update() {
	l.rows.Rebuild()
	l.made = nil
}

func (l *list) Size(_, height int) {
	page := height - 1
	if l.summary != nil {
		page--
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
		a.Spans(0, a.H()-1, a.W(), l.summary())
		a = a.Sub(draw.Rect{W: a.W(), H: a.H() - 1})
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

// subject is that of a pane without a row under the cursor.
func (l *list) subject(noWorker string) detail.Subject {
	return detail.Subject{NoValue: noRow, NoWorker: noWorker, NoOpen: noRow}
}
