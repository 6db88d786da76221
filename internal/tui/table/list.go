package table

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Key identifies a row across snapshots, so that the cursor follows the row
// and not its position.
type Key struct {
	Name string
	N    uint64
}

// SortKey is a column rows can be ordered by: a text, or a number that may be
// unknown. Unknown rows come last in both directions.
type SortKey struct {
	ID   string
	Desc bool // the direction it starts with
	Num  func(row int) (float64, bool)
	Text func(row int) string
}

// Source gives a list access to its rows. Its functions read the newest
// snapshot.
type Source struct {
	N    func() int
	Key  func(row int) Key
	Text func(row int) string // what a filter looks at
	Keys []SortKey            // the first is what the list starts with
	// Newest lists keep the cursor on the first row while it stands there.
	Newest bool
	// Soonest names a sort key whose first row is the one that matters: such lists do the same.
	Soonest string
}

// List is the visible state of a pane's rows: which ones, in which order, and the cursor. It
// knows rows as numbers.
type List struct {
	src    Source
	rows   []int // what is shown, in order
	total  int   // rows before the filter
	cursor int
	offset int // first row on the screen
	page   int // rows on the screen
	key    Key // of the row under the cursor
	filter string
	sort   int // position in src.Keys
	desc   bool
}

// NewList returns a list without rows, until [List.Rebuild].
func NewList(src Source) *List {
	l := &List{src: src}
	for i, k := range src.Keys {
		if k.ID == src.Soonest {
			l.sort = i
		}
	}
	return l
}

// Rebuild filters and orders the rows of a new snapshot and moves the cursor to
// where its row went.
func (l *List) Rebuild() {
	l.total = l.src.N()
	l.rows = l.rows[:0]
	keep := Matcher(l.filter)
	for i := range l.total {
		if l.filter == "" || keep(l.src.Text(i)) {
			l.rows = append(l.rows, i)
		}
	}
	if l.sort < len(l.src.Keys) {
		order(l.rows, l.total, l.src.Keys[l.sort], l.desc)
	}
	l.follow()
}

func (l *List) follow() {
	if !l.src.Newest && l.src.Soonest == "" || l.cursor > 0 {
		for i, row := range l.rows {
			if l.src.Key(row) == l.key {
				l.cursor = i
				return
			}
		}
	}
	l.Move(l.cursor)
}

// Selected is the row under the cursor.
func (l *List) Selected() (row int, ok bool) {
	if l.cursor < 0 || l.cursor >= len(l.rows) {
		return 0, false
	}
	return l.rows[l.cursor], true
}

// Len is the number of rows that pass the filter.
func (l *List) Len() int { return len(l.rows) }

// Total is the number of rows before the filter.
func (l *List) Total() int { return l.total }

// Move puts the cursor at a position, kept inside the list.
func (l *List) Move(to int) {
	l.cursor = cells.Clamp(to, 0, max(len(l.rows)-1, 0))
	l.key = Key{}
	if row, ok := l.Selected(); ok {
		l.key = l.src.Key(row)
	}
}

// MoveBy moves the cursor down, or up by a negative number.
func (l *List) MoveBy(n int) { l.Move(l.cursor + n) }

// Point puts the cursor on a line of the screen, if there is a row.
func (l *List) Point(line int) {
	if line >= 0 && line < l.page && l.offset+line < len(l.rows) {
		l.Move(l.offset + line)
	}
}

// HalfPage returns half the height of a page, in rows.
func (l *List) HalfPage() int { return max(l.page/2, 1) }

// Scroll keeps the cursor on a screen of page rows.
func (l *List) Scroll(page int) {
	l.page = max(page, 0)
	page = max(page, 1)
	l.offset = cells.Clamp(l.offset, l.cursor-page+1, l.cursor)
	l.offset = cells.Clamp(l.offset, 0, max(len(l.rows)-page, 0))
}

// Filter returns the text by which rows are filtered; empty shows all.
func (l *List) Filter() string { return l.filter }

// SetFilter shows the rows with every word of f, or the others if f begins with "!".
func (l *List) SetFilter(f string) {
	l.filter = f
	l.Rebuild()
}

// SortKeys are the names of what the rows can be ordered by; none in lists that stay as they come.
func (l *List) SortKeys() []string {
	var ids []string
	for _, k := range l.src.Keys {
		ids = append(ids, k.ID)
	}
	return ids
}

// SortBy orders the rows by one of the sort keys, in that key's own direction.
func (l *List) SortBy(i int) {
	l.sort, l.desc = i, l.src.Keys[i].Desc
	l.Rebuild()
}

// SortNext orders the rows by the next sort key.
func (l *List) SortNext() { l.SortBy((l.sort + 1) % len(l.src.Keys)) }

// Descend chooses the direction of the order.
func (l *List) Descend(desc bool) {
	l.desc = desc
	l.Rebuild()
}

// Reverse turns the order around.
func (l *List) Reverse() { l.Descend(!l.desc) }

// Count says how many rows there are, and how many of them pass the filter.
func (l *List) Count() string {
	if l.filter == "" {
		return cells.Commas(l.total)
	}
	return cells.Commas(len(l.rows)) + " of " + cells.Commas(l.total)
}

// Order says how the rows are ordered.
func (l *List) Order(g *draw.Glyphs) string {
	switch {
	case l.src.Newest && l.cursor == 0:
		return "following"
	case l.src.Newest:
		return "held"
	case l.sort >= len(l.src.Keys):
		return ""
	}
	id, arrow := l.src.Keys[l.sort].ID, g.Up
	if l.desc {
		arrow = g.Down
	} else if id == l.src.Soonest {
		return "soonest first"
	}
	return "sort: " + id + " " + arrow
}

// Place says which rows are on the screen when there are more.
func (l *List) Place() string {
	if len(l.rows) <= l.page || l.page == 0 {
		return ""
	}
	return fmt.Sprintf("%d-%d of %s", l.offset+1, min(l.offset+l.page, len(l.rows)), cells.Commas(len(l.rows)))
}

// Draw draws the column titles and the rows on the screen; old ones, which may be nil, faint.
func (l *List) Draw(a draw.Area, g *draw.Glyphs, cols []Column, old func(row int) bool, focused bool) {
	cursor := -1
	if focused {
		cursor = l.cursor
	}
	grid{cols: cols, rows: l.rows, offset: l.offset, cursor: cursor, old: old}.draw(a, g)
}
