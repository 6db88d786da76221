// Package plain holds the data of panes as rows of text, for people without a screen and
// for programs.
package plain

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/tui/cells"
)

// Table is one pane as rows of text.
type Table struct {
	Name    string // of the pane, or what the inspected worker has in hand
	Columns []string
	Rows    [][]string
	numbers []bool // columns aligned right
}

// Options say how tables are written.
type Options struct {
	// Views chooses panes by name; all of them when empty.
	Views []string
	// Terminal aligns columns and rounds as on the screen; without it cells are
	// exact, times are RFC 3339 and columns are parted by tabs, for programs.
	Terminal bool
	// Wide adds columns on the right.
	Wide bool
	// ASCII draws the states with ASCII characters.
	ASCII bool
	// Location of times; default UTC.
	Location *time.Location
}

// New makes a table without rows; column titles that start with ">" are numbers.
func New(name string, titles ...string) Table {
	t := Table{Name: name}
	t.AddColumns(titles...)
	return t
}

// AddColumns adds columns on the right.
func (t *Table) AddColumns(titles ...string) {
	for _, c := range titles {
		title, right := strings.CutPrefix(c, ">")
		t.Columns = append(t.Columns, title)
		t.numbers = append(t.numbers, right)
	}
}

// Add adds a row.
func (t *Table) Add(row ...string) { t.Rows = append(t.Rows, row) }

// Float prints a number rounded for people and in full for programs.
func (o Options) Float(f *float64, round func(*float64) string) string {
	if f == nil || o.Terminal {
		return round(f)
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// Duration prints a duration rounded for people and to milliseconds for programs.
func (o Options) Duration(d *time.Duration, round func(time.Duration) string) string {
	switch {
	case d == nil:
		return cells.Unknown
	case o.Terminal:
		return round(*d)
	}
	return d.Round(time.Millisecond).String()
}

// Time prints the time of day for people and the whole time for programs.
func (o Options) Time(t time.Time) string {
	switch {
	case t.IsZero():
		return cells.Unknown
	case o.Terminal:
		return t.In(o.Location).Format("15:04:05.000")
	}
	return t.In(o.Location).Format(time.RFC3339Nano)
}

// Age prints an age in milliseconds.
func (o Options) Age(ms int64) string {
	d := time.Duration(ms) * time.Millisecond
	return o.Duration(&d, cells.Seconds)
}

// Write writes tables as text. Several are parted by empty lines and each is headed by its
// name.
func Write(w io.Writer, tables []Table, aligned bool) error {
	b := bufio.NewWriter(w)
	for i, t := range tables {
		if len(tables) > 1 {
			if i > 0 {
				fmt.Fprintln(b)
			}
			fmt.Fprintln(b, "# "+t.Name)
		}
		t.write(b, aligned)
	}
	if err := b.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func (t Table) write(w *bufio.Writer, aligned bool) {
	rows := append([][]string{t.Columns}, t.Rows...)
	widths := make([]int, len(t.Columns))
	for _, r := range rows {
		for i, c := range r {
			widths[i] = max(widths[i], cells.Width(c))
		}
	}
	for _, r := range rows {
		parts := make([]string, len(r))
		for i, c := range r {
			c = cells.Clean(c)
			switch {
			case !aligned:
			case t.numbers[i]:
				c = cells.PadLeft(c, widths[i])
			case i < len(r)-1:
				c = cells.PadRight(c, widths[i])
			}
			parts[i] = c
		}
		gap := "\t"
		if aligned {
			gap = "  "
		}
		fmt.Fprintln(w, strings.TrimRight(strings.Join(parts, gap), " "))
	}
}
