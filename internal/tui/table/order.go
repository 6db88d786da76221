package table

import (
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

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

// Matcher returns the test of a filter: every word must occur, in any case; a
// leading "!" shows the other rows instead.
func Matcher(filter string) func(string) bool {
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
