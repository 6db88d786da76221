package output

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/term"
)

// Table is rows of text under titles.
type Table struct {
	titles  []string
	right   []bool
	shrinks []bool
	rows    [][]cell
}

// cell is one field; paint colors it on a terminal.
type cell struct {
	text  string
	paint func(string) string
}

// NewTable returns an empty table. Columns whose title starts with ">" are numbers;
// those with "~" may be cut on a narrow terminal.
func NewTable(titles ...string) *Table {
	t := &Table{}
	for _, title := range titles {
		text, right := strings.CutPrefix(title, ">")
		text, shrinks := strings.CutPrefix(text, "~")
		t.titles = append(t.titles, text)
		t.right = append(t.right, right)
		t.shrinks = append(t.shrinks, shrinks)
	}
	return t
}

// Add adds a row.
func (t *Table) Add(fields ...string) {
	row := make([]cell, len(fields))
	for i, f := range fields {
		row[i].text = term.Clean(f)
	}
	t.rows = append(t.rows, row)
}

// Paint colors a field of the last row.
func (t *Table) Paint(column int, paint func(string) string) {
	t.rows[len(t.rows)-1][column].paint = paint
}

// tableStyle says for whom a table is.
type tableStyle struct {
	terminal bool
	width    int // of the terminal
	bold     func(string) string
}

func styleFor(p *Printer) tableStyle {
	w, _ := p.Streams.Size()
	if p.Format == "wide" {
		w = math.MaxInt // whoever wants everything gets it
	}
	return tableStyle{terminal: p.Streams.OutTTY, width: w, bold: p.Palette().Bold}
}

// write prints the table: aligned and fitted on a terminal, else with tabs and in
// full.
func (t *Table) write(w io.Writer, style tableStyle) error {
	b := bufio.NewWriter(w)
	if !style.terminal {
		fmt.Fprintf(b, "%s\n", strings.Join(t.titles, "\t"))
		for _, r := range t.rows {
			fields := make([]string, len(r))
			for i, c := range r {
				fields[i] = c.text
			}
			fmt.Fprintf(b, "%s\n", strings.Join(fields, "\t"))
		}
		return b.Flush()
	}
	widths := t.fit(style.width)
	line := func(cells []cell, paint func(string) string) {
		var out strings.Builder
		for i, c := range cells {
			text := term.Clip(c.text, widths[i])
			switch {
			case t.right[i]:
				text = term.PadLeft(text, widths[i])
			case i < len(cells)-1:
				text = term.PadRight(text, widths[i])
			}
			if p := c.paint; p != nil {
				text = p(text)
			}
			if i > 0 {
				out.WriteString("  ")
			}
			out.WriteString(text)
		}
		fmt.Fprintf(b, "%s\n", paint(strings.TrimRight(out.String(), " ")))
	}
	heads := make([]cell, len(t.titles))
	for i, title := range t.titles {
		heads[i].text = title
	}
	line(heads, style.bold)
	for _, r := range t.rows {
		line(r, func(s string) string { return s })
	}
	return b.Flush()
}

// minColumn is the least width of a column on a small terminal, in cells.
const minColumn = 6

// fit returns the widths of the columns. When the terminal is too narrow, the widest
// of those that may be are cut.
func (t *Table) fit(width int) []int {
	widths := make([]int, len(t.titles))
	total := 2 * (len(widths) - 1)
	for i, title := range t.titles {
		widths[i] = term.Width(title)
		for _, r := range t.rows {
			widths[i] = max(widths[i], term.Width(r[i].text))
		}
		total += widths[i]
	}
	for ; total > width; total-- {
		widest := -1
		for i, w := range widths {
			if t.shrinks[i] && w > max(minColumn, term.Width(t.titles[i])) && (widest < 0 || w > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}
