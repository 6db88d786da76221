package draw

import (
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Fact is a line of a name and a value.
func Fact(name, value string, st Style) []Span {
	return []Span{{cells.PadRight(name, 14) + " ", Dim}, {value, st}}
}

// Grid lays out rows of words in columns as wide as their widest word; the
// first row holds the titles, right says which columns hold numbers.
func Grid(rows [][]Span, right []bool) [][]Span {
	var widths []int
	for _, r := range rows {
		for i, s := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], cells.Width(s.Text))
		}
	}
	out := make([][]Span, 0, len(rows))
	for _, r := range rows {
		line := make([]Span, 0, len(r))
		for i, s := range r {
			if i < len(right) && right[i] {
				s.Text = cells.PadLeft(s.Text, widths[i])
			} else if i < len(r)-1 {
				s.Text = cells.PadRight(s.Text, widths[i])
			}
			if i < len(r)-1 {
				s.Text += "  "
			}
			line = append(line, s)
		}
		out = append(out, line)
	}
	return out
}

// Titles makes a row of column titles.
func Titles(titles string) []Span {
	var out []Span
	for _, t := range strings.Fields(titles) {
		out = append(out, Span{t, Heading})
	}
	return out
}
