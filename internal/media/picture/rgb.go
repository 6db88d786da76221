package picture

import (
	"image"
	"image/color"
)

// overWhite lays a color of some opacity over white, rounding as Pillow's
// alpha_composite does, which works with 7 bits more.
func overWhite(c, a uint8) uint8 {
	if a == 0 {
		return 255
	}
	t := uint32(c)*uint32(a)<<7 + 255*uint32(255-a)<<7 + 0x80<<7
	return uint8((t>>8 + t) >> 8 >> 7)
}

// put stores a pixel whose alpha is a.
func (o Options) put(to []byte, r, g, b, a uint8) {
	_ = to[2]
	if o.OverWhite && a != 255 {
		r, g, b = overWhite(r, a), overWhite(g, a), overWhite(b, a)
	}
	to[0], to[1], to[2] = r, g, b
}

// rgb converts what decoders return, but for planes of JPEG and WebP. Of 16 bits it
// keeps the upper 8.
func (o Options) rgb(m image.Image) (*Image, error) {
	size := m.Bounds().Size()
	out := New(size.X, size.Y)
	var row func(to []byte, y int)
	switch m := m.(type) {
	case *image.Gray:
		row = func(to []byte, y int) { spread(to, m.Pix[y*m.Stride:], 1) }
	case *image.Gray16:
		row = func(to []byte, y int) { spread(to, m.Pix[y*m.Stride:], 2) }
	case *image.RGBA: // decoders return it for opaque images only
		row = func(to []byte, y int) {
			o.pixels(to, m.Pix[y*m.Stride:], 1)
		}
	case *image.NRGBA:
		row = func(to []byte, y int) { o.pixels(to, m.Pix[y*m.Stride:], 1) }
	case *image.RGBA64: // opaque, as above
		row = func(to []byte, y int) { o.pixels(to, m.Pix[y*m.Stride:], 2) }
	case *image.NRGBA64:
		row = func(to []byte, y int) { o.pixels(to, m.Pix[y*m.Stride:], 2) }
	case *image.CMYK:
		row = func(to []byte, y int) { ink(to, m.Pix[y*m.Stride:]) }
	case *image.Paletted:
		colors := o.palette(m.Palette)
		row = func(to []byte, y int) {
			for x, i := range m.Pix[y*m.Stride:][:size.X] {
				copy(to[3*x:3*x+3], colors[i][:])
			}
		}
	default:
		return nil, unsupportedf("pixels of type %T", m)
	}
	for y := range size.Y {
		row(out.Pix[3*size.X*y:3*size.X*(y+1)], y)
	}
	return out, nil
}

// spread makes gray of one sample of some bytes for each pixel.
func spread(to, from []byte, bytes int) {
	for i, j := 0, 0; i < len(to); i, j = i+3, j+bytes {
		to[i], to[i+1], to[i+2] = from[j], from[j], from[j]
	}
}

// pixels takes four samples of some bytes for each pixel: red, green, blue, alpha.
func (o Options) pixels(to, from []byte, bytes int) {
	for i, j := 0, 0; i < len(to); i, j = i+3, j+4*bytes {
		o.put(to[i:i+3], from[j], from[j+bytes], from[j+2*bytes], from[j+3*bytes])
	}
}

// ink converts cyan, magenta, yellow and black.
func ink(to, from []byte) {
	for i, j := 0, 0; i < len(to); i, j = i+3, j+4 {
		light := 255 - int(from[j+3])
		for c := range 3 {
			t := int(from[j+c])*light + 128
			to[i+c] = uint8(max(light-(t>>8+t)>>8, 0))
		}
	}
}

// palette returns 256 colors; those that a file lacks are black.
func (o Options) palette(p color.Palette) (colors [256][3]uint8) {
	for i, c := range p[:min(len(p), 256)] {
		switch c := c.(type) {
		case color.RGBA:
			o.put(colors[i][:], c.R, c.G, c.B, c.A)
		case color.Gray:
			o.put(colors[i][:], c.Y, c.Y, c.Y, 255)
		case color.NRGBA:
			o.put(colors[i][:], c.R, c.G, c.B, c.A)
		}
	}
	return colors
}
