package prepare

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/dynctl/dynctl/internal/media/picture"
)

// anyRes is LLaVA-1.6: beside the whole, squeezed into a square, come tiles of the
// picture at the size that fits best among those of the file.
type anyRes struct {
	plain
	*whole
	tower
	side  int      // pixels of a tile
	sizes [][2]int // height and width
}

func loadAnyRes(l *loader) family {
	l.want("LlavaNextImageProcessor")
	a := &anyRes{plain: l.plain, whole: loadWhole(l), tower: l.tower()}
	s := l.settings
	s.must("do_pad")
	if name := s.text("aspect_ratio_setting", ""); name != "anyres" {
		s.fail("aspect_ratio_setting", ErrUnsupported, fmt.Sprintf("%q", name))
	}
	a.side = max(a.shortest, a.resizeH)
	if a.w != a.side || a.h != a.side || a.shortest == 0 && a.resizeW != a.side {
		s.fail("crop_size", ErrUnsupported, "want a square of the size")
	}
	var list [][]int
	s.read("image_grid_pinpoints", &list, "pairs of numbers")
	for _, p := range list {
		if len(p) != 2 || min(p[0], p[1]) < 1 || max(p[0], p[1]) > maxSide || a.side > 0 && (p[0]%a.side != 0 || p[1]%a.side != 0) {
			s.fail("image_grid_pinpoints", ErrConfig, fmt.Sprintf("%v is no height and width of whole tiles", p))
			return a
		}
		a.sizes = append(a.sizes, [2]int{p[0], p[1]})
	}
	var model [][]int // it puts the tiles together by these
	if l.config.read("image_grid_pinpoints", &model, "pairs of numbers") && !slices.EqualFunc(model, list, slices.Equal) {
		l.config.fail("image_grid_pinpoints", ErrUnsupported, "not those of "+s.file)
	}
	if len(a.sizes) == 0 {
		s.fail("image_grid_pinpoints", ErrConfig, "none")
	}
	if a.side/a.patch < 1 {
		l.processor.fail("patch_size", ErrConfig, "no patch fits into a tile")
	}
	return a
}

// best returns the size at which most of the picture's pixels remain, of several the one
// with the least padding, of several the first.
func (a *anyRes) best(w, h int) (bw, bh int) {
	most, least := -1, math.MaxInt
	for _, size := range a.sizes {
		sh, sw := size[0], size[1]
		scale := min(float64(sw)/float64(w), float64(sh)/float64(h))
		kept := min(int(float64(w)*scale)*int(float64(h)*scale), w*h)
		wasted := sw*sh - kept
		if kept > most || kept == most && wasted < least {
			most, least, bw, bh = kept, wasted, sw, sh
		}
	}
	return bw, bh
}

// unpadded returns the features of the tiles that are not padding, rows and columns.
func (a *anyRes) unpadded(w, h, bw, bh int) (rows, cols int) {
	each := a.side / a.patch
	rows, cols = each*(bh/a.side), each*(bw/a.side)
	if float64(w)/float64(h) > float64(cols)/float64(rows) {
		kept := truncated(float64(h) * (float64(cols) / float64(w)))
		rows -= (rows - kept) / 2 * 2
	} else {
		kept := truncated(float64(w) * (float64(rows) / float64(h)))
		cols -= (cols - kept) / 2 * 2
	}
	return rows, cols
}

// truncated drops what follows the point after a rounding to 7 digits.
func truncated(v float64) int {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'f', 7, 64), 64)
	return int(v)
}

func (a *anyRes) plan(w, h int) (Plan, error) {
	bw, bh := a.best(w, h)
	rows, cols := a.unpadded(w, h, bw, bh)
	g := Grid{H: bh / a.side, W: bw / a.side, UnpaddedH: rows, UnpaddedW: cols}
	// Every row of features ends with one that stands for a new line.
	n := rows*cols + rows + a.tokens(a.side, a.side)
	return Plan{Tokens: n, Views: 1 + g.H*g.W, W: a.side, H: a.side, Grid: g}, nil
}

func (a *anyRes) prepare(m *picture.Image, in *Input) error {
	bw, bh := in.Grid.W*a.side, in.Grid.H*a.side
	acrossScale, downScale := float64(bw)/float64(m.W), float64(bh)/float64(m.H)
	w, h := bw, bh
	if acrossScale < downScale {
		h = min(int(math.Ceil(float64(m.H)*acrossScale)), bh)
	} else {
		w = min(int(math.Ceil(float64(m.W)*downScale)), bw)
	}
	large, err := m.Resize(w, h, a.filter)
	if err != nil {
		return err
	}
	small, err := m.Resize(a.side, a.side, a.filter)
	if err != nil {
		return err
	}
	in.Views = append(in.Views, a.colors.view(small))
	left, top := (bw-w)/2, (bh-h)/2
	for r := range in.Grid.H {
		for c := range in.Grid.W {
			v := a.colors.view(large.Window(c*a.side-left, r*a.side-top, a.side, a.side))
			v.Row, v.Col = r+1, c+1
			in.Views = append(in.Views, v)
		}
	}
	return nil
}

// arrange puts the rows of the tiles back into lines, without those of padding.
func (a *anyRes) arrange(p Plan, rows [][]float32, newline []float32) ([][]float32, error) {
	side := a.side / a.patch
	each := side * side
	if newline == nil {
		return nil, errors.New("no row that ends a line")
	}
	if len(rows) != p.Views*each {
		return nil, fmt.Errorf("%d rows of %d tiles of %d", len(rows), p.Views, each)
	}
	out := rows[:each:each]
	top, left := (p.Grid.H*side-p.Grid.UnpaddedH)/2, (p.Grid.W*side-p.Grid.UnpaddedW)/2
	for y := top; y < top+p.Grid.UnpaddedH; y++ {
		for x := left; x < left+p.Grid.UnpaddedW; x++ {
			tile := y/side*p.Grid.W + x/side
			out = append(out, rows[(1+tile)*each+y%side*side+x%side])
		}
		out = append(out, newline)
	}
	return out, nil
}
