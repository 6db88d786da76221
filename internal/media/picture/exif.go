package picture

import (
	"bytes"
	"encoding/binary"
)

// orientation reads the orientation from EXIF data, 1 if there is none that makes sense.
func orientation(exif []byte) int {
	exif = bytes.TrimPrefix(exif, []byte("Exif\x00\x00"))
	if len(exif) < 8 {
		return 1
	}
	var order binary.ByteOrder
	switch string(exif[:4]) {
	case "II*\x00":
		order = binary.LittleEndian
	case "MM\x00*":
		order = binary.BigEndian
	default:
		return 1
	}
	at := uint64(order.Uint32(exif[4:]))
	if at+2 > uint64(len(exif)) {
		return 1
	}
	const tag, short = 0x112, 3
	entries := exif[at+2:]
	for range order.Uint16(exif[at:]) {
		if len(entries) < 12 {
			return 1
		}
		if order.Uint16(entries) == tag && order.Uint16(entries[2:]) == short {
			if v := order.Uint16(entries[8:]); v >= 1 && v <= 8 {
				return int(v)
			}
			return 1
		}
		entries = entries[12:]
	}
	return 1
}

// turn returns the picture upright, whose pixels lie as the orientation says.
func (m *Image) turn(orientation int) *Image {
	if orientation <= 1 || orientation > 8 {
		return m
	}
	o := orientation - 1
	swap := o >= 4
	// Bits of the orientation: whether the stored rows run from right to left, and
	// whether they lie from bottom to top, as seen upright.
	flipX := o == 1 || o == 2 || o == 5 || o == 6
	flipY := o == 2 || o == 3 || o == 6 || o == 7
	w, h := m.W, m.H
	if swap {
		w, h = h, w
	}
	out := New(w, h)
	i := 0
	for y := range h {
		for x := range w {
			ox, oy := x, y
			if flipX {
				ox = w - 1 - x
			}
			if flipY {
				oy = h - 1 - y
			}
			if swap {
				ox, oy = oy, ox
			}
			copy(out.Pix[i:i+3], m.Pix[3*(oy*m.W+ox):])
			i += 3
		}
	}
	return out
}
