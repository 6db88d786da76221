package tui

import "strings"

// fact is a line of a name and a value.
func fact(name, value string, st style) []span {
	return []span{{padRight(name, 14) + " ", dim}, {value, st}}
}

// gridLines lays out rows of words in columns as wide as their widest word; the
// first row holds the titles, right says which columns hold numbers.
func gridLines(rows [][]span, right []bool) [][]span {
	var widths []int
	for _, r := range rows {
		for i, s := range r {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], textWidth(s.text))
		}
	}
	out := make([][]span, 0, len(rows))
	for _, r := range rows {
		line := make([]span, 0, len(r))
		for i, s := range r {
			if i < len(right) && right[i] {
				s.text = padLeft(s.text, widths[i])
			} else if i < len(r)-1 {
				s.text = padRight(s.text, widths[i])
			}
			if i < len(r)-1 {
				s.text += "  "
			}
			line = append(line, s)
		}
		out = append(out, line)
	}
	return out
}

// titleRow makes a row of column titles.
func titleRow(titles string) []span {
	var out []span
	for _, t := range strings.Fields(titles) {
		out = append(out, span{t, heading})
	}
	return out
}
