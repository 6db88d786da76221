package drawn

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"image"
	"image/color"
	"image/png"
	"math/rand/v2"
)

// Kind names what a picture shows.
type Kind string

// Kinds of pictures.
const (
	Code   Kind = "code"   // four digits on a door
	Shapes Kind = "shapes" // up to six circles, squares, triangles and stars
	Chart  Kind = "chart"  // upright bars on a base line
	Panel  Kind = "panel"  // lying bars of workers, as a terminal shows them
	// Digits is rows of digits. Nothing is asked of it: it teaches to read.
	Digits Kind = "digits"
)

// Kinds are those that have questions.
var Kinds = []Kind{Code, Shapes, Chart, Panel}

// Picture is what [Draw] makes.
type Picture struct {
	Kind    Kind
	Image   *image.RGBA
	Asks    []Ask
	Objects []Object
	// Facts are what a classifier can learn, by name: see [FactSizes].
	Facts map[string]int
}

// Object is something in a picture.
type Object struct {
	Class int // 0 to 9 for digits, then the shapes, a bar of a chart, a bar of a panel
	Color int // of the shapes; -1 for others
	Place int // of the digits of a code and of bars, from 0; -1 for others
	Box   image.Rectangle
}

// Classes of objects behind the digits.
const (
	firstShape = 10
	chartBar   = firstShape + 4
	panelBar   = chartBar + 1
)

// Draw makes a picture of a kind. Its size is arbitrary: 96 to 320 pixels a side.
func Draw(r *rand.Rand, kind Kind) Picture {
	w := 96 + r.IntN(225)
	h := min(max(int(float64(w)*(0.75+0.6*r.Float64())), 96), 320)
	p := &Picture{Kind: kind, Image: image.NewRGBA(image.Rect(0, 0, w, h)), Facts: map[string]int{}}
	switch kind {
	case Code:
		p.code(r)
	case Shapes:
		p.shapes(r)
	case Chart:
		p.chart(r)
	case Panel:
		p.panel(r)
	case Digits:
		p.digits(r)
	default:
		panic(fmt.Sprintf("drawn: no kind %q", kind))
	}
	for i, k := range Kinds {
		if k == kind {
			p.Facts["kind"] = i
		}
	}
	return *p
}

// PNG is the picture as a file.
func (p Picture) PNG() []byte {
	var b bytes.Buffer
	_ = png.Encode(&b, p.Image) // into memory, of a size that PNG has
	return b.Bytes()
}

// URL is the picture as a data URL.
func (p Picture) URL() string {
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(p.PNG())
}

func (p *Picture) size() (w, h int) { return p.Image.Rect.Dx(), p.Image.Rect.Dy() }

// fill paints a rectangle, as far as it is in the picture.
func (p *Picture) fill(box image.Rectangle, c color.RGBA) {
	box = box.Intersect(p.Image.Rect)
	for y := box.Min.Y; y < box.Max.Y; y++ {
		row := p.Image.Pix[p.Image.PixOffset(box.Min.X, y):]
		for x := range box.Dx() {
			row[4*x], row[4*x+1], row[4*x+2], row[4*x+3] = c.R, c.G, c.B, 255
		}
	}
}

// background paints everything, with a slight slope of brightness.
func (p *Picture) background(r *rand.Rand, c color.RGBA) {
	w, h := p.size()
	slope := r.IntN(31) - 15
	for y := range h {
		p.fill(image.Rect(0, y, w, y+1), shift(c, slope*(2*y-h)/(2*h)))
	}
}

// between draws a number from lo to hi.
func between(r *rand.Rand, lo, hi float64) float64 { return lo + (hi-lo)*r.Float64() }
