//go:build !amd64

package kernel

// transpose packs the whole panel.
func transpose(dst, src []uint32, cols int) int {
	packWords(dst, src, Width, cols)
	return cols
}
