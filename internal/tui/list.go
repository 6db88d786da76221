package tui

import (
	"slices"
	"strings"
)

// rowKey identifies a row across snapshots, so that the cursor follows the row
// and not its position.
type rowKey struct {
	name string
	n    uint64
}

// list is the state of a pane with rows: what is shown, in which order, and
// where the cursor is. It knows rows as indices into the snapshot.
type list struct {
	rows   []int // what is shown, in order
	total  int   // rows before the filter
	cursor int
	offset int // first row on the screen
	key    rowKey
	filter string
	sort   int // position in the pane's sortKeys
	desc   bool
}

// sortKey is a column rows can be ordered by: a text, or a number that may be
// unknown. Unknown rows come last in both directions.
type sortKey struct {
	id   string
	desc bool // the direction it starts with
	num  func(row int) (float64, bool)
	text func(row int) string
}

// rowSource is what a list needs to know of its pane.
type rowSource struct {
	n    int
	key  func(row int) rowKey
	text func(row int) string // what a filter looks at
	keys []sortKey
	// newest panes keep the cursor on the first row while it stands there.
	newest bool
	// soonest panes do the same: their first row is the one that matters.
	soonest bool
}

// rebuild filters and orders the rows of a new snapshot and moves the cursor to
// where its row went.
func (l *list) rebuild(src rowSource) {
	l.total = src.n
	l.rows = l.rows[:0]
	keep := matcher(l.filter)
	for i := range src.n {
		if l.filter == "" || keep(src.text(i)) {
			l.rows = append(l.rows, i)
		}
	}
	if l.sort < len(src.keys) {
		order(l.rows, src.n, src.keys[l.sort], l.desc)
	}
	l.follow(src)
}

func (l *list) follow(src rowSource) {
	if !src.newest && !src.soonest || l.cursor > 0 {
		for i, row := range l.rows {
			if src.key(row) == l.key {
				l.cursor = i
				return
			}
		}
	}
	l.cursor = clamp(l.cursor, 0, max(len(l.rows)-1, 0))
	l.remember(src)
}

// remember notes which row the cursor is on.
func (l *list) remember(src rowSource) {
	l.key = rowKey{}
	if row, ok := l.selected(); ok {
		l.key = src.key(row)
	}
}

// selected is the row under the cursor.
func (l *list) selected() (row int, ok bool) {
	if l.cursor < 0 || l.cursor >= len(l.rows) {
		return 0, false
	}
	return l.rows[l.cursor], true
}

// move puts the cursor at a position, kept inside the list.
func (l *list) move(to int, src rowSource) {
	l.cursor = clamp(to, 0, max(len(l.rows)-1, 0))
	l.remember(src)
}

// scroll keeps the cursor on a screen of page rows.
func (l *list) scroll(page int) {
	page = max(page, 1)
	l.offset = clamp(l.offset, l.cursor-page+1, l.cursor)
	l.offset = clamp(l.offset, 0, max(len(l.rows)-page, 0))
}

// order sorts rows stably: equal rows stay in the order of the snapshot.
func order(rows []int, n int, k sortKey, desc bool) {
	type value struct {
		num   float64
		text  string
		known bool
	}
	values := make([]value, n)
	for _, row := range rows {
		v := value{known: true}
		if k.num != nil {
			v.num, v.known = k.num(row)
			v.known = v.known && finite(v.num)
		} else {
			v.text = k.text(row)
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
