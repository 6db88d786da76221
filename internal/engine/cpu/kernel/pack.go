package kernel

import "unsafe"

// Width is the number of outputs in a panel of weights.
const Width = 32

// Panels is the number of panels that so many outputs take.
func Panels(rows int) int { return (rows + Width - 1) / Width }

// PanelBytes is the size of a panel of rows with so many weights.
func PanelBytes(t Type, cols int) int {
	if t.Quantized() {
		l := layouts[t]
		return cols / l.weights * l.panel
	}
	return Width * t.RowBytes((cols+1)&^1)
}

// Pack writes one panel: up to 32 rows of cols weights each, one after the other at
// src, in the order in which [Level.Product] reads them. Missing rows and an odd
// last k are filled with zeros. dst has PanelBytes bytes, aligned to 64.
//
// f32 and f16: [k][output]. bf16: [k / 2][output][k % 2], which is the order of
// tiles, too, and lets a shift or a mask widen 16 outputs at a time.
//
// Quantized weights: see pack_block.go.
func Pack(t Type, dst, src unsafe.Pointer, rows, cols int) {
	if t == F32 && rows == Width && cols%2 == 0 {
		packLines(unsafe.Slice((*uint32)(dst), cols*Width), unsafe.Slice((*uint32)(src), Width*cols), cols)
		return
	}
	if t.Quantized() {
		packBlocks(t, unsafe.Slice((*byte)(dst), PanelBytes(t, cols)), unsafe.Slice((*byte)(src), rows*t.RowBytes(cols)), rows)
		return
	}
	if t == F32 {
		packWords(unsafe.Slice((*uint32)(dst), (cols+1)&^1*Width), unsafe.Slice((*uint32)(src), rows*cols), rows, cols)
		return
	}
	in, out := unsafe.Slice((*uint16)(src), rows*cols), unsafe.Slice((*uint16)(dst), (cols+1)&^1*Width)
	if t == BF16 && rows == Width && cols%2 == 0 && uintptr(src)%4 == 0 {
		packLines(unsafe.Slice((*uint32)(dst), cols/2*Width), unsafe.Slice((*uint32)(src), Width*cols/2), cols/2)
		return
	}
	packHalves(out, in, rows, cols, t == BF16)
}

// packLines transposes all rows of a panel, with the kernel of the machine if it has
// one.
func packLines(dst, src []uint32, cols int) {
	done := transpose(asBytes(dst), asBytes(src), cols)
	if done == 0 {
		packWords(dst, src, Width, cols)
		return
	}
	for r := range Width {
		for k := done; k < cols; k++ {
			dst[k*Width+r] = src[r*cols+k]
		}
	}
}

func asBytes(words []uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), 4*len(words))
}

// packWords transposes.
func packWords(dst, src []uint32, rows, cols int) {
	if rows < Width || cols%2 == 1 {
		clear(dst)
	}
	for r := 0; r < rows; r += 8 {
		if r+8 > rows {
			for ; r < rows; r++ {
				row := src[r*cols : (r+1)*cols]
				for k, v := range row {
					dst[k*Width+r] = v
				}
			}
			return
		}
		in := src[r*cols : (r+8)*cols]
		r0, r1, r2, r3 := in[:cols], in[cols:][:cols], in[2*cols:][:cols], in[3*cols:][:cols]
		r4, r5, r6, r7 := in[4*cols:][:cols], in[5*cols:][:cols], in[6*cols:][:cols], in[7*cols:][:cols]
		for k := range r0 {
			out := dst[k*Width+r:][:8]
			out[0], out[1], out[2], out[3] = r0[k], r1[k], r2[k], r3[k]
			out[4], out[5], out[6], out[7] = r4[k], r5[k], r6[k], r7[k]
		}
	}
}

// packHalves transposes 16-bit weights, in pairs of k or one by one.
func packHalves(dst, src []uint16, rows, cols int, pairs bool) {
	if rows < Width || cols%2 == 1 {
		clear(dst)
	}
	r := 0
	for ; r+8 <= rows && !pairs; r += 8 {
		in := src[r*cols : (r+8)*cols]
		r0, r1, r2, r3 := in[:cols], in[cols:][:cols], in[2*cols:][:cols], in[3*cols:][:cols]
		r4, r5, r6, r7 := in[4*cols:][:cols], in[5*cols:][:cols], in[6*cols:][:cols], in[7*cols:][:cols]
		for k := range r0 {
			out := dst[k*Width+r:][:8]
			out[0], out[1], out[2], out[3] = r0[k], r1[k], r2[k], r3[k]
			out[4], out[5], out[6], out[7] = r4[k], r5[k], r6[k], r7[k]
		}
	}
	for ; r < rows; r++ {
		row := src[r*cols : (r+1)*cols]
		if pairs {
			for k, v := range row {
				dst[k/2*2*Width+2*r+k%2] = v
			}
			continue
		}
		for k, v := range row {
			dst[k*Width+r] = v
		}
	}
}
