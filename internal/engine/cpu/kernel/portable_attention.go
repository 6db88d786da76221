package kernel

import (
	"math"
	"unsafe"
)

// key is one value of a group of keys.
func key(t KVType, group unsafe.Pointer, dim, token int) float32 {
	at := dim*KVGroup + token
	switch t {
	case KVBF16:
		return widen(*(*uint16)(unsafe.Add(group, 2*(dim/2*2*KVGroup+2*token+dim%2))))
	case KVI8:
		return float32(*(*int8)(unsafe.Add(group, at)))
	}
	return *(*float32)(unsafe.Add(group, 4*at))
}

// value is one value of a row.
func value(t KVType, row unsafe.Pointer, dim int) float32 {
	switch t {
	case KVBF16:
		return widen(*(*uint16)(unsafe.Add(row, 2*dim)))
	case KVI8:
		return float32(*(*int8)(unsafe.Add(row, dim)))
	}
	return *(*float32)(unsafe.Add(row, 4*dim))
}

func scoreGo(t KVType, m, groups int, c *Score) {
	for g := range groups {
		for i := range m {
			for token := range KVGroup {
				var sum float32
				for d := range c.Dims {
					sum = fma(key(t, c.Keys[g], d, token), *shift((*float32)(c.Queries), 4*(d*m+i)), sum)
				}
				if t == KVI8 {
					sum *= *shift(c.Scales[g], 4*token)
				}
				*shift(c.Scores[g], i*c.Stride+4*token) = sum
			}
		}
	}
}

func softmaxGo(scores *float32, groups int, first, to float32) (top, norm float32) {
	all := unsafe.Slice(scores, groups*KVGroup)
	sees := func(p int) bool { return float32(p) >= first && float32(p) < to }
	top = float32(math.Inf(-1))
	for p, s := range all {
		if sees(p) && s > top {
			top = s
		}
	}
	var sums [KVGroup]float32
	for p, s := range all {
		all[p] = 0
		if sees(p) {
			all[p] = expf(s - top)
		}
		sums[p%KVGroup] += all[p]
	}
	for n := KVGroup / 2; n > 0; n /= 2 {
		for i := range n {
			sums[i] += sums[i+n]
		}
	}
	return top, sums[0]
}

func mixGo(t KVType, rows, width int, c *Mix) {
	for r := range rows {
		sums := unsafe.Slice(shift(c.Sums, r*c.SumStride), width)
		for p := range c.Count {
			w, row := *shift((*float32)(c.Weights), r*c.WeightStride+4*p), unsafe.Add(c.Values, p*c.ValueStride)
			for d := range sums {
				sums[d] = fma(value(t, row, d), w, sums[d])
			}
		}
	}
}

func narrowBF16Go(dst []uint16, src []float32) {
	for i, v := range src {
		bits := math.Float32bits(v)
		if v != v { // rounding could turn it into a number
			dst[i] = uint16(bits>>16) | 0x40
			continue
		}
		dst[i] = uint16((bits + 0x7FFF + bits>>16&1) >> 16)
	}
}

// largestGo compares as integers, so that infinity and what is no number win.
func largestGo(x []float32) float32 {
	var top uint32
	for _, v := range x {
		top = max(top, math.Float32bits(v)&^(1<<31))
	}
	return math.Float32frombits(top)
}

func roundI8Go(dst []int8, x []float32, factor float32) {
	for i, v := range x {
		dst[i] = int8(math.RoundToEven(float64(float32(v * factor))))
	}
}
