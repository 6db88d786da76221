package picture

import (
	"bytes"
	"fmt"
	"image"
)

// Options say what [Decode] makes of a file. The zero value is the ordinary case.
type Options struct {
	// OverWhite lays transparent pixels over white, as the processors of SmolVLM and
	// Idefics3 do. Otherwise transparency is dropped, as Pillow's convert("RGB") does:
	// the color that a file has under transparent pixels shows.
	OverWhite bool
	// AsStored leaves the pixels as they lie in the file. Otherwise they are turned as
	// the file's EXIF orientation says, so that the model sees what the sender saw; so
	// does transformers when it loads an image by itself. A processor that is handed a
	// file which Pillow has opened does not turn it, which is what AsStored is for.
	AsStored bool
	Limits   Limits
}

// header is what a file says of itself before its pixels.
type header struct {
	format      string
	w, h        int
	orientation int // of EXIF, 1 to 8; 1 is upright
	decode      func() (*Image, error)
}

// size returns the size after turning.
func (h header) size(o Options) (w, hh int) {
	if !o.AsStored && h.orientation >= 5 {
		return h.h, h.w
	}
	return h.w, h.h
}

// Size returns the width and height of what Decode returns, reading only headers. It
// refuses what is over the limits.
func Size(data []byte, o Options) (w, h int, err error) {
	head, err := read(data, o)
	if err != nil {
		return 0, 0, err
	}
	w, h = head.size(o)
	return w, h, nil
}

// Decode decodes an image of PNG, JPEG, WebP, GIF or BMP. Of an animation it takes the
// first frame.
func Decode(data []byte, o Options) (*Image, error) {
	head, err := read(data, o)
	if err != nil {
		return nil, err
	}
	m, err := head.decode()
	if err != nil {
		return nil, fmt.Errorf("decode %s: %w", head.format, err)
	}
	if !o.AsStored {
		m = m.turn(head.orientation)
	}
	return m, nil
}

// formats are told apart by their first bytes; a ? stands for any.
var formats = []struct {
	name, magic string
	read        func(data []byte, o Options) (header, error)
}{
	{"PNG", "\x89PNG\r\n\x1a\n", readPNG},
	{"JPEG", "\xff\xd8\xff", readJPEG},
	{"WebP", "RIFF????WEBP", readWebP},
	{"GIF", "GIF8?a", readGIF},
	{"BMP", "BM", readBMP},
}

func read(data []byte, o Options) (header, error) {
	if limit := o.Limits.bytes(); len(data) > limit {
		return header{}, fmt.Errorf("%w: %d bytes, %d are allowed", ErrLimit, len(data), limit)
	}
	for _, f := range formats {
		if !matches(f.magic, data) {
			continue
		}
		head, err := f.read(data, o)
		if err == nil {
			err = o.Limits.check(head.w, head.h)
		}
		if err != nil {
			return header{}, fmt.Errorf("read %s: %w", f.name, err)
		}
		head.format = f.name
		return head, nil
	}
	return header{}, unsupportedf("not PNG, JPEG, WebP, GIF or BMP")
}

func matches(magic string, data []byte) bool {
	if len(data) < len(magic) {
		return false
	}
	for i := range len(magic) {
		if magic[i] != '?' && magic[i] != data[i] {
			return false
		}
	}
	return true
}

// checked returns an image that a decoder made, if it has the size that was announced:
// the limits were checked on that one.
func checked(m image.Image, err error, w, h int) (image.Image, error) {
	if err != nil {
		return nil, formatf("%w", err)
	}
	if size := m.Bounds().Size(); size.X != w || size.Y != h {
		return nil, formatf("%d x %d pixels, announced are %d x %d", size.X, size.Y, w, h)
	}
	return m, nil
}

func reader(data []byte) *bytes.Reader { return bytes.NewReader(data) }
