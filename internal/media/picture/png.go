package picture

import (
	"encoding/binary"
	"image"
	"image/png"
)

// readPNG reads IHDR and looks for the chunk with EXIF data. An animated PNG is a PNG
// with more chunks: the decoder sees its default image, which most have as first frame.
func readPNG(data []byte, o Options) (header, error) {
	if len(data) < 33 || string(data[12:16]) != "IHDR" {
		return header{}, formatf("its first chunk is not IHDR")
	}
	w, h := binary.BigEndian.Uint32(data[16:]), binary.BigEndian.Uint32(data[20:])
	if w > 1<<31-1 || h > 1<<31-1 {
		return header{}, formatf("it has %d x %d pixels", w, h)
	}
	head := header{w: int(w), h: int(h), orientation: 1}
	for rest := data[8:]; len(rest) >= 12; {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-12 {
			break // for the decoder to refuse
		}
		if string(rest[4:8]) == "eXIf" {
			head.orientation = orientation(rest[8 : 8+n])
		}
		rest = rest[12+n:]
	}
	const trueColor = 2
	if data[25] == trueColor {
		// A file without an alpha channel may declare one color transparent. The
		// processors that compose leave images of mode RGB as they are.
		o.OverWhite = false
	}
	head.decode = func() (*Image, error) {
		var m image.Image
		m, err := png.Decode(reader(data))
		if m, err = checked(m, err, head.w, head.h); err != nil {
			return nil, err
		}
		return o.rgb(m)
	}
	return head, nil
}
