package kernel

//go:noescape
func transposeAVX512(dst, src *uint32, stride, blocks int)

// transpose packs the first columns of a panel and returns how many. dst is aligned to
// 64 bytes.
func transpose(dst, src []uint32, cols int) int {
	blocks := cols / 16
	if Best() != AVX512 || blocks == 0 {
		packWords(dst, src, Width, cols)
		return cols
	}
	for r := 0; r < Width; r += 16 {
		transposeAVX512(&dst[r], &src[r*cols], 4*cols, blocks)
	}
	return 16 * blocks
}
