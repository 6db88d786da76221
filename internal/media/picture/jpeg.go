package picture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
)

// maxScans bounds the passes over a JPEG. Progressive files have about ten, and each one
// may cost as much as the whole picture while it takes few bytes.
const maxScans = 100

// readJPEG walks through the segments up to the end of the image, which costs little:
// scans are searched for the next marker and not decoded.
func readJPEG(data []byte, o Options) (header, error) {
	head := header{orientation: 1}
	scans := 0
	rest := data[2:]
	for {
		marker, after, err := nextMarker(rest)
		if err != nil {
			return header{}, formatf("%w", err)
		}
		rest = after
		if marker == 0xd9 { // end of image
			break
		}
		if len(rest) < 2 {
			return header{}, formatf("%w", errShort)
		}
		n := int(binary.BigEndian.Uint16(rest))
		if n < 2 || n > len(rest) {
			return header{}, formatf("a segment of %d bytes where %d are left", n, len(rest))
		}
		segment := rest[2:n]
		rest = rest[n:]
		switch marker {
		case 0xc0, 0xc1, 0xc2: // frame: baseline, extended, progressive
			if len(segment) < 6 {
				return header{}, formatf("%w", errShort)
			}
			head.h, head.w = int(binary.BigEndian.Uint16(segment[1:])), int(binary.BigEndian.Uint16(segment[3:]))
			if head.h == 0 {
				return header{}, unsupportedf("its height follows the pixels")
			}
			if err := o.Limits.check(head.w, head.h); err != nil {
				return header{}, err
			}
		case 0xc3, 0xc5, 0xc6, 0xc7, 0xc9, 0xca, 0xcb, 0xcd, 0xce, 0xcf:
			return header{}, unsupportedf("lossless, hierarchical or with arithmetic coding")
		case 0xda: // start of scan
			if scans++; scans > maxScans {
				return header{}, fmt.Errorf("%w: more than %d scans", ErrLimit, maxScans)
			}
		case 0xe1:
			if bytes.HasPrefix(segment, []byte("Exif\x00\x00")) {
				head.orientation = orientation(segment)
			}
		}
	}
	if head.w == 0 || scans == 0 {
		return header{}, formatf("no frame or no scan")
	}
	head.decode = func() (*Image, error) { return o.jpeg(data, head.w, head.h) }
	return head, nil
}

// nextMarker finds the next marker but restarts, and returns what follows it.
func nextMarker(data []byte) (marker byte, rest []byte, err error) {
	for {
		i := bytes.IndexByte(data, 0xff)
		if i < 0 || i+1 >= len(data) {
			return 0, nil, errShort
		}
		data = data[i+1:]
		switch c := data[0]; {
		case c == 0xff: // fill byte
		case c == 0 || c >= 0xd0 && c <= 0xd7: // data, and restarts
			data = data[1:]
		default:
			return c, data[1:], nil
		}
	}
}

func (o Options) jpeg(data []byte, w, h int) (*Image, error) {
	m, err := jpeg.Decode(reader(data))
	var unsupported jpeg.UnsupportedError
	if errors.As(err, &unsupported) {
		return nil, unsupportedf("%w", err)
	}
	if m, err = checked(m, err, w, h); err != nil {
		return nil, err
	}
	if planes, ok := m.(*image.YCbCr); ok {
		return rgbOfJPEG(planes)
	}
	return o.rgb(m)
}
