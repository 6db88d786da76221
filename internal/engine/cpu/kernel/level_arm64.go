package kernel

// lowest is the first level with kernels.
const lowest = NEON

func best() Level { return NEON }

func (l Level) product(t Type, width, m int, c *Call) {
	for _, part := range productsNEON[t][width/16][m] {
		if part != nil {
			part(c)
		}
	}
}

func (l Level) mix(rows, _ int, c *Mix) { mixesNEON[rows](c) }

func (l Level) sumSquares(x []float32) float32 { return sumSquaresNEON(&x[0], len(x)) }

func (l Level) scaleBy(dst, x, weight []float32, scale float32) {
	scaleByNEON(&dst[0], &x[0], &weight[0], scale, len(dst))
}

func (l Level) swiglu(gate, up []float32) { swigluNEON(&gate[0], &up[0], len(gate)) }

func (l Level) rotate(lo, hi, cos, sin []float32, scale float32) {
	rotateNEON(&lo[0], &hi[0], &cos[0], &sin[0], scale, len(lo))
}

func (l Level) blend(sum, part []float32, keep, take float32) {
	blendNEON(&sum[0], &part[0], keep, take, len(sum))
}

func (l Level) scale(dst, x []float32, factor float32) {
	scaleNEON(&dst[0], &x[0], factor, len(dst))
}

func (l Level) widenBF16(dst []float32, src []uint16) { widenBF16NEON(&dst[0], &src[0], len(dst)) }

func (l Level) softmax(c *Column) { softmaxNEON(c) }

func (l Level) quantize(dst []Block, x []float32) { quantizeGo(dst, x) }

func (l Level) productBlocks(Type, int, *BlockCall) {
	panic("kernel: products of blocks without kernels")
}
