package picture

import (
	"errors"
	"image"

	"golang.org/x/image/bmp"
)

// readBMP knows uncompressed files of 1, 2, 4, 8, 24 and 32 bits a pixel.
func readBMP(data []byte, o Options) (header, error) {
	config, err := bmp.DecodeConfig(reader(data))
	if errors.Is(err, bmp.ErrUnsupported) {
		return header{}, unsupportedf("compressed, of 16 bits, or with a rare header")
	} else if err != nil {
		return header{}, formatf("%w", err)
	}
	head := header{w: config.Width, h: config.Height, orientation: 1}
	head.decode = func() (*Image, error) {
		var m image.Image
		m, err := bmp.Decode(reader(data))
		if m, err = checked(m, err, head.w, head.h); err != nil {
			return nil, err
		}
		return o.rgb(m)
	}
	return head, nil
}
