package kernel

func (l Level) score(t KVType, m int, c *Score) { scoresNEON[t][m](c) }

func (l Level) softmax(scores *float32, groups int, first, to float32) (top, norm float32) {
	return softmaxNEON(scores, groups, first, to)
}

func (l Level) mix(t KVType, rows, width int, c *Mix) { mixesNEON[t][rows][width/16](c) }

func (l Level) narrowBF16(dst []uint16, src []float32) {
	narrowBF16NEON(&dst[0], &src[0], len(src))
}

func (l Level) largest(x []float32) float32 { return largestNEON(&x[0], len(x)) }

func (l Level) roundI8(dst []int8, x []float32, factor float32) {
	roundI8NEON(&dst[0], &x[0], factor, len(x))
}
