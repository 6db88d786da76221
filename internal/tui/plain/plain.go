// Package plain holds the data of panes as rows of text, for people without a screen and
// for programs.
package plain

import (
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
	// Terminal aligns columns; without it they are parted by tabs, and times are RFC 3339.
	Terminal bool
	// Exact has numbers in full, for programs; without it they are rounded as on the screen.
	Exact bool
	// Width is what aligned rows may take, in cells; 0 is no limit.
	Width int
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
	if f == nil || !o.Exact {
		return round(f)
	}
	return strconv.FormatFloat(*f, 'f', -1, 64)
}

// Duration prints a duration rounded for people and to milliseconds for programs.
func (o Options) Duration(d *time.Duration, round func(time.Duration) string) string {
	switch {
	case d == nil:
		return cells.Unknown
	case !o.Exact:
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
