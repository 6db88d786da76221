package picture

import "image"

// rgbOfJPEG converts the planes of a JPEG as libjpeg-turbo does, which Pillow uses: chroma is
// interpolated between samples, where Go's own conversion repeats them.
func rgbOfJPEG(m *image.YCbCr) (*Image, error) {
	w, h := m.Rect.Dx(), m.Rect.Dy()
	var up upsampler
	switch m.SubsampleRatio {
	case image.YCbCrSubsampleRatio444:
		up = upsampler{w, h, 1, 1}
	case image.YCbCrSubsampleRatio422:
		up = upsampler{w, h, 2, 1}
	case image.YCbCrSubsampleRatio420:
		up = upsampler{w, h, 2, 2}
	case image.YCbCrSubsampleRatio440:
		up = upsampler{w, h, 1, 2}
	case image.YCbCrSubsampleRatio411:
		up = upsampler{w, h, 4, 1}
	case image.YCbCrSubsampleRatio410:
		up = upsampler{w, h, 4, 2}
	default:
		return nil, unsupportedf("chroma subsampled as %v", m.SubsampleRatio)
	}
	out := New(w, h)
	cb, cr := make([]uint8, w+4), make([]uint8, w+4)
	sums := make([]int32, w+1)
	for y := range h {
		up.row(cb, sums, m.Cb, m.CStride, y)
		up.row(cr, sums, m.Cr, m.CStride, y)
		jpegRow(out.Pix[3*y*w:3*(y+1)*w], m.Y[y*m.YStride:], cb, cr)
	}
	return out, nil
}

// upsampler makes rows of chroma as wide as the picture, from samples that stand for
// across × down pixels.
type upsampler struct{ w, h, across, down int }

// row writes the chroma of row y. Two samples across or down are interpolated by a
// triangle: three parts of the nearer and one of the farther. Roundings alternate, so
// that none of both neighbors gains. Of four samples each is repeated, as libjpeg does.
func (u upsampler) row(to []uint8, sums []int32, plane []uint8, stride, y int) {
	cw, ch := (u.w+u.across-1)/u.across, (u.h+u.down-1)/u.down
	near := plane[y/u.down*stride:][:cw]
	narrow := cw <= 2 && u.across == 2 // libjpeg repeats these
	if u.across == 1 && u.down == 1 {
		copy(to, near)
		return
	}
	if u.across == 4 || narrow {
		for x, v := range near {
			for i := range u.across {
				to[x*u.across+i] = v
			}
		}
		return
	}
	if u.down == 1 {
		for x, v := range near {
			v := int32(v)
			to[2*x] = uint8((3*v + int32(near[max(x-1, 0)]) + 1) >> 2)
			to[2*x+1] = uint8((3*v + int32(near[min(x+1, cw-1)]) + 2) >> 2)
		}
		return
	}
	other, bias := y/2-1, int32(1)
	if y%2 == 1 {
		other, bias = y/2+1, 2
	}
	far := plane[min(max(other, 0), ch-1)*stride:][:cw]
	if u.across == 1 {
		for x, v := range near {
			to[x] = uint8((3*int32(v) + int32(far[x]) + bias) >> 2)
		}
		return
	}
	sums = sums[:cw]
	for x, v := range near {
		sums[x] = 3*int32(v) + int32(far[x])
	}
	for x, v := range sums {
		to[2*x] = uint8((3*v + sums[max(x-1, 0)] + 8) >> 4)
		to[2*x+1] = uint8((3*v + sums[min(x+1, cw-1)] + 7) >> 4)
	}
}

// jpegRow converts a row of luma and chroma in the full range, with 16 bits of fraction.
func jpegRow(to, luma, cb, cr []uint8) {
	const half = 1 << 15
	for i, x := 0, 0; i < len(to); i, x = i+3, x+1 {
		y, b, r := int32(luma[x]), int32(cb[x])-128, int32(cr[x])-128
		to[i] = clip(y + (91881*r+half)>>16)
		to[i+1] = clip(y + (-22554*b-46802*r+half)>>16)
		to[i+2] = clip(y + (116130*b+half)>>16)
	}
}

func clip(v int32) uint8 {
	if uint32(v) > 255 {
		return uint8(^(v >> 31)) // 0 if negative
	}
	return uint8(v)
}
