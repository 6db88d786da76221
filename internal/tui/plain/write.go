package plain

import (
	"bufio"
	"fmt"
	"io"
	"strings"

	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Write writes tables as text. Several are parted by empty lines and each is headed by its
// name. Where the width is too small, long texts are cut, then the last columns are left out,
// which a line below the table says.
func Write(w io.Writer, tables []Table, o Options) error {
	b := bufio.NewWriter(w)
	for i, t := range tables {
		if len(tables) > 1 {
			if i > 0 {
				fmt.Fprintln(b)
			}
			fmt.Fprintln(b, "# "+t.Name)
		}
		if o.Terminal {
			t.writeAligned(b, o)
			continue
		}
		for _, r := range t.cleanRows() {
			fmt.Fprintln(b, strings.TrimRight(strings.Join(r, "\t"), " "))
		}
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

// cleanRows are the titles and the rows, safe for a terminal.
func (t Table) cleanRows() [][]string {
	rows := make([][]string, 0, len(t.Rows)+1)
	for _, r := range append([][]string{t.Columns}, t.Rows...) {
		c := make([]string, len(r))
		for i := range r {
			c[i] = cells.Clean(r[i])
		}
		rows = append(rows, c)
	}
	return rows
}

func (t Table) writeAligned(w *bufio.Writer, o Options) {
	rows := t.cleanRows()
	widths := t.fit(rows, o.Width)
	more := draw.UnicodeGlyphs().More
	if o.ASCII {
		more = draw.ASCIIGlyphs().More
	}
	for _, r := range rows {
		parts := make([]string, len(widths))
		for i, width := range widths {
			c := cells.Clip(r[i], width, more)
			switch {
			case t.numbers[i]:
				c = cells.PadLeft(c, width)
			case i < len(widths)-1:
				c = cells.PadRight(c, width)
			}
			parts[i] = c
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(parts, gap), " "))
	}
	if out := t.Columns[len(widths):]; len(out) > 0 {
		fmt.Fprintln(w, cells.Clip("# too narrow for "+strings.Join(out, ", "), o.Width, more))
	}
}

// gap parts aligned columns.
const gap = "  "

// What a column may be cut to in cells: of texts, before columns are left out; and of the
// columns that are never left out.
const (
	longText  = 16
	shortText = 6
)

// fit returns the widths of the columns that rows of some width have room for.
func (t Table) fit(rows [][]string, width int) []int {
	widths := make([]int, len(t.Columns))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], cells.Width(c))
		}
	}
	if width <= 0 {
		return widths
	}
	t.cut(widths, width, longText)
	for len(widths) > 2 && total(widths) > width {
		widths = widths[:len(widths)-1]
	}
	t.cut(widths, width, shortText)
	return widths
}

// cut makes the longest columns of text smaller, to least cells and their title at least,
// until a row takes width.
func (t Table) cut(widths []int, width, least int) {
	for total(widths) > width {
		longest := -1
		for i, w := range widths {
			if !t.numbers[i] && w > max(least, cells.Width(t.Columns[i])) && (longest < 0 || w > widths[longest]) {
				longest = i
			}
		}
		if longest < 0 {
			return
		}
		widths[longest]--
	}
}

// total is how many cells a row takes.
func total(widths []int) int {
	n := len(gap) * max(len(widths)-1, 0)
	for _, w := range widths {
		n += w
	}
	return n
}
