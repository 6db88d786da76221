package kernel

import (
	"math"
	"unsafe"
)

func scorePairsGo(m, groups int, c *Score) {
	for g := range groups {
		for i := range m {
			for token := range KVGroup {
				var sum float32
				for d := 0; d < c.Dims; d += 2 {
					q := (*[2]uint16)(unsafe.Add(c.Queries, 2*(d*m+2*i)))
					k := (*[2]uint16)(unsafe.Add(c.Keys[g], 2*(d*KVGroup+2*token)))
					sum = fmaBF16(q[1], k[1], sum)
					sum = fmaBF16(q[0], k[0], sum)
				}
				*shift(c.Scores[g], i*c.Stride+4*token) = sum
			}
		}
	}
}

// exp2 are the coefficients of 2 to the f for f from -1/2 to 1/2, from f on.
var exp2 = [...]float32{0.6931241751, 0.2402409911, 0.05590642616, 0.009582852945}

// weightPairs is 2 to the (score · log2 e + shift) in bf16.
func weightPairs(score, shift float32) uint16 {
	const log2e, least = 1.44269504088896341, -128
	t := fma(score, log2e, shift)
	if t < least {
		t = least
	}
	n := float32(math.RoundToEven(float64(t)))
	f := t - n
	p := exp2[3]
	for i := 2; i >= 0; i-- {
		p = fma(p, f, exp2[i])
	}
	p = fma(p, f, 1)
	return toBF16(flush(float32(math.Ldexp(float64(p), int(n)))))
}

func softmaxPairsGo(weights *uint16, scores *float32, groups int, head, tail uint32) (top, norm float32) {
	all, out := unsafe.Slice(scores, groups*KVGroup), unsafe.Slice(weights, groups*KVGroup)
	sees := func(p int) bool {
		switch p / KVGroup {
		case 0:
			return head>>p&1 == 1
		case groups - 1:
			return tail>>(p%KVGroup)&1 == 1
		}
		return true
	}
	top = float32(math.Inf(-1))
	for p, s := range all {
		if sees(p) && s > top {
			top = s
		}
	}
	const log2e float32 = 1.44269504088896341
	shift := -float32(top * log2e)
	var sums [KVGroup]float32
	for p, s := range all {
		out[p] = 0
		if sees(p) {
			out[p] = weightPairs(s, shift)
		}
		sums[p%KVGroup] += widen(out[p])
	}
	for n := KVGroup / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return top, sums[0]
}

func mixPairsGo(rows, width int, c *Mix) {
	for r := range rows {
		sums := unsafe.Slice(shift(c.Sums, r*c.SumStride), width)
		for p := 0; p < c.Count; p += 2 {
			for d := range width {
				sum := &sums[placePairs(d, width)]
				// What an odd last position has beside it is zero.
				var w, v [2]uint16
				for i := range min(2, c.Count-p) {
					w[i] = *(*uint16)(unsafe.Add(c.Weights, r*c.WeightStride+2*(p+i)))
					v[i] = *(*uint16)(unsafe.Add(c.Values, (p+i)*c.ValueStride+2*d))
				}
				*sum = fmaBF16(w[1], v[1], *sum)
				*sum = fmaBF16(w[0], v[0], *sum)
			}
		}
	}
}
