package layout

import (
	"fmt"
	"strings"
	"testing"
)

// picture draws a layout at a tenth of its width: one digit for each pane.
func picture(w, h int, zoom bool, f Focus) string {
	l := Arrange(w, h, zoom, f)
	if l.Tiny {
		return "tiny"
	}
	var b strings.Builder
	for y := range h {
		for x := 5; x < w; x += 10 {
			c := byte('.')
			switch y {
			case l.Header:
				c = 'H'
			case l.Notice:
				c = 'N'
			case l.Footer:
				c = 'F'
			}
			for p := Top; p < slots; p++ {
				if l.Shown(p) && l.Slots[p].Contains(x, y) {
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
	workers := Focus{Top, Left}
	tests := []struct {
		name string
		w, h int
		zoom bool
		f    Focus
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
		{"workers and the focused slot at 80x24", 80, 24, false, Focus{BottomRight, BottomRight}, `
			1 HHHHHHHH
			12 11111111
			9 66666666
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"workers keep the last lower pane", 80, 24, false, Focus{Top, Middle}, `
			1 HHHHHHHH
			12 11111111
			9 33333333
			1 NNNNNNNN
			1 FFFFFFFF`},
		{"one pane at 60x12", 60, 12, false, Focus{BottomLeft, BottomLeft}, `
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
		{"zoomed", 100, 30, true, Focus{Middle, Middle}, `
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
	for w := MinWidth; w < 220; w += 3 {
		for h := MinHeight; h < 90; h++ {
			for p := Top; p < slots; p++ {
				for _, zoom := range []bool{false, true} {
					l := Arrange(w, h, zoom, Focus{p, max(p, Left)})
					if !l.Shown(p) {
						t.Fatalf("%dx%d zoom %v: focused slot %d is not shown", w, h, zoom, p)
					}
					cells := 0
					for q := Top; q < slots; q++ {
						r := l.Slots[q]
						cells += r.W * r.H
						if r.W > 0 && (r.X < 0 || r.Y < l.Body.Y || r.X+r.W > w || r.Y+r.H > l.Body.Y+l.Body.H || r.H < 5) {
							t.Fatalf("%dx%d: slot %d at %+v does not fit the body %+v", w, h, q, r, l.Body)
						}
					}
					if cells != l.Body.W*l.Body.H {
						t.Fatalf("%dx%d zoom %v focus %d: panes cover %d of %d cells", w, h, zoom, p, cells, l.Body.W*l.Body.H)
					}
				}
			}
		}
	}
}
