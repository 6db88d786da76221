package tui

import (
	"fmt"
	"strings"
	"testing"

	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// picture draws a layout at a tenth of its width: one digit for each pane.
func picture(w, h int, zoom bool, f focus) string {
	l := arrange(w, h, zoom, f)
	if l.tiny {
		return "tiny"
	}
	var b strings.Builder
	for y := range h {
		for x := 5; x < w; x += 10 {
			c := byte('.')
			switch y {
			case l.header:
				c = 'H'
			case l.notice:
				c = 'N'
			case l.footer:
				c = 'F'
			}
			for p := paneWorkers; p < paneEnd; p++ {
				if l.shown(p) && l.panes[p].Contains(x, y) {
					c = byte('0' + p)
				}
			}
			b.WriteByte(c)
		}
		b.WriteByte('\n')
	}
	return compress(b.String())
}

// compress writes equal lines once, with their number.
func compress(s string) string {
	var out []string
	for _, l := range strings.Split(strings.TrimSpace(s), "\n") {
		if n := len(out); n > 0 && strings.HasSuffix(out[n-1], " "+l) {
			var k int
			fmt.Sscan(out[n-1], &k)
			out[n-1] = fmt.Sprintf("%d %s", k+1, l)
			continue
		}
		out = append(out, "1 "+l)
	}
	return strings.Join(out, "\n")
}

func TestLayoutPictures(t *testing.T) {
	workers := focus{paneWorkers, paneLeases}
	tests := []struct {
		name string
		w, h int
		zoom bool
		f    focus
		want string
	}{
		{"all six at 100x30", 100, 30, false, workers, `
			1 HHHHHHHHHH
			10 1111111111
			8 2222333444
			9 5555566666
			1 NNNNNNNNNN
			1 FFFFFFFFFF`},
		{"workers and leases at 80x24", 80, 24, false, workers, `
			1 HHHHHHHH
			12 11111111
			9 22222222
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"workers and the focused pane at 80x24", 80, 24, false, focus{paneDecisions, paneDecisions}, `
			1 HHHHHHHH
			12 11111111
			9 66666666
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"workers keep the last lower pane", 80, 24, false, focus{paneWorkers, paneQueue}, `
			1 HHHHHHHH
			12 11111111
			9 33333333
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"one pane at 60x12", 60, 12, false, focus{paneEvents, paneEvents}, `
			1 HHHHHH
			9 555555
			1 NNNNNN
			1 FFFFFF`},
		{"more rows at 160x50", 160, 50, false, workers, `
			1 HHHHHHHHHHHHHHHH
			19 1111111111111111
			12 2222223333344444
			16 5555555566666666
			1 NNNNNNNNNNNNNNNN
			1 FFFFFFFFFFFFFFFF`},
		{"all six on a tall screen", 80, 50, false, workers, `
			1 HHHHHHHH
			12 11111111
			9 22222222
			8 33334444
			9 55555555
			9 66666666
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"zoomed", 100, 30, true, focus{paneQueue, paneQueue}, `
			1 HHHHHHHHHH
			27 3333333333
			1 NNNNNNNNNN
			1 FFFFFFFFFF`},
		{"too narrow", 59, 40, false, workers, "tiny"},
		{"too low", 200, 11, false, workers, "tiny"},
		{"nothing", 0, 0, false, workers, "tiny"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			want := strings.ReplaceAll(strings.TrimSpace(tt.want), "\t", "")
			if got := picture(tt.w, tt.h, tt.zoom, tt.f); got != want {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// Panes cover the body exactly: no cell twice, none left over.
func TestLayoutCoversTheBody(t *testing.T) {
	for w := minWidth; w < 220; w += 3 {
		for h := minHeight; h < 90; h++ {
			for p := paneWorkers; p < paneEnd; p++ {
				for _, zoom := range []bool{false, true} {
					l := arrange(w, h, zoom, focus{p, max(p, paneLeases)})
					if !l.shown(p) {
						t.Fatalf("%dx%d zoom %v: focused pane %d is not shown", w, h, zoom, p)
					}
					cells := 0
					for q := paneWorkers; q < paneEnd; q++ {
						r := l.panes[q]
						cells += r.W * r.H
						if r.W > 0 && (r.X < 0 || r.Y < l.body.Y || r.X+r.W > w || r.Y+r.H > l.body.Y+l.body.H || r.H < 5) {
							t.Fatalf("%dx%d: pane %d at %+v does not fit the body %+v", w, h, q, r, l.body)
						}
					}
					if cells != l.body.W*l.body.H {
						t.Fatalf("%dx%d zoom %v focus %d: panes cover %d of %d cells", w, h, zoom, p, cells, l.body.W*l.body.H)
					}
				}
			}
		}
	}
}

func TestColumnsLeaveInOrder(t *testing.T) {
	m := newModel(nil, nil, draw.PlainTheme(), Options{Now: noon})
	m.width = 100
	m.take(snapshotMsg{labSnapshot(), noon()})
	last := -1
	var left []string
	for w := 100; w > 20; w-- {
		cols := table.Fit(m.workerColumns(), w)
		if last >= 0 && len(cols) < last {
			left = append(left, missing(m.workerColumns(), cols, left)...)
		}
		last = len(cols)
		if cols[0].Title != "NAME" || cols[0].W < 8 {
			t.Fatalf("at %d cells the name has %d cells", w, cols[0].W)
		}
		end := 0
		for _, c := range cols {
			if c.X < end {
				t.Fatalf("at %d cells %s overlaps the column before", w, c.Title)
			}
			end = c.X + c.W
		}
		if end > w {
			t.Fatalf("at %d cells the row ends at %d", w, end)
		}
	}
	got := strings.Join(left, " ")
	if want := "UP LEASE HIT% DEVICE KV BLOCKS TOK/S ROLE used/total SEQS"; got != want {
		t.Errorf("columns leave in the order %s, want %s", got, want)
	}
}

func missing(all []table.Column, stay []table.Placed, known []string) []string {
	here := map[string]bool{}
	for _, c := range stay {
		here[c.Title] = true
	}
	for _, k := range known {
		here[k] = true
	}
	var out []string
	for leave := range 20 { // several may leave at once
		for _, c := range all {
			if c.Leave == leave && !here[c.Title] {
				out = append(out, c.Title)
			}
		}
	}
	return out
}

func TestLongNamesAreNeverCut(t *testing.T) {
	s := labSnapshot()
	long := "worker-with-a-name-of-forty-cells-in-all"
	s.Workers[2].Name, s.Leases[3].Owner, s.Events[0].Worker = long, long, long
	s.Decisions[0].Chosen = long
	for _, size := range sizes() {
		for _, p := range []string{"1", "2", "5", "6"} {
			sc := newScreen(t, s, size[0], size[1], Options{})
			sc.press(p, "z")
			sc.has(long)
		}
	}
}
