package stats

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

func TestQuantile(t *testing.T) {
	for _, tc := range []struct {
		sorted  []float64
		q, want float64
	}{
		{nil, 0.5, 0}, {[]float64{7}, 0.99, 7}, {[]float64{1, 2}, 0.5, 1.5}, {[]float64{1, 2, 3, 4, 5}, 0.9, 4.6}, {[]float64{1, 2, 3}, 1, 3}, {[]float64{1, 2, 3}, 0, 1},
	} {
		if got := Quantile(tc.sorted, tc.q); math.Abs(got-tc.want) > 1e-12 {
			t.Errorf("%v of %v: %v, want %v", tc.q, tc.sorted, got, tc.want)
		}
	}
}

// The ranks are those of tables of the sign test and of nonparametric tolerance.
func TestRanks(t *testing.T) {
	for _, tc := range []struct {
		n         int
		q         float64
		low, high int
	}{
		{0, 0.5, -1, 0}, {5, 0.5, -1, 5}, {6, 0.5, 0, 5}, {10, 0.5, 1, 8}, {20, 0.5, 5, 14}, {100, 0.5, 39, 60},
		{20, 0.9, 14, 20}, {100, 0.9, 83, 95}, {100, 0.99, 96, 100}, {1000, 0.99, 982, 996},
	} {
		if low, high := Ranks(tc.n, tc.q); low != tc.low || high != tc.high {
			t.Errorf("%d values, quantile %v: %d to %d, want %d to %d", tc.n, tc.q, low, high, tc.low, tc.high)
		}
	}
}

// Intervals hold the true value in 95 of 100 draws, or a little more often.
func TestIntervalsHoldTheTruth(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	const draws, n = 1000, 80
	missed := map[string]int{}
	for i := range draws {
		s := NewSample(1000, uint64(i))
		for range n {
			s.Add(r.ExpFloat64())
		}
		m := s.Summary(n)
		for name, v := range map[string]struct {
			f     Figure
			truth float64
		}{"p50": {m.P50, math.Ln2}, "p90": {m.P90, math.Log(10)}, "mean": {m.Mean, 1}} {
			if v.f.Low != nil && *v.f.Low > v.truth || v.f.High != nil && *v.f.High < v.truth {
				missed[name]++
			}
		}
	}
	// The mean of a skewed distribution misses a little more often.
	for name, most := range map[string]int{"p50": 5, "p90": 5, "mean": 7} {
		if got := missed[name]; got*100 > most*draws || got*100 < draws {
			t.Errorf("%s: %d of %d intervals miss the truth, want 1 to %d %%", name, got, draws, most)
		}
	}
}

func TestSummary(t *testing.T) {
	if s := NewSample(10, 1).Summary(0); s != nil {
		t.Errorf("of nothing: %+v", s)
	}
	one := NewSample(10, 1)
	one.Add(-3)
	if s := one.Summary(1); s.Count != 1 || s.Mean.Value != -3 || s.P99.Value != -3 || s.Max != -3 || s.Mean.Low != nil || s.P50.Low != nil || s.P50.High != nil {
		t.Errorf("of one: %+v", s)
	}
	s := NewSample(1000, 1)
	for i := range 100 {
		s.Add(float64(i + 1))
	}
	got := s.Summary(100)
	if got.Count != 100 || got.Mean.Value != 50.5 || got.P50.Value != 50.5 || math.Abs(got.P90.Value-90.1) > 1e-9 || got.Max != 100 {
		t.Errorf("%+v", got)
	}
	half := z * 29.011491975882 / 10 // the deviation of 1 to 100
	if math.Abs(*got.Mean.Low-(50.5-half)) > 1e-6 || math.Abs(*got.Mean.High-(50.5+half)) > 1e-6 {
		t.Errorf("mean %v to %v, want %v on both sides", *got.Mean.Low, *got.Mean.High, half)
	}
	if *got.P50.Low != 40 || *got.P50.High != 61 || *got.P90.Low != 84 || *got.P90.High != 96 || got.P99.High != nil {
		t.Errorf("p50 %v to %v, p90 %v to %v, p99 to %v", *got.P50.Low, *got.P50.High, *got.P90.Low, *got.P90.High, got.P99.High)
	}
	// Values in groups of ten: as wide as for ten values.
	if g := s.Summary(10); g.Mean.Value != 50.5 || math.Abs(*g.Mean.High-50.5-half*math.Sqrt(10)) > 1e-6 || *g.P50.Low != Quantile(s.Sorted(), 1./9) || g.P90.High != nil {
		t.Errorf("in groups: %+v", g)
	}
}

// Beyond its limit a sample is a fair choice of all, and the same again.
func TestSampleIsBounded(t *testing.T) {
	a, b := NewSample(500, 7), NewSample(500, 7)
	for i := range 50000 {
		a.Add(float64(i))
		b.Add(float64(i))
	}
	sorted := a.Sorted()
	if len(sorted) != 500 || a.Count() != 50000 || a.Sum() != 50000*49999/2 || !slices.Equal(sorted, b.Sorted()) {
		t.Fatalf("%d of %d kept, sum %v", len(sorted), a.Count(), a.Sum())
	}
	s := a.Summary(50000)
	if s.Mean.Value != 24999.5 || s.Max != 49999 || math.Abs(s.P50.Value-25000) > 3*50000*0.5/math.Sqrt(500) || *s.P50.Low > s.P50.Value || *s.P50.High < s.P50.Value {
		t.Errorf("%+v", s)
	}
	// The interval is that of the kept values.
	if wide := *s.P50.High - *s.P50.Low; wide < 2000 {
		t.Errorf("an interval of %v for 500 values", wide)
	}
}
