package stats

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Sample holds values, all of them up to a limit and beyond it a random choice of that size,
// in which every value is equally likely. Count, mean and maximum are always those of all.
type Sample struct {
	limit  int
	random *rand.Rand
	kept   []float64
	count  int
	sum    float64
	square float64 // sum of squared deviations from the mean
	max    float64
}

// NewSample returns an empty sample that keeps so many values. The seed decides its choice.
func NewSample(limit int, seed uint64) *Sample {
	return &Sample{limit: limit, random: rand.New(rand.NewPCG(seed, 0))}
}

// Add adds a value, which must be finite.
func (s *Sample) Add(v float64) {
	if s.count++; s.count == 1 {
		s.max = v
	}
	before := (s.sum) / float64(max(s.count-1, 1))
	s.sum += v
	s.square += (v - before) * (v - s.sum/float64(s.count))
	s.max = max(s.max, v)
	if len(s.kept) < s.limit {
		s.kept = append(s.kept, v)
	} else if i := s.random.IntN(s.count); i < s.limit {
		s.kept[i] = v
	}
}

// Count returns how many values were added.
func (s *Sample) Count() int { return s.count }

// Sum returns the sum of all values.
func (s *Sample) Sum() float64 { return s.sum }

// Sorted returns the kept values in order.
func (s *Sample) Sorted() []float64 {
	return slices.Sorted(slices.Values(s.kept))
}

// Figure is a value with its interval of 95 % confidence. A nil bound is unknown: there are
// too few values for one.
type Figure struct {
	Value float64  `json:"value"`
	Low   *float64 `json:"low"`
	High  *float64 `json:"high"`
}

// Summary describes a sample.
type Summary struct {
	Count int     `json:"count"`
	Mean  Figure  `json:"mean"`
	P50   Figure  `json:"p50"`
	P90   Figure  `json:"p90"`
	P95   Figure  `json:"p95"`
	P99   Figure  `json:"p99"`
	Max   float64 `json:"max"`
}

// z is the deviation that 95 % of a normal distribution do not exceed.
const z = 1.959964

// Summary describes the values; nil without any. Their intervals are as wide as for that
// many independent values, which are fewer than all where values come in groups. Intervals
// of quantiles are order statistics ([Ranks]); that of the mean is the normal one.
func (s *Sample) Summary(independent int) *Summary {
	if s.count == 0 {
		return nil
	}
	sorted := s.Sorted()
	n := min(independent, len(sorted))
	at := func(q float64) Figure {
		f := Figure{Value: Quantile(sorted, q)}
		low, high := Ranks(n, q)
		if low >= 0 && n > 1 {
			f.Low = new(Quantile(sorted, float64(low)/float64(n-1)))
		}
		if high < n && n > 1 {
			f.High = new(Quantile(sorted, float64(high)/float64(n-1)))
		}
		return f
	}
	mean := Figure{Value: s.sum / float64(s.count)}
	if n > 1 {
		half := z * math.Sqrt(s.square/float64(s.count-1)/float64(n))
		mean.Low, mean.High = new(mean.Value-half), new(mean.Value+half)
	}
	return &Summary{Count: s.count, Mean: mean, P50: at(0.5), P90: at(0.9), P95: at(0.95), P99: at(0.99), Max: s.max}
}
