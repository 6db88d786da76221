// Package picture decodes images into 8-bit RGB and resizes them, byte for byte as
// Pillow does where that is possible: the processors of vision models were trained and
// are tested on what Pillow makes of a file.
//
// Start with [Decode]; [Size] reads no more than the header. The bytes come from anyone:
// limits are checked before anything is decoded, and every error matches [ErrFormat],
// [ErrUnsupported] or [ErrLimit].
//
// Of PNG, GIF, BMP and WebP the pixels equal those of Pillow. Some things differ on
// purpose: gray PNG of 16 bits keeps its high byte, where Pillow turns everything above
// 255 white; the transparent value of gray PNG of 2 and 4 bits is scaled as the samples
// are; orientation is applied; what is truncated is refused. Of JPEG the pixels
// differ by up to 3 of 255 where chroma is subsampled, as the inverse cosine transform
// of Go rounds otherwise. [Image.Resize] equals Pillow's resize in every byte.
//
// Everything here is pure: no goroutines, no state.
package picture
