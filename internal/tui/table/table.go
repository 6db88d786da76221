// Package table holds the rows of a pane: which are shown, in which order, where the
// cursor is, and how their columns fit the width.
//
// A [List] keeps its place while the rows change: the cursor follows its row, not the
// position. Rows are numbers that the cells of a [Column] understand.
package table

import (
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Column is one column of a pane's table. Columns are data: fitting, titles,
// rows and plain text all read them.
type Column struct {
	Title string
	Alone string // title when the column before it left
	Short string // title where the column has less than its width
	Help  string // what the title means
	Width int    // cells it asks for
	Least int    // cells it can live with; 0: width
	Full  int    // cells in which nothing of it is cut; 0: width
	Most  int    // cells it may grow to, where others have what they need; 0: width
	Right bool
	Leave int // the lowest leaves first when the pane is narrow; 0 never leaves
	Cell  func(row, width int) []draw.Span
}

func (c Column) smallest() int {
	if c.Least > 0 && c.Least < c.Width {
		return c.Least
	}
	return c.Width
}

// Placed is a column with its place in the row.
type Placed struct {
	Column
	n    int // its number in the definition
	X, W int
}

// Fit chooses which columns stay in width cells and how wide they are. Columns
// leave whole, in the order of leave; a name is never cut while another column
// could go instead. What is left goes to cells that would be cut, then to gaps, then to
// columns that may grow.
func Fit(cols []Column, width int) []Placed {
	stay := make([]Placed, 0, len(cols))
	for i, c := range cols {
		stay = append(stay, Placed{Column: c, n: i, W: c.smallest()})
	}
	used := func(stay []Placed) int {
		n := max(len(stay)-1, 0)
		for _, c := range stay {
			n += c.W
		}
		return n
	}
	stay = cells.Fit(stay, width, used, func(c Placed) int { return c.Leave })
	spare := width - used(stay)
	grow := func(to func(c Column) int) {
		for i := range stay {
			n := cells.Clamp(to(stay[i].Column)-stay[i].W, 0, max(spare, 0))
			stay[i].W += n
			spare -= n
		}
	}
	grow(func(c Column) int { return c.Width })
	grow(func(c Column) int { return c.Full })
	gap := make([]int, len(stay))
	for i := 1; i < len(stay); i++ {
		gap[i] = 1
		if spare > 0 {
			gap[i]++
			spare--
		}
	}
	grow(func(c Column) int { return c.Most })
	for round := 0; spare > 0 && round < 2; round++ {
		for i := 1; i < len(stay) && spare > 0; i++ {
			gap[i]++
			spare--
		}
	}
	x := 0
	for i := range stay {
		x += gap[i]
		stay[i].X = x
		if over := x + stay[i].W - width; over > 0 {
			stay[i].W = max(stay[i].W-over, 0)
		}
		x += stay[i].W
	}
	return stay
}

// grid draws titles and the visible rows; rows are indices the cells understand.
type grid struct {
	cols   []Column
	rows   []int // all rows, in order
	offset int
	cursor int // position in rows; -1 draws none
	old    func(row int) bool
}

func (t grid) draw(a draw.Area, g *draw.Glyphs) {
	cols := Fit(t.cols, a.W())
	for i, c := range cols {
		title := c.Title
		if c.Alone != "" && (i == 0 || cols[i-1].n != c.n-1) {
			title = c.Alone
		}
		if c.Short != "" && c.W < c.Width {
			title = c.Short
		}
		t.put(a, c, 0, []draw.Span{draw.Heading.Text(title)})
	}
	for y := 1; y < a.H(); y++ {
		i := t.offset + y - 1
		if i < 0 || i >= len(t.rows) {
			return
		}
		line := a
		if t.old != nil && t.old(t.rows[i]) {
			line = line.Marked(draw.MarkStale)
		}
		if i == t.cursor {
			line = line.Marked(draw.MarkSelected)
			line.Fill(y, draw.Plain)
			wide := line.Outset()
			wide.Put(0, y, g.Cursor, draw.Focused)
			wide.Put(wide.W()-1, y, " ", draw.Plain)
		}
		for _, c := range cols {
			t.put(line, c, y, c.Cell(t.rows[i], c.W))
		}
	}
}

func (t grid) put(a draw.Area, c Placed, y int, ss []draw.Span) {
	x := c.X
	if n := draw.Width(ss); c.Right && n < c.W {
		x += c.W - n
	}
	a.Spans(x, y, c.X+c.W-x, ss)
}
