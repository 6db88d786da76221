package kernel

// pairQueries is the largest number of queries in one ScorePairs, and of rows in one
// MixPairs.
const pairQueries = 12

// AttentionPairs reports whether there are kernels of attention that multiply pairs of
// bf16: [Level.ScorePairs], [Level.SoftmaxPairs] and [Level.MixPairs], for keys and
// values of bf16. There are with AVX512_BF16; with AMX there are none, because the
// processors that have it do fused multiply-adds of float32 twice as fast.
func (l Level) AttentionPairs() bool { return l == AVX512 && l.hasBF16() }

// ScorePairs is [Level.Score] for keys and queries of bf16. A score is one sum over the
// dimensions, two at a time, as that of [CallBF16] over k at AVX512. ScoreShape says
// how many queries and groups a call has. The last of an odd number of dimensions needs
// a partner of zeros among the queries and keys.
func (l Level) ScorePairs(m int, c *Score) { l.scorePairs(m, c) }

// SoftmaxPairs is [Level.Softmax] with weights of bf16, one for each score: 2 to the
// (score - largest score) · log2 e, where the latter is one fused multiply-add and at
// least -128, by a polynomial that is within 3e-6, then rounded to bf16, and zero below the
// smallest normal number. norm is the sum of what the weights are then, so
// that roundings do not favor any. first is below sixteen, and to above all but sixteen of
// the scores.
func (l Level) SoftmaxPairs(weights []uint16, scores []float32, first, to int) (top, norm float32) {
	groups := len(scores) / KVGroup
	weights = weights[:len(scores)]
	head, tail := uint32(0xFFFF)<<first&0xFFFF, uint32(0xFFFF)>>(len(scores)-to)
	if groups == 1 {
		head &= tail
	}
	return l.softmaxPairs(&weights[0], &scores[0], groups, head, tail)
}

// MixPairs is [Level.Mix] for weights and values of bf16. Positions are added two at a
// time, in the order of [CallBF16] at AVX512; the last of an odd number has a partner
// whose weight and values are zero, whatever memory holds behind. Sums are in an order of
// their own, see [OrderPairs].
func (l Level) MixPairs(rows, width int, c *Mix) { l.mixPairs(rows, width, c) }

// MixPairsShare returns the number of rows, of so many, that the next MixPairs should take.
func (l Level) MixPairsShare(rows int) int {
	calls := (rows + pairQueries - 1) / pairQueries
	return (rows + calls - 1) / calls
}

// MixPairsWidth returns the number of dimensions, of n, a multiple of 16, that the next
// MixPairs of so many rows should take.
func (l Level) MixPairsWidth(rows, n int) int {
	most := 128
	switch {
	case rows > 6:
		most = 32
	case rows > 3:
		most = 64
	}
	for most > n {
		most /= 2
	}
	return most
}

// OrderPairs brings what [Level.MixPairs] has summed up into the order of dimensions: in
// each whole 32 of sums, those of dimensions whose number / 4 is even come first. dst may
// end before sums.
func OrderPairs(dst, sums []float32) {
	i := 0
	for ; i+32 <= len(dst); i += 32 {
		d, s := dst[i:i+32], sums[i:i+32]
		for j := range 4 {
			*(*[4]float32)(d[8*j:]) = [4]float32(s[4*j:])
			*(*[4]float32)(d[8*j+4:]) = [4]float32(s[16+4*j:])
		}
	}
	for ; i < len(dst); i++ {
		dst[i] = sums[placePairs(i, len(sums))]
	}
}

// placePairs returns the index of the sum of dimension d of n.
func placePairs(d, n int) int {
	if d/32*32+32 > n {
		return d
	}
	return d/32*32 + d/4%2*16 + d%32/8*4 + d%4
}
