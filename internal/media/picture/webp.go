package picture

import (
	"bytes"
	"encoding/binary"
	"image"

	"golang.org/x/image/webp"
)

// riffChunk is a chunk of a RIFF file.
type riffChunk struct {
	name string
	data []byte
}

// riffChunks cuts data into chunks. It stops where data end early: the decoder says so.
func riffChunks(data []byte) (chunks []riffChunk) {
	for len(data) >= 8 {
		n := uint64(binary.LittleEndian.Uint32(data[4:]))
		if n > uint64(len(data)-8) {
			break
		}
		chunks = append(chunks, riffChunk{string(data[:4]), data[8 : 8+n]})
		data = data[min(8+n+n%2, uint64(len(data))):]
	}
	return chunks
}

// canvas is where a frame lies in an animation.
type canvas struct{ w, h, x, y int }

func uint24(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// readWebP reads the size of a still image or of the canvas of an animation.
func readWebP(data []byte, o Options) (header, error) {
	head := header{orientation: 1}
	chunks := riffChunks(data[12:])
	if len(chunks) == 0 {
		return header{}, formatf("%w", errShort)
	}
	var place *canvas
	if first := chunks[0]; first.name == "VP8X" && len(first.data) == 10 {
		for _, c := range chunks {
			if c.name == "EXIF" {
				head.orientation = orientation(c.data)
			}
		}
		const animated, transparent = 2, 16
		if first.data[0]&animated != 0 {
			o.OverWhite = o.OverWhite && first.data[0]&transparent != 0
			place = &canvas{w: uint24(first.data[4:]) + 1, h: uint24(first.data[7:]) + 1}
			if data = place.firstFrame(chunks); data == nil {
				return header{}, formatf("an animation without a first frame")
			}
		}
	}
	config, err := webp.DecodeConfig(reader(data))
	if err != nil {
		return header{}, formatf("%w", err)
	}
	w, h := config.Width, config.Height
	head.w, head.h = w, h
	if place != nil {
		if place.x+w > place.w || place.y+h > place.h {
			return header{}, formatf("a frame outside of the canvas")
		}
		head.w, head.h = place.w, place.h
	}
	head.decode = func() (*Image, error) {
		m, err := o.webp(data, w, h)
		if err != nil || place == nil || w == place.w && h == place.h {
			return m, err
		}
		return o.onCanvas(m, *place), nil
	}
	return head, nil
}

// firstFrame makes a file of the first frame of an animation.
func (c *canvas) firstFrame(chunks []riffChunk) []byte {
	for _, chunk := range chunks {
		if chunk.name != "ANMF" {
			continue
		}
		frame := chunk.data
		if len(frame) < 16 {
			return nil
		}
		c.x, c.y = 2*uint24(frame), 2*uint24(frame[3:])
		// The frame's own size becomes that of a still image's canvas.
		var flags byte
		for _, part := range riffChunks(frame[16:]) {
			if part.name == "ALPH" {
				flags |= 0x10
			}
		}
		size := binary.LittleEndian.AppendUint32(nil, uint32(4+18+len(frame)-16))
		return bytes.Join([][]byte{
			[]byte("RIFF"), size, []byte("WEBPVP8X\x0a\x00\x00\x00"), {flags, 0, 0, 0}, frame[6:12], frame[16:],
		}, nil)
	}
	return nil
}

// onCanvas surrounds a frame by what is transparent.
func (o Options) onCanvas(m *Image, c canvas) *Image {
	out := New(c.w, c.h)
	if o.OverWhite {
		for i := range out.Pix {
			out.Pix[i] = 255
		}
	}
	for y := range m.H {
		copy(out.Pix[3*((c.y+y)*c.w+c.x):], m.Pix[3*y*m.W:3*(y+1)*m.W])
	}
	return out
}

func (o Options) webp(data []byte, w, h int) (*Image, error) {
	var m image.Image
	m, err := webp.Decode(reader(data))
	if m, err = checked(m, err, w, h); err != nil {
		return nil, err
	}
	switch m := m.(type) {
	case *image.YCbCr:
		return o.rgbOfWebP(m, nil, 0), nil
	case *image.NYCbCrA:
		return o.rgbOfWebP(&m.YCbCr, m.A, m.AStride), nil
	}
	return o.rgb(m)
}

// rgbOfWebP converts planes as libwebp does. Lossy WebP keeps luma between 16 and 235,
// which Go's conversion takes for the full range.
func (o Options) rgbOfWebP(m *image.YCbCr, alpha []byte, alphaStride int) *Image {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	out := New(w, h)
	cb, cr, sums := make([]uint8, w+1), make([]uint8, w+1), make([]int32, (w+1)/2)
	for y := range h {
		webpChroma(cb, sums, m.Cb, m.CStride, y, w, h)
		webpChroma(cr, sums, m.Cr, m.CStride, y, w, h)
		luma := m.Y[y*m.YStride:]
		to := out.Pix[3*y*w : 3*(y+1)*w]
		for x := range w {
			yy, u, v := int32(luma[x])*19077>>8, int32(cb[x]), int32(cr[x])
			r := clip((yy + v*26149>>8 - 14234) >> 6)
			g := clip((yy - u*6419>>8 - v*13320>>8 + 8708) >> 6)
			b := clip((yy + u*33050>>8 - 17685) >> 6)
			a := uint8(255)
			if alpha != nil {
				a = alpha[y*alphaStride+x]
			}
			o.put(to[3*x:3*x+3], r, g, b, a)
		}
	}
	return out
}

// webpChroma makes a row of chroma of full width: each pixel has 9 parts of the nearest
// sample, 3 of the next across, 3 of the next down and 1 of the one between these.
func webpChroma(to []uint8, sums []int32, plane []uint8, stride, y, w, h int) {
	cw, ch := (w+1)/2, (h+1)/2
	other := y/2 - 1
	if y%2 == 1 {
		other = y/2 + 1
	}
	near, far := plane[y/2*stride:][:cw], plane[min(max(other, 0), ch-1)*stride:][:cw]
	sums = sums[:cw]
	for x, v := range near {
		sums[x] = 3*int32(v) + int32(far[x])
	}
	for x, v := range sums {
		to[2*x] = uint8((3*v + sums[max(x-1, 0)] + 8) >> 4)
		to[2*x+1] = uint8((3*v + sums[min(x+1, cw-1)] + 8) >> 4)
	}
}
