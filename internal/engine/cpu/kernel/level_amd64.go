package kernel

import "golang.org/x/sys/cpu"

// lowest is the first level with kernels.
const lowest = AVX2

func best() Level {
	x := &cpu.X86
	switch {
	case !x.HasAVX2 || !x.HasFMA || !x.HasF16C:
		return Portable
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512DQ || !x.HasAVX512VL:
		return AVX2
	case !hasAMX():
		return AVX512
	}
	return AMX
}

func (l Level) product(t Type, width, m int, c *Call) {
	if l >= AVX512 {
		productsAVX512[t][width/16][m](c)
	} else {
		productsAVX2[t][width/16][m](c)
	}
}

// blockKernels are the products with quantized weights at a level. They all give the
// same bits, so which one a machine takes is its own business.
func (l Level) blockKernels() *[Q6K + 1][blockRows + 1]func(*BlockCall) {
	switch {
	case l >= AVX512 && cpu.X86.HasAVX512VNNI:
		return &blocksVNNI512
	case cpu.X86.HasAVXVNNI:
		return &blocksVNNI256
	}
	return &blocksAVX2
}

func (l Level) quantize(dst []Block, x []float32) { quantizeAVX2(&dst[0], &x[0], len(dst)) }

func (l Level) productBlocks(t Type, m int, c *BlockCall) { l.blockKernels()[t][m](c) }

func (l Level) sumSquares(x []float32) float32 {
	if l >= AVX512 {
		return sumSquaresAVX512(&x[0], len(x))
	}
	return sumSquaresAVX2(&x[0], len(x))
}

func (l Level) scaleBy(dst, x, weight []float32, scale float32) {
	if l >= AVX512 {
		scaleByAVX512(&dst[0], &x[0], &weight[0], scale, len(dst))
	} else {
		scaleByAVX2(&dst[0], &x[0], &weight[0], scale, len(dst))
	}
}

func (l Level) swiglu(gate, up []float32) {
	if l >= AVX512 {
		swigluAVX512(&gate[0], &up[0], len(gate))
	} else {
		swigluAVX2(&gate[0], &up[0], len(gate))
	}
}

func (l Level) gelu(x []float32, linear, cubic float32) {
	if l >= AVX512 {
		geluAVX512(&x[0], linear, cubic, len(x))
	} else {
		geluAVX2(&x[0], linear, cubic, len(x))
	}
}

func (l Level) rotate(lo, hi, cos, sin []float32, scale float32) {
	if l >= AVX512 {
		rotateAVX512(&lo[0], &hi[0], &cos[0], &sin[0], scale, len(lo))
	} else {
		rotateAVX2(&lo[0], &hi[0], &cos[0], &sin[0], scale, len(lo))
	}
}

func (l Level) blend(sum, part []float32, keep, take float32) {
	if l >= AVX512 {
		blendAVX512(&sum[0], &part[0], keep, take, len(sum))
	} else {
		blendAVX2(&sum[0], &part[0], keep, take, len(sum))
	}
}

func (l Level) scale(dst, x []float32, factor float32) {
	if l >= AVX512 {
		scaleAVX512(&dst[0], &x[0], factor, len(dst))
	} else {
		scaleAVX2(&dst[0], &x[0], factor, len(dst))
	}
}

func (l Level) widenBF16(dst []float32, src []uint16) {
	if l >= AVX512 {
		widenBF16AVX512(&dst[0], &src[0], len(dst))
	} else {
		widenBF16AVX2(&dst[0], &src[0], len(dst))
	}
}
