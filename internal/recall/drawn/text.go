package drawn

import (
	"image"
	"image/color"
	"math/rand/v2"
	"sync"

	"golang.org/x/image/font"
	"golang.org/x/image/font/basicfont"
	"golang.org/x/image/font/gofont/gobold"
	"golang.org/x/image/font/opentype"
	"golang.org/x/image/math/fixed"
)

// glyph is the shape of a character, how much of each of its pixels is ink.
type glyph struct {
	w, h int
	ink  []uint8
}

const masterHeight = 64 // pixels of a digit of the outline font

// fonts are the digits of each font, cut to their ink's height: made once, and resized
// where they are drawn.
var fonts = sync.OnceValue(func() [2][10]glyph {
	parsed, err := opentype.Parse(gobold.TTF)
	if err != nil {
		panic(err) // it is part of the program
	}
	outline, err := opentype.NewFace(parsed, &opentype.FaceOptions{Size: masterHeight / 0.72, DPI: 72})
	if err != nil {
		panic(err)
	}
	var out [2][10]glyph
	for i, face := range []font.Face{outline, basicfont.Face7x13} {
		for d := range 10 {
			out[i][d] = cut(face, rune('0'+d))
		}
	}
	return out
})

// cut draws a digit and cuts off the rows above and below.
func cut(face font.Face, c rune) glyph {
	advance, _ := face.GlyphAdvance(c)
	w, h := advance.Ceil(), 2*face.Metrics().Height.Ceil()
	canvas := image.NewAlpha(image.Rect(0, 0, w, h))
	d := font.Drawer{Dst: canvas, Src: image.Opaque, Face: face, Dot: fixed.P(0, h/2)}
	d.DrawString(string(c))
	top, bottom := h, 0
	for y := range h {
		for x := range w {
			if canvas.AlphaAt(x, y).A > 0 {
				top, bottom = min(top, y), max(bottom, y+1)
			}
		}
	}
	g := glyph{w: w, h: bottom - top}
	for y := top; y < bottom; y++ {
		g.ink = append(g.ink, canvas.Pix[y*canvas.Stride:y*canvas.Stride+w]...)
	}
	return g
}

// digit draws one in a box.
func (p *Picture) digit(font, d int, box image.Rectangle, c color.RGBA) {
	g := fonts()[font][d]
	for y := box.Min.Y; y < box.Max.Y; y++ {
		for x := box.Min.X; x < box.Max.X; x++ {
			if !image.Pt(x, y).In(p.Image.Rect) {
				continue
			}
			a := g.at((float64(x-box.Min.X)+0.5)*float64(g.w)/float64(box.Dx())-0.5, (float64(y-box.Min.Y)+0.5)*float64(g.h)/float64(box.Dy())-0.5)
			at := p.Image.Pix[p.Image.PixOffset(x, y):]
			at[0], at[1], at[2] = blend(at[0], c.R, a), blend(at[1], c.G, a), blend(at[2], c.B, a)
		}
	}
}

// at returns how much ink is at a place between pixels.
func (g glyph) at(x, y float64) float64 {
	x, y = min(max(x, 0), float64(g.w-1)), min(max(y, 0), float64(g.h-1))
	left, top := int(x), int(y)
	right, bottom := min(left+1, g.w-1), min(top+1, g.h-1)
	fx, fy := x-float64(left), y-float64(top)
	ink := func(x, y int) float64 { return float64(g.ink[y*g.w+x]) / 255 }
	return (1-fy)*((1-fx)*ink(left, top)+fx*ink(right, top)) + fy*((1-fx)*ink(left, bottom)+fx*ink(right, bottom))
}

func blend(from, to uint8, part float64) uint8 {
	return uint8(float64(from) + (float64(to)-float64(from))*part + 0.5)
}

// line draws digits side by side from (x, y) on, each of that width and height, and notes
// them as objects.
func (p *Picture) line(r *rand.Rand, digits []int, x, y, width, height float64, c color.RGBA, places bool) {
	font := r.IntN(2)
	for i, d := range digits {
		box := image.Rect(int(x+float64(i)*width), int(y), int(x+float64(i+1)*width), int(y+height))
		p.digit(font, d, box, c)
		place := -1
		if places {
			place = i
		}
		p.Objects = append(p.Objects, Object{Class: d, Color: -1, Place: place, Box: box})
	}
}
