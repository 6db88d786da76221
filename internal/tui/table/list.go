package table

import (
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Key identifies a row across snapshots, so that the cursor follows the row
// and not its position.
type Key struct {
	Name string
	N    uint64
}

// List is the state of a pane with rows: what is shown, in which order, and
// where the cursor is. It knows rows as indices into the snapshot.
type List struct {
	Rows   []int // what is shown, in order
	Total  int   // rows before the filter
	Cursor int
	Offset int // first row on the screen
	Key    Key
	Filter string
	Sort   int // position in the pane's sortKeys
	Desc   bool
}

// SortKey is a column rows can be ordered by: a text, or a number that may be
// unknown. Unknown rows come last in both directions.
type SortKey struct {
	Id   string
	Desc bool // the direction it starts with
	Num  func(row int) (float64, bool)
	Text func(row int) string
}

// Source is what a list needs to know of its pane.
type Source struct {
	N    int
	Key  func(row int) Key
	Text func(row int) string // what a filter looks at
	Keys []SortKey
	// newest panes keep the cursor on the first row while it stands there.
	Newest bool
	// soonest panes do the same: their first row is the one that matters.
	Soonest bool
}

// Rebuild filters and orders the rows of a new snapshot and moves the cursor to
// where its row went.
func (l *List) Rebuild(src Source) {
	l.Total = src.N
	l.Rows = l.Rows[:0]
	keep := matcher(l.Filter)
	for i := range src.N {
		if l.Filter == "" || keep(src.Text(i)) {
			l.Rows = append(l.Rows, i)
		}
	}
	if l.Sort < len(src.Keys) {
		order(l.Rows, src.N, src.Keys[l.Sort], l.Desc)
	}
	l.follow(src)
}

func (l *List) follow(src Source) {
	if !src.Newest && !src.Soonest || l.Cursor > 0 {
		for i, row := range l.Rows {
			if src.Key(row) == l.Key {
				l.Cursor = i
				return
			}
		}
	}
	l.Cursor = cells.Clamp(l.Cursor, 0, max(len(l.Rows)-1, 0))
	l.remember(src)
}

// remember notes which row the cursor is on.
func (l *List) remember(src Source) {
	l.Key = Key{}
	if row, ok := l.Selected(); ok {
		l.Key = src.Key(row)
	}
}

// Selected is the row under the cursor.
func (l *List) Selected() (row int, ok bool) {
	if l.Cursor < 0 || l.Cursor >= len(l.Rows) {
		return 0, false
	}
	return l.Rows[l.Cursor], true
}

// Move puts the cursor at a position, kept inside the list.
func (l *List) Move(to int, src Source) {
	l.Cursor = cells.Clamp(to, 0, max(len(l.Rows)-1, 0))
	l.remember(src)
}

// Scroll keeps the cursor on a screen of page rows.
func (l *List) Scroll(page int) {
	page = max(page, 1)
	l.Offset = cells.Clamp(l.Offset, l.Cursor-page+1, l.Cursor)
	l.Offset = cells.Clamp(l.Offset, 0, max(len(l.Rows)-page, 0))
}

// order sorts rows stably: equal rows stay in the order of the snapshot.
func order(rows []int, n int, k SortKey, desc bool) {
	type value struct {
		num   float64
		text  string
		known bool
	}
	values := make([]value, n)
	for _, row := range rows {
		v := value{known: true}
		if k.Num != nil {
			v.num, v.known = k.Num(row)
			v.known = v.known && cells.Finite(v.num)
		} else {
			v.text = k.Text(row)
			v.known = v.text != ""
		}
		values[row] = v
	}
	slices.SortStableFunc(rows, func(a, b int) int {
		x, y := values[a], values[b]
		switch {
		case !x.known && !y.known:
			return 0
		case !x.known:
			return 1
		case !y.known:
			return -1
		}
		c := strings.Compare(x.text, y.text)
		if x.num < y.num {
			c = -1
		} else if x.num > y.num {
			c = 1
		}
		if desc {
			return -c
		}
		return c
	})
}

// matcher returns the test of a filter: every word must occur, in any case; a
// leading "!" shows the other rows instead.
func matcher(filter string) func(string) bool {
	rest, invert := strings.CutPrefix(filter, "!")
	words := strings.Fields(strings.ToLower(rest))
	if len(words) == 0 {
		return func(string) bool { return true }
	}
	return func(text string) bool {
		text = strings.ToLower(text)
		for _, w := range words {
			if !strings.Contains(text, w) {
				return invert
			}
		}
		return !invert
	}
}
