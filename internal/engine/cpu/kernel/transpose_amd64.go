package kernel

//go:noescape
func transposeWordsAVX512(dst, src *byte, stride, blocks int)

//go:noescape
func transposeQ8_0AVX512(dst, src *byte, stride, blocks int)

//go:noescape
func transposeQ4_0AVX512(dst, src *byte, stride, blocks int)

// transpose packs the first columns of a panel and returns how many. dst is aligned to
// 64 bytes.
func transpose(dst, src []byte, cols int) int {
	blocks := cols / 16
	if Best() < AVX512 || blocks == 0 {
		return 0
	}
	for half := range 2 {
		transposeWordsAVX512(&dst[64*half], &src[16*half*4*cols], 4*cols, blocks)
	}
	return 16 * blocks
}

// transposeBlocks packs all but the scales of the first blocks of a panel of 32 rows,
// row bytes each, and returns how many blocks.
func transposeBlocks(t Type, dst, src []byte, row int) int {
	kernel, together := transposeQ8_0AVX512, 2
	if t == Q4_0 {
		kernel, together = transposeQ4_0AVX512, 4
	}
	n := row / layouts[t].bytes / together
	if Best() < AVX512 || t != Q8_0 && t != Q4_0 || n == 0 {
		return 0
	}
	const scale = 2 // bytes of a block in the file
	for half := range 2 {
		kernel(&dst[64+64*half], &src[16*half*row+scale], row, n)
	}
	return n * together
}
