package simulate

import (
	"math"
	"time"
)

// gaps counts times between tokens, of which there are too many to keep, in buckets whose
// bounds are at most 1/128 apart: quantiles are off by less than 0.4 %. Count, mean and
// maximum are exact.
type gaps struct {
	counts []int // by bucket
	n      int
	sum    time.Duration
	max    time.Duration
}

// Bits of a float64 below those that choose a bucket; 7 bits of the mantissa remain. leastGap
// is the bucket of a nanosecond.
const gapShift = 45

func gapBucket(nanos float64) int { return int(math.Float64bits(nanos) >> gapShift) }

var leastGap = gapBucket(1)

func (g *gaps) add(d time.Duration, n int) {
	at := gapBucket(float64(max(d, 1))) - leastGap
	for at >= len(g.counts) {
		g.counts = append(g.counts, make([]int, at+1-len(g.counts))...)
	}
	g.counts[at] += n
	g.n += n
	g.sum += d * time.Duration(n)
	g.max = max(g.max, d)
}

// quantile returns the middle of the bucket that holds a quantile, in milliseconds.
func (g *gaps) quantile(q float64) float64 {
	rank := int(q * float64(g.n-1))
	for at, n := range g.counts {
		if rank -= n; rank < 0 {
			low := math.Float64frombits(uint64(at+leastGap) << gapShift)
			high := math.Float64frombits(uint64(at+leastGap+1) << gapShift)
			return min((low+high)/2, float64(g.max)) / 1e6
		}
	}
	return 0
}

func (g *gaps) quantiles() Quantiles {
	if g.n == 0 {
		return Quantiles{}
	}
	return Quantiles{Count: g.n, Mean: ms(g.sum) / float64(g.n), P50: g.quantile(0.5), P90: g.quantile(0.9), P95: g.quantile(0.95), P99: g.quantile(0.99), Max: ms(g.max)}
}
