package picture

import (
	"errors"
	"fmt"
)

// Errors of this package match one of these.
var (
	// ErrFormat is returned for data that is no image or a broken one.
	ErrFormat = errors.New("not a valid image")
	// ErrUnsupported is returned for valid images of a kind that is not decoded.
	ErrUnsupported = errors.New("unsupported image")
	// ErrLimit is returned for images that are larger than the limits allow.
	ErrLimit = errors.New("image over the limit")
)

// Image is a picture of 8-bit RGB: three bytes a pixel, row by row, without padding.
type Image struct {
	W, H int
	Pix  []byte
}

// New returns a black picture.
func New(w, h int) *Image { return &Image{W: w, H: h, Pix: make([]byte, 3*w*h)} }

// Window copies the w × h pixels whose upper left corner is at (x, y). What lies outside
// of the picture is black, so that a window may crop and pad.
func (m *Image) Window(x, y, w, h int) *Image {
	out := New(w, h)
	left, right := max(x, 0), min(x+w, m.W)
	if left >= right {
		return out
	}
	for row := max(y, 0); row < min(y+h, m.H); row++ {
		copy(out.Pix[3*((row-y)*w+left-x):], m.Pix[3*(row*m.W+left):3*(row*m.W+right)])
	}
	return out
}

// Limits bound what [Decode] takes. A field that is 0 means the default.
type Limits struct {
	Bytes  int // of the encoded image; default 32 MiB
	Pixels int // default 64 Mi: 192 MiB of RGB, and up to 1.2 GiB while a progressive JPEG is decoded
	Side   int // pixels of width and height; default 32768
}

func (l Limits) bytes() int  { return orDefault(l.Bytes, 32<<20) }
func (l Limits) pixels() int { return orDefault(l.Pixels, 64<<20) }
func (l Limits) side() int   { return orDefault(l.Side, 32<<10) }

func orDefault(n, def int) int {
	if n == 0 {
		return def
	}
	return n
}

// check tells whether an image of this size may be decoded.
func (l Limits) check(w, h int) error {
	switch {
	case w < 1 || h < 1:
		return formatf("it has %d x %d pixels", w, h)
	case w > l.side() || h > l.side():
		return fmt.Errorf("%w: %d x %d pixels, a side may have %d", ErrLimit, w, h, l.side())
	case w > l.pixels()/h:
		return fmt.Errorf("%w: %d x %d pixels, %d are allowed", ErrLimit, w, h, l.pixels())
	}
	return nil
}

func formatf(text string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrFormat, fmt.Errorf(text, args...))
}

func unsupportedf(text string, args ...any) error {
	return fmt.Errorf("%w: %w", ErrUnsupported, fmt.Errorf(text, args...))
}
