package engine

import (
	"errors"
	"math"
	"math/bits"
	"slices"

	"github.com/dynctl/dynctl/internal/protocol"
)

// ErrBadLogits is returned when a backend produced logits with a NaN or without a finite
// value. The weights or a kernel are broken then.
var ErrBadLogits = errors.New("the model produced no finite logits")

// sampler draws next tokens. It keeps scratch space, so only one goroutine uses it.
type sampler struct {
	candidates []candidate
	nucleus    nucleus
	top        []candidate // the most likely tokens, for log probabilities
	raw        []float32   // logits as they were before a request's adjustments
}

type candidate struct {
	id uint32
	p  float32 // logit, later unnormalized probability
}

// sample returns the token for output position pos. limit is the number of ids that may
// be chosen: rows of the output head past the tokenizer's vocabulary are padding.
//
// Temperature 0 takes the largest logit, and the lowest id among equals. Otherwise the
// order is: temperature, min-p, top-k, top-p, draw. The draw depends on (seed, pos)
// alone. So it does not depend on the rest of the batch, and a migrated sequence
// continues as it would have.
//
// It returns ErrBadLogits when the logits hold a NaN or no finite value.
func (s *sampler) sample(logits []float32, limit int, o protocol.SamplingOptions, pos int) (uint32, error) {
	logits = logits[:min(limit, len(logits))]
	top, ok := argmax(logits)
	if !ok {
		return 0, ErrBadLogits
	}
	if o.Temperature <= 0 {
		return top, nil
	}
	c, sum := s.filter(logits, logits[top], &o)
	u := uniform(o.Seed, pos) * sum
	for i := range c {
		u -= float64(c[i].p)
		if u < 0 {
			return c[i].id, nil
		}
	}
	// Only rounding is left of u. A candidate may be impossible: top-k keeps k candidates
	// even if fewer are allowed.
	last := len(c) - 1
	for last > 0 && c[last].p == 0 {
		last--
	}
	return c[last].id, nil
}

// filter returns the candidates that temperature, min-p, top-k and top-p leave,
// with probabilities relative to the best token's, and their sum. best is the
// largest logit.
func (s *sampler) filter(logits []float32, best float32, o *protocol.SamplingOptions) ([]candidate, float64) {
	c, sum := s.weigh(logits, best, o.TopK, o.Temperature)
	// Min-p and top-k each keep a number of the best, so their order does not matter.
	// top-k comes first because that is cheaper.
	if o.MinP > 0 {
		c, sum = cutMinP(c, o.MinP) // the best has probability 1 here
	}
	if o.TopP > 0 && o.TopP < 1 {
		if o.TopK > 0 {
			slices.SortFunc(c, func(a, b candidate) int { return int(a.id) - int(b.id) })
		}
		c, sum = s.nucleus.cut(c, sum, float64(o.TopP))
	}
	return c, sum
}

// weigh returns the candidates that top-k leaves, in a fixed but arbitrary order, with
// their probabilities relative to the best token's, and the sum of these. Without top-k
// it omits tokens that cannot be drawn: a logit more than 40 times the temperature below
// the best has a relative probability below exp(-40) < 2^-57, and the draw has 53 bits.
// Sums are in float64, to stay exact enough for large vocabularies.
func (s *sampler) weigh(logits []float32, best float32, k int, temperature float32) ([]candidate, float64) {
	inv := min(1/float64(temperature), 1e30) // colder makes no difference, and stays finite
	top := wide(best)
	var sum float64
	if k > 0 && k < len(logits) {
		s.candidates = largest(s.candidates, logits, k)
		for i := range s.candidates {
			c := &s.candidates[i]
			p := exp(max((wide(c.p)-top)*inv, leastExp)) // finite also where all others are impossible
			c.p = float32(p)
			sum += p
		}
		return s.candidates, sum
	}
	if cap(s.candidates) < len(logits) {
		s.candidates = make([]candidate, len(logits))
	}
	c := s.candidates[:len(logits)]
	n := 0
	least := best - 40*temperature
	for i, l := range logits {
		if l < least {
			continue
		}
		p := exp((wide(l) - top) * inv)
		sum += p
		c[n] = candidate{uint32(i), float32(p)}
		n++
	}
	return c[:n], sum
}

// largest returns the k largest logits, the lowest ids among equals, in a fixed but
// arbitrary order. It uses the memory of c.
func largest(c []candidate, logits []float32, k int) []candidate {
	c = c[:0]
	for i, l := range logits[:k] {
		c = append(c, candidate{uint32(i), l})
	}
	h := heap(c)
	h.init()
	least := c[0].p
	for i, l := range logits[k:] {
		if l > least { // an equal one has a higher id
			c[0] = candidate{uint32(k + i), l}
			h.down(0)
			least = c[0].p
		}
	}
	return c
}

// less orders by falling preference: smaller value first, among equals the higher id.
func (c candidate) less(o candidate) bool { return c.p < o.p || (c.p == o.p && c.id > o.id) }

func (c candidate) more(o candidate) bool { return o.less(c) }

// heap is a binary heap with the least preferred candidate at its root.
type heap []candidate

func (h heap) init() {
	for i := len(h)/2 - 1; i >= 0; i-- {
		h.down(i)
	}
}

func (h heap) down(i int) {
	for {
		m := i
		if l := 2*i + 1; l < len(h) && h[l].less(h[m]) {
			m = l
		}
		if r := 2*i + 2; r < len(h) && h[r].less(h[m]) {
			m = r
		}
		if m == i {
			return
		}
		h[i], h[m] = h[m], h[i]
		i = m
	}
}

// cutMinP keeps the candidates at least minP times as likely as the best, whose
// relative probability is 1.
func cutMinP(c []candidate, minP float32) ([]candidate, float64) {
	var acc float64
	kept := c[:0]
	for _, x := range c {
		if x.p >= minP {
			kept = append(kept, x)
			acc += float64(x.p)
		}
	}
	return kept, acc
}

// argmax returns the index of the largest logit, the lowest among equals; ok is
// false when there is a NaN or the largest is infinite. Eight at a time are compared
// with the largest so far, which hardly ever changes.
func argmax(logits []float32) (best uint32, ok bool) {
	top := float32(math.Inf(-1))
	i := 0
	for ; i+8 <= len(logits); i += 8 {
		l := (*[8]float32)(logits[i:])
		if l[0] <= top && l[1] <= top && l[2] <= top && l[3] <= top && l[4] <= top && l[5] <= top && l[6] <= top && l[7] <= top {
			continue
		}
		for j, x := range l {
			if x > top {
				best, top = uint32(i+j), x
			} else if x != x {
				return 0, false
			}
		}
	}
	for ; i < len(logits); i++ {
		if x := logits[i]; x > top {
			best, top = uint32(i), x
		} else if x != x {
			return 0, false
		}
	}
	return best, !math.IsInf(float64(top), 0)
}

// uniform returns a number in [0, 1) that depends on seed and pos only: two rounds
// of the splitmix64 finalizer over a mix of both.
func uniform(seed uint64, pos int) float64 {
	x := mix64(seed + 0x9e3779b97f4a7c15)
	x = mix64(x ^ bits.RotateLeft64(uint64(pos)*0xd1342543de82ef95+0x2545f4914f6cdd1d, 23))
	return float64(x>>11) / (1 << 53)
}

var negInf = float32(math.Inf(-1))

func mix64(x uint64) uint64 {
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9
	x = (x ^ (x >> 27)) * 0x94d049bb133111eb
	return x ^ (x >> 31)
}
