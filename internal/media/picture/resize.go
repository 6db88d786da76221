package picture

import (
	"fmt"
	"math"
)

// Filter is a kernel for resizing, numbered as in Pillow and in the files of processors.
type Filter int

// The filters that [Image.Resize] knows.
const (
	Lanczos  Filter = 1
	Bilinear Filter = 2
	Bicubic  Filter = 3
)

func (f Filter) String() string {
	switch f {
	case Lanczos:
		return "Lanczos"
	case Bilinear:
		return "bilinear"
	case Bicubic:
		return "bicubic"
	}
	return fmt.Sprintf("filter %d", int(f))
}

// kernel returns the function and how far it reaches from 0. Products are rounded before
// they are added, so that processors which fuse both compute the same weights.
func (f Filter) kernel() (weight func(x float64) float64, reach float64) {
	switch f {
	case Lanczos:
		return func(x float64) float64 {
			if x < -3 || x >= 3 {
				return 0
			}
			return float64(sinc(x) * sinc(x/3))
		}, 3
	case Bilinear:
		return func(x float64) float64 { return max(1-math.Abs(x), 0) }, 1
	case Bicubic:
		return func(x float64) float64 {
			const a = -0.5
			switch x = math.Abs(x); {
			case x < 1:
				return float64(float64(float64((a+2)*x)-(a+3))*x*x) + 1
			case x < 2:
				return (float64(float64(float64((x-5)*x)+8)*x) - 4) * a
			}
			return 0
		}, 2
	}
	return nil, 0
}

func sinc(x float64) float64 {
	if x == 0 {
		return 1
	}
	x *= math.Pi
	return math.Sin(x) / x
}

// fraction is the number of fractional bits of a weight.
const fraction = 22

// span is what one pixel of the result is made of: weights of the pixels from start on.
type span struct {
	start   int
	weights []int32
}

// spans computes those of the pixels [first, last) of a row or column that is resized.
func (f Filter) spans(from, to, first, last int) []span {
	weight, reach := f.kernel()
	scale := float64(from) / float64(to)
	stretch := max(scale, 1)
	reach = float64(reach * stretch)
	inverse := 1 / stretch
	spans := make([]span, last-first)
	var weights []float64
	for i := range spans {
		center := float64((float64(first+i) + 0.5) * scale)
		start := max(int(center-reach+0.5), 0)
		end := min(int(center+reach+0.5), from)
		weights = weights[:0]
		sum := 0.0
		for x := start; x < end; x++ {
			w := weight((float64(x) - center + 0.5) * inverse)
			weights = append(weights, w)
			sum += w
		}
		fixed := make([]int32, len(weights))
		for j, w := range weights {
			if sum != 0 {
				w /= sum
			}
			fixed[j] = int32(float64(w*(1<<fraction)) + math.Copysign(0.5, w))
		}
		spans[i] = span{start, fixed}
	}
	return spans
}

// Resize returns the picture in another size, with the same bytes as Pillow's resize
// without reducing_gap. It first resizes rows, then columns, and rounds to 8 bits after
// each. The memory it needs beside the result is a picture of the new width and the old
// height. An unchanged size returns the
// picture itself.
func (m *Image) Resize(w, h int, f Filter) (*Image, error) {
	return m.ResizeWindow(w, h, f, 0, 0, w, h)
}

// ResizeWindow returns what Window(x, y, ww, wh) makes of the resized picture. It computes
// no more than that, however large the resized picture would be. The result may share
// its pixels with m.
func (m *Image) ResizeWindow(w, h int, f Filter, x, y, ww, wh int) (*Image, error) {
	if weight, _ := f.kernel(); weight == nil {
		return nil, fmt.Errorf("resize: %w: %v", ErrUnsupported, f)
	}
	if w < 1 || h < 1 || m.W < 1 || m.H < 1 || ww < 1 || wh < 1 {
		return nil, fmt.Errorf("resize: %d x %d to %d x %d pixels, of which %d x %d", m.W, m.H, w, h, ww, wh)
	}
	left, right := max(x, 0), min(x+ww, w)
	top, bottom := max(y, 0), min(y+wh, h)
	if left >= right || top >= bottom {
		return New(ww, wh), nil
	}
	firstRow, lastRow := top, bottom
	var columns []span
	if h != m.H { // rows are needed as far as the columns of the window reach
		columns = f.spans(m.H, h, top, bottom)
		end := columns[len(columns)-1]
		firstRow, lastRow = columns[0].start, end.start+len(end.weights)
		for i := range columns {
			columns[i].start -= firstRow
		}
	}
	if firstRow > 0 || lastRow < m.H {
		m = &Image{m.W, lastRow - firstRow, m.Pix[3*m.W*firstRow : 3*m.W*lastRow]}
	}
	if w != m.W {
		m = m.resizeRows(f.spans(m.W, w, left, right))
	} else if left > 0 || right < w {
		m = m.Window(left, 0, right-left, m.H)
	}
	if columns != nil {
		m = m.resizeColumns(columns)
	}
	if left != x || top != y || m.W != ww || m.H != wh {
		m = m.Window(x-left, y-top, ww, wh)
	}
	return m, nil
}

// resizeRows takes two rows at a time: one product of 64 bits is that of a weight with a
// sample of each. Their sums share a word, too, the lower one borrowing from the upper.
func (m *Image) resizeRows(spans []span) *Image {
	out := New(len(spans), m.H)
	pairs := make([]int64, 3*m.W)
	for y := 0; y < m.H; y += 2 {
		second := min(y+1, m.H-1)
		upper := m.Pix[3*y*m.W:][:len(pairs)]
		lower := m.Pix[3*second*m.W:][:len(pairs)]
		for i, v := range upper {
			pairs[i] = int64(v) | int64(lower[i])<<32
		}
		to, next := out.Pix[3*y*out.W:][:3*out.W], out.Pix[3*second*out.W:][:3*out.W]
		for i, s := range spans {
			const half = 1<<(fraction-1) | 1<<(fraction-1+32)
			r, g, b := int64(half), int64(half), int64(half)
			from := pairs[3*s.start:][:3*len(s.weights)]
			for _, w := range s.weights {
				if len(from) < 3 {
					break // never: it spares the checks below
				}
				r += from[0] * int64(w)
				g += from[1] * int64(w)
				b += from[2] * int64(w)
				from = from[3:]
			}
			to[3*i], next[3*i] = parts(r)
			to[3*i+1], next[3*i+1] = parts(g)
			to[3*i+2], next[3*i+2] = parts(b)
		}
	}
	return out
}

// parts takes two sums of 32 bits apart and rounds them.
func parts(sums int64) (lower, upper uint8) {
	low := int32(sums)
	return clip(low >> fraction), clip(int32((sums-int64(low))>>32) >> fraction)
}

func (m *Image) resizeColumns(spans []span) *Image {
	n := 3 * m.W
	out := New(m.W, len(spans))
	sums := make([]int32, n)
	for y, s := range spans {
		for i := range sums {
			sums[i] = 1 << (fraction - 1)
		}
		rows, weights := m.Pix[s.start*n:], s.weights
		for ; len(weights) >= 4; rows, weights = rows[4*n:], weights[4:] {
			add4(sums, rows, [4]int32(weights))
		}
		for j, w := range weights {
			for i, v := range rows[j*n:][:len(sums)] {
				sums[i] += int32(v) * w
			}
		}
		to := out.Pix[y*n:][:len(sums)]
		for i, v := range sums {
			to[i] = clip(v >> fraction)
		}
	}
	return out
}

// add4 adds four weighted rows, so that sums are loaded and stored once for all.
func add4(sums []int32, rows []byte, w [4]int32) {
	n := len(sums)
	a, b, c, d := rows[:n], rows[n:2*n], rows[2*n:3*n], rows[3*n:4*n]
	for i := range sums {
		sums[i] += int32(a[i])*w[0] + int32(b[i])*w[1] + int32(c[i])*w[2] + int32(d[i])*w[3]
	}
}
