package picture

import (
	"encoding/binary"
	"errors"
	"image"
	"image/color"
	"image/gif"
	"io"
)

var errShort = errors.New("unexpected end of data")

// readGIF reads the size of the screen, which frames may cover in part only.
func readGIF(data []byte, o Options) (header, error) {
	if len(data) < 13 {
		return header{}, formatf("%w", errShort)
	}
	w, h := binary.LittleEndian.Uint16(data[6:]), binary.LittleEndian.Uint16(data[8:])
	head := header{w: int(w), h: int(h), orientation: 1}
	head.decode = func() (*Image, error) { return o.gif(data, head.w, head.h) }
	return head, nil
}

// gif paints the first frame onto the screen. Around a frame Pillow has the color that
// is transparent, or else the first of the palette.
func (o Options) gif(data []byte, w, h int) (*Image, error) {
	control, err := firstControl(data)
	if err != nil {
		return nil, formatf("%w", err)
	}
	var file io.Reader = reader(data)
	clearIndex := -1
	if control > 0 && data[control]&1 != 0 {
		// The decoder replaces the transparent color of the palette, which shows where
		// transparency is dropped. So it gets to see a file without.
		clearIndex = int(data[control+3])
		file = io.MultiReader(reader(data[:control]), reader([]byte{data[control] &^ 1}), reader(data[control+1:]))
	}
	m, err := gif.Decode(file)
	if err != nil {
		return nil, formatf("%w", err)
	}
	frame, ok := m.(*image.Paletted)
	if !ok {
		return nil, unsupportedf("pixels of type %T", m)
	}
	if !frame.Rect.In(image.Rect(0, 0, w, h)) {
		return nil, formatf("a frame of %v on a screen of %d x %d", frame.Rect, w, h)
	}
	colors := o.palette(withClear(frame.Palette, clearIndex))
	out := New(w, h)
	around := colors[max(clearIndex, 0)]
	for i := 0; i < len(out.Pix); i += 3 {
		copy(out.Pix[i:i+3], around[:])
	}
	for y := frame.Rect.Min.Y; y < frame.Rect.Max.Y; y++ {
		to := out.Pix[3*(y*w+frame.Rect.Min.X):]
		for x, i := range frame.Pix[(y-frame.Rect.Min.Y)*frame.Stride:][:frame.Rect.Dx()] {
			copy(to[3*x:3*x+3], colors[i][:])
		}
	}
	return out, nil
}

// withClear returns the palette with a transparent color, which keeps its red, green
// and blue.
func withClear(p color.Palette, index int) color.Palette {
	if index < 0 {
		return p
	}
	out := make(color.Palette, max(len(p), index+1))
	for i := range out {
		out[i] = color.Gray{Y: uint8(i)} // what Pillow has where a palette ends early
		if i < len(p) {
			out[i] = p[i]
		}
	}
	r, g, b, _ := out[index].RGBA()
	out[index] = color.NRGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 0}
	return out
}

// firstControl returns where the flags of the first frame's graphic control extension
// lie, 0 if it has none.
func firstControl(data []byte) (int, error) {
	at, control := 13, 0
	if flags := data[10]; flags&0x80 != 0 {
		at += 3 << (1 + flags&7)
	}
	for at < len(data) {
		switch data[at] {
		case ',':
			return control, nil
		case '!':
			if at+2 < len(data) && data[at+1] == 0xf9 && data[at+2] == 4 && at+7 < len(data) {
				control = at + 3
			}
			at += 2
			for { // blocks up to an empty one
				if at >= len(data) {
					return 0, errShort
				}
				n := int(data[at])
				at += 1 + n
				if n == 0 {
					break
				}
			}
		case ';':
			return 0, errors.New("no frame")
		default:
			return 0, errors.New("unknown block")
		}
	}
	return 0, errShort
}
