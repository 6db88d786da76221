package tui

// column is one column of a pane's table. Columns are data: fitting, titles,
// rows and plain text all read them.
type column struct {
	title string
	alone string // title when the column before it left
	width int    // cells it asks for
	least int    // cells it can live with; 0: width
	most  int    // cells it may grow to; 0: width
	right bool
	leave int // the lowest leaves first when the pane is narrow; 0 never leaves
	cell  func(row, width int) []span
}

func (c column) smallest() int {
	if c.least > 0 && c.least < c.width {
		return c.least
	}
	return c.width
}

// placed is a column with its place in the row.
type placed struct {
	column
	n    int // its number in the definition
	x, w int
}

// fit chooses which columns stay in width cells and how wide they are. Columns
// leave whole, in the order of leave; a name is never cut while another column
// could go instead.
func fit(cols []column, width int) []placed {
	stay := make([]placed, 0, len(cols))
	for i, c := range cols {
		stay = append(stay, placed{column: c, n: i, w: c.smallest()})
	}
	used := func() int {
		n := max(len(stay)-1, 0)
		for _, c := range stay {
			n += c.w
		}
		return n
	}
	for used() > width {
		out := -1
		for i, c := range stay {
			if c.leave > 0 && (out < 0 || c.leave < stay[out].leave) {
				out = i
			}
		}
		if out < 0 {
			break
		}
		stay = append(stay[:out], stay[out+1:]...)
	}
	spare := width - used()
	for i := range stay {
		n := clamp(stay[i].width-stay[i].w, 0, max(spare, 0))
		stay[i].w += n
		spare -= n
	}
	gap := make([]int, len(stay))
	for i := 1; i < len(stay); i++ {
		gap[i] = 1
		if spare > 0 {
			gap[i]++
			spare--
		}
	}
	for i := range stay {
		n := clamp(stay[i].most-stay[i].w, 0, max(spare, 0))
		stay[i].w += n
		spare -= n
	}
	for round := 0; spare > 0 && round < 2; round++ {
		for i := 1; i < len(stay) && spare > 0; i++ {
			gap[i]++
			spare--
		}
	}
	x := 0
	for i := range stay {
		x += gap[i]
		stay[i].x = x
		if over := x + stay[i].w - width; over > 0 {
			stay[i].w = max(stay[i].w-over, 0)
		}
		x += stay[i].w
	}
	return stay
}

// table draws titles and the visible rows; rows are indices the cells understand.
type table struct {
	cols   []column
	rows   []int // all rows, in order
	offset int
	cursor int // position in rows; -1 draws none
	stale  func(row int) bool
}

func (t table) draw(a area, g *glyphSet) {
	cols := fit(t.cols, a.w())
	for i, c := range cols {
		title := c.title
		if c.alone != "" && (i == 0 || cols[i-1].n != c.n-1) {
			title = c.alone
		}
		t.put(a, c, 0, []span{{title, heading}})
	}
	for y := 1; y < a.h(); y++ {
		i := t.offset + y - 1
		if i < 0 || i >= len(t.rows) {
			return
		}
		line := a
		if t.stale != nil && t.stale(t.rows[i]) {
			line = line.marked(markStale)
		}
		if i == t.cursor {
			line = line.marked(markSelected)
			line.fill(y, plain)
			wide := line.outset()
			wide.put(0, y, g.cursor, focused)
			wide.put(wide.w()-1, y, " ", plain)
		}
		for _, c := range cols {
			t.put(line, c, y, c.cell(t.rows[i], c.w))
		}
	}
}

func (t table) put(a area, c placed, y int, ss []span) {
	x := c.x
	if n := spansWidth(ss); c.right && n < c.w {
		x += c.w - n
	}
	a.spans(x, y, c.x+c.w-x, ss)
}
