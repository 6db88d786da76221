package arrival

import (
	"math/rand/v2"
	"time"
)

// maxSpan bounds the times of a schedule.
const maxSpan = 1000 * time.Hour

// Schedule is the sequence of times at which requests arrive.
type Schedule struct {
	curve   Curve
	poisson *rand.Rand // nil for even spacing
	next    float64    // arrivals that the curve expects until the next one
	last    time.Duration
}

// New returns the times of a curve. With poisson the gaps are random, as of many independent
// users; else an arrival comes whenever the curve expects one more.
func New(c Curve, poisson bool, seed uint64) *Schedule {
	s := &Schedule{curve: c}
	if poisson {
		s.poisson = rand.New(rand.NewPCG(seed, 0xa881a1))
	}
	return s
}

// Next returns the time of the next arrival since the beginning, never before the last one.
// It is false when the curve has no further one.
func (s *Schedule) Next() (time.Duration, bool) {
	target := s.next
	if s.poisson != nil {
		// A Poisson process of rate 1 has gaps of 1 on average: in the time in which the curve
		// expects so many arrivals.
		target += s.poisson.ExpFloat64()
		s.next = target
	} else {
		s.next++
	}
	low, high := s.last, s.last+time.Second
	for s.curve.Count(high) < target {
		if low, high = high, 2*high; high > maxSpan {
			return 0, false
		}
	}
	for high-low > time.Nanosecond {
		if middle := low + (high-low)/2; s.curve.Count(middle) < target {
			low = middle
		} else {
			high = middle
		}
	}
	s.last = high
	return high, true
}
