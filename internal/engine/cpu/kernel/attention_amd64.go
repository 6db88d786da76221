package kernel

func (l Level) score(t KVType, m int, c *Score) {
	if l >= AVX512 {
		scoresAVX512[t][m](c)
	} else {
		scoresAVX2[t][m](c)
	}
}

func (l Level) softmax(scores *float32, groups int, first, to float32) (top, norm float32) {
	if l >= AVX512 {
		return softmaxAVX512(scores, groups, first, to)
	}
	return softmaxAVX2(scores, groups, first, to)
}

func (l Level) mix(t KVType, rows, width int, c *Mix) {
	if l >= AVX512 {
		mixesAVX512[t][rows][width/16](c)
	} else {
		mixesAVX2[t][rows][width/16](c)
	}
}

func (l Level) narrowBF16(dst []uint16, src []float32) {
	if l >= AVX512 {
		narrowBF16AVX512(&dst[0], &src[0], len(src))
	} else {
		narrowBF16AVX2(&dst[0], &src[0], len(src))
	}
}

func (l Level) largest(x []float32) float32 {
	if l >= AVX512 {
		return largestAVX512(&x[0], len(x))
	}
	return largestAVX2(&x[0], len(x))
}

func (l Level) roundI8(dst []int8, x []float32, factor float32) {
	if l >= AVX512 {
		roundI8AVX512(&dst[0], &x[0], factor, len(x))
	} else {
		roundI8AVX2(&dst[0], &x[0], factor, len(x))
	}
}

func (l Level) scorePairs(m int, c *Score) { scorePairsAVX512[m](c) }

func (l Level) softmaxPairs(weights *uint16, scores *float32, groups int, head, tail uint32) (top, norm float32) {
	return softmaxPairsAVX512(weights, scores, groups, head, tail)
}

func (l Level) mixPairs(rows, width int, c *Mix) { mixPairsAVX512[rows][width/16](c) }
