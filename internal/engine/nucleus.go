package engine

import "math"

// nucleus selects the candidates for top-p. It keeps scratch space.
type nucleus struct {
	head, spare []candidate
	sums        [numBins]float64
}

// Bins of relative probabilities p <= 1: four for each power of two. Those below the
// last bin are in it; exp(-40) is above 2^-58.
const (
	binBits = 21 // bits of a float32 below those that choose a bin
	numBins = 4*58 + 1
	topBin  = 0x3f800000 >> binBits // that of 1
)

func bin(p float32) int {
	return min(topBin-int(math.Float32bits(p)>>binBits), numBins-1)
}

// leastOf is the smallest probability in a bin; 0 for the last.
func leastOf(bin int) float32 {
	if bin >= numBins-1 {
		return 0
	}
	return math.Float32frombits(uint32(topBin-bin) << binBits)
}

// firstHead is the probability above which candidates are tried first. When a model is
// confident, they contain the nucleus.
const firstHead = 1. / 64

// cut keeps the smallest set of most likely candidates whose share of sum reaches p. It
// returns them most likely first, the lowest id first among equals, and their sum. It
// sorts only candidates above a bound, found by summing up bins, that surely contain the
// set. The result is valid until the next call.
func (x *nucleus) cut(c []candidate, sum, p float64) ([]candidate, float64) {
	kept, acc, enough := x.try(c, firstHead, p*sum)
	if enough {
		return kept, acc
	}
	x.sums = [numBins]float64{}
	for i := range c {
		x.sums[bin(c[i].p)] += float64(c[i].p)
	}
	var above float64
	for b := range numBins {
		// The order of summing makes a difference: if this bin reaches p by a hair, or
		// just fails to, the next ones are tried.
		if above += x.sums[b]; above >= p*sum || b == numBins-1 {
			if kept, acc, enough = x.try(c, leastOf(b), p*sum); enough {
				return kept, acc
			}
		}
	}
	return kept, acc // all candidates
}

// try sorts the candidates whose probability is at least least, and takes from them until
// their sum reaches goal. enough is false when it does not.
func (x *nucleus) try(c []candidate, least float32, goal float64) (kept []candidate, acc float64, enough bool) {
	head := x.head[:0]
	var most float64
	for i := range c {
		if p := c[i].p; p >= least {
			head = append(head, c[i])
			most += float64(p)
		}
	}
	x.head = head
	if most < goal*(1-1e-9) {
		return head, 0, false
	}
	x.sort()
	for n := range x.head {
		if acc >= goal {
			return x.head[:n], acc, true
		}
		acc += float64(x.head[n].p)
	}
	return x.head, acc, acc >= goal
}

// sort brings head, which is in order of ids, into order of preference: a stable sort
// by the bits of probabilities, which are positive, eleven at a time.
func (x *nucleus) sort() {
	if len(x.head) < 64 {
		for i := 1; i < len(x.head); i++ {
			for j := i; j > 0 && x.head[j].p > x.head[j-1].p; j-- {
				x.head[j], x.head[j-1] = x.head[j-1], x.head[j]
			}
		}
		return
	}
	if cap(x.spare) < len(x.head) {
		x.spare = make([]candidate, cap(x.head))
	}
	from, to := x.head, x.spare[:len(x.head)]
	for shift := 0; shift < 32; shift += 11 {
		var start [1 << 11]int32
		for i := range from {
			start[digit(from[i].p, shift)]++
		}
		var n int32
		for d := range start {
			start[d], n = n, n+start[d]
		}
		for i := range from {
			d := digit(from[i].p, shift)
			to[start[d]] = from[i]
			start[d]++
		}
		from, to = to, from
	}
	x.head, x.spare = from, to
}

// digit is one of three digits, larger for smaller probabilities.
func digit(p float32, shift int) uint32 {
	return ^math.Float32bits(p) >> shift & (1<<11 - 1)
}
