package progress

import (
	"fmt"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/term"
)

const (
	// quietFor delays the first drawing: an operation that ends sooner needs no screen.
	quietFor = 300 * time.Millisecond
	// frameEvery caps the frame rate.
	frameEvery = 100 * time.Millisecond
	// maxWidth keeps the times near their rows on wide terminals.
	maxWidth = 110
	barCells = 16
)

var turning = []string{"⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"}

// animated redraws its lines in place.
type animated struct {
	base
	size    func() (width, height int)
	palette term.Palette

	screen  Screen
	pending bool      // screen is newer than what is drawn
	drawn   []string  // lines on the terminal
	drawnAt time.Time // zero until the first frame
}

func (a *animated) Show(s Screen) {
	a.screen, a.pending = s, true
	now := a.now()
	if now.Sub(a.start) < quietFor || now.Sub(a.drawnAt) < frameEvery {
		return
	}
	a.draw(now)
}

func (a *animated) Close() {
	if a.pending && !a.drawnAt.IsZero() {
		a.draw(a.now())
	}
}

func (a *animated) draw(now time.Time) {
	width, height := a.size()
	frame := a.layout(min(width-1, maxWidth), height, now.Sub(a.start))
	var b strings.Builder
	if n := len(a.drawn); n > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", min(n, height-1))
	}
	for _, line := range frame {
		b.WriteString("\r\x1b[2K" + line + "\n")
	}
	if len(frame) < len(a.drawn) {
		b.WriteString("\x1b[J")
	}
	_, _ = a.w.Write([]byte(b.String())) // see base
	a.drawn, a.drawnAt, a.pending = frame, now, false
}

// layout returns the lines of the screen, none wider than width and, below a title
// and above a footer, no more than fit the height.
func (a *animated) layout(width, height int, elapsed time.Duration) []string {
	s := a.screen
	out := []string{edges(" "+a.palette.Bold(term.Clip(s.Title, width-10)), clock(elapsed), width)}
	room := height - 2 // the line of the cursor and the title
	if s.Footer != "" {
		room--
	}
	rows, hidden := fit(s.Rows, room)
	cells := columns(rows)
	for _, r := range rows {
		out = append(out, a.row(r, cells, width, elapsed))
		for _, m := range r.More {
			out = append(out, a.palette.Dim("     "+term.Clip(term.Clean(m), width-5)))
		}
	}
	if hidden > 0 {
		out = append(out, a.palette.Dim(fmt.Sprintf("   … %d more", hidden)))
	}
	if s.Footer != "" {
		out = append(out, a.palette.Dim(" "+term.Clip(s.Footer, width-1)))
	}
	return out
}

// fit leaves rows out until the rest takes at most room lines: lines below a row
// go first, then rows that are done, then the last ones.
func fit(rows []Row, room int) (kept []Row, hidden int) {
	count := func(rows []Row) int {
		n := len(rows)
		for _, r := range rows {
			n += len(r.More)
		}
		return n
	}
	room = max(room, 2)
	if count(rows) <= room {
		return rows, 0
	}
	for _, r := range rows {
		r.More = nil
		kept = append(kept, r)
	}
	if len(kept) <= room {
		return kept, 0
	}
	room-- // for "… n more"
	surplus := len(kept) - room
	var out []Row
	for _, r := range kept {
		if r.State == Done && surplus > 0 {
			surplus--
			continue
		}
		out = append(out, r)
	}
	if len(out) > room {
		out = out[:room]
	}
	return out, len(kept) - len(out)
}

// columns returns the width of every column; those that are empty in all rows
// have none.
func columns(rows []Row) []int {
	var w []int
	for _, r := range rows {
		for i, c := range r.Cells {
			if i == len(w) {
				w = append(w, 0)
			}
			w[i] = max(w[i], term.Width(term.Clean(c)))
		}
	}
	return w
}

func (a *animated) row(r Row, cells []int, width int, elapsed time.Duration) string {
	var b strings.Builder
	b.WriteString(" " + a.mark(r.State, elapsed))
	for i, w := range cells {
		if w == 0 {
			continue
		}
		c := ""
		if i < len(r.Cells) {
			c = term.Clean(r.Cells[i])
		}
		b.WriteString(" " + term.PadRight(c, w+1))
	}
	var parts []string
	if d := term.Clean(r.Detail); d != "" {
		parts = append(parts, d)
	}
	if r.Share != nil {
		full := int(min(max(*r.Share, 0), 1)*barCells + 0.5)
		parts = append(parts, strings.Repeat("█", full)+strings.Repeat("░", barCells-full))
	}
	if t := term.Clean(r.After); t != "" {
		parts = append(parts, t)
	}
	b.WriteString(" " + strings.Join(parts, "  "))
	right := ""
	if r.Took > 0 {
		right = took(r.Took)
	}
	return edges(b.String(), right, width)
}

func (a *animated) mark(s State, elapsed time.Duration) string {
	switch s {
	case Done:
		return a.palette.Good("✓")
	case Failed:
		return a.palette.Bad("✗")
	case Running:
		return turning[int(elapsed/frameEvery)%len(turning)]
	}
	return "·"
}

// edges puts left and right at the two ends of a line.
func edges(left, right string, width int) string {
	left = strings.TrimRight(left, " ")
	if right == "" {
		return term.Clip(left, width)
	}
	left = term.Clip(left, width-term.Width(right)-2)
	return term.PadRight(left, width-term.Width(right)) + right
}
