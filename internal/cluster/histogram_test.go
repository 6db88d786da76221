package cluster

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// bound is the error that the type promises for quantiles.
const bound = 0.091

// exact is the nearest-rank quantile of sorted durations.
func exact(sorted []time.Duration, q float64) time.Duration {
	return sorted[max(int(math.Ceil(q*float64(len(sorted))))-1, 0)]
}

func TestHistogramQuantiles(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	ms := float64(time.Millisecond)
	for _, tc := range []struct {
		name string
		draw func() time.Duration
	}{
		{"all the same", func() time.Duration { return 1234567 }},
		{"uniform", func() time.Duration { return time.Microsecond + time.Duration(r.Int64N(int64(time.Second))) }},
		{"log-normal", func() time.Duration { return time.Duration(20 * ms * math.Exp(r.NormFloat64())) }},
		{"over the whole range", func() time.Duration { return time.Duration(1e3 * math.Exp(r.Float64()*math.Log(9e8))) }},
		{"two peaks", func() time.Duration {
			if r.IntN(100) < 96 {
				return time.Duration(5 * ms * (1 + r.Float64()/100))
			}
			return time.Duration(900 * ms)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, n := range []int{1, 2, 3, 10, 99, 5000} {
				var h Histogram
				all := make([]time.Duration, n)
				for i := range all {
					all[i] = tc.draw()
					h.Observe(all[i])
				}
				slices.Sort(all)
				last := time.Duration(0)
				for _, q := range []float64{0, 0.01, 0.25, 0.5, 0.9, 0.95, 0.99, 0.999, 1} {
					got, ok := h.Quantile(q)
					want := exact(all, q)
					if err := math.Abs(float64(got)/float64(want) - 1); !ok || err > bound && max(got, want) > time.Microsecond {
						t.Errorf("q %v of %d: got %s, want %s, off by %.1f %%", q, n, got, want, 100*err)
					}
					if got < last {
						t.Errorf("q %v of %d: %s is less than that of a smaller q, %s", q, n, got, last)
					}
					last = got
				}
			}
		})
	}
}

func TestHistogramEdges(t *testing.T) {
	var h Histogram
	if d, ok := h.Quantile(0.5); ok || d != 0 {
		t.Errorf("empty: %s %t", d, ok)
	}
	if !h.IsZero() {
		t.Error("the empty one is not zero")
	}
	for _, d := range []time.Duration{math.MinInt64, -1, 0, 1, time.Microsecond} {
		h.Observe(d)
	}
	if d, ok := h.Quantile(1); !ok || d > time.Microsecond {
		t.Errorf("nothing was longer than a microsecond, got %s", d)
	}
	h = Histogram{}
	for _, d := range []time.Duration{time.Hour, math.MaxInt64} {
		h.Observe(d)
	}
	if d, ok := h.Quantile(0); !ok || d < 15*time.Minute || h.Count() != 2 || h.IsZero() {
		t.Errorf("longer than the last bucket: %s, count %d", d, h.Count())
	}
	for _, q := range []float64{-1, 2, math.Inf(1)} {
		if d, ok := h.Quantile(q); !ok || d < 15*time.Minute || d > 17*time.Minute {
			t.Errorf("q %v: %s", q, d)
		}
	}
}

// Every duration falls into the bucket whose bounds hold it.
func TestHistogramBuckets(t *testing.T) {
	for i := range histBuckets - 1 {
		lo, hi := histBounds(i)
		for _, f := range []float64{lo + 1, (lo + hi) / 2, hi - 1} {
			if got := histIndex(time.Duration(f)); got != i {
				t.Errorf("%s: bucket %d, want %d (%s to %s)", time.Duration(f), got, i, time.Duration(lo), time.Duration(hi))
			}
		}
	}
}

func TestHistogramAdd(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 7))
	var a, b, all Histogram
	for i := range 1000 {
		d := time.Duration(r.Int64N(int64(time.Minute)))
		all.Observe(d)
		if i%3 == 0 {
			a.Observe(d)
		} else {
			b.Observe(d)
		}
	}
	a.Add(b)
	if a != all {
		t.Error("the sum of two parts is not the whole")
	}
	if got := a.Since(b); got.Count() != all.Count()-b.Count() || got.Since(got) != (Histogram{}) || b.Since(all) != (Histogram{}) {
		t.Errorf("%d counted since, want %d", got.Count(), all.Count()-b.Count())
	}
	a.Add(Histogram{})
	if a != all || a.Count() != 1000 {
		t.Errorf("adding nothing changed something, count %d", a.Count())
	}
}

func sample(n int) Histogram {
	r := rand.New(rand.NewPCG(uint64(n), 3))
	var h Histogram
	for range n {
		h.Observe(time.Duration(r.Int64N(int64(10 * time.Second))))
	}
	return h
}

func TestHistogramRoundTrips(t *testing.T) {
	for _, n := range []int{0, 1, 2, 1000} {
		want := sample(n)
		text, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		got := sample(5) // old contents do not stay
		if err := json.Unmarshal(text, &got); err != nil || got != want {
			t.Errorf("JSON of %d: %v, %s", n, err, text)
		}
		bin, err := want.MarshalBinary()
		if err != nil {
			t.Fatal(err)
		}
		got = sample(5)
		if err := got.UnmarshalBinary(bin); err != nil || got != want {
			t.Errorf("binary of %d: %v, %x", n, err, bin)
		}
	}
	if text, _ := json.Marshal(Histogram{}); string(text) != "[]" {
		t.Errorf("the empty one is %s, want []", text)
	}
}

func TestHistogramRefusesGarbage(t *testing.T) {
	want := sample(9)
	for _, text := range []string{`{}`, `"x"`, `[1]`, `[[1]]`, `[[1,2,3]]`, `[[240,1]]`, `[[-1,1]]`, `[[1,-1]]`, `[[1,4294967296]]`, `[[1.5,1]]`, `[[1,1]`} {
		got := want
		if err := json.Unmarshal([]byte(text), &got); err == nil || got != want {
			t.Errorf("%s: error %v, changed %t", text, err, got != want)
		}
	}
	for _, bin := range [][]byte{{1}, {1, 0x80}, {0xf0, 0x01, 1}, {1, 0xff, 0xff, 0xff, 0xff, 0x10}, {0x80}, {3, 1, 0xff}} {
		got := want
		if err := got.UnmarshalBinary(bin); err == nil || got != want {
			t.Errorf("%x: error %v, changed %t", bin, err, got != want)
		}
	}
}

func FuzzHistogram(f *testing.F) {
	bin, _ := sample(20).MarshalBinary()
	text, _ := json.Marshal(sample(20))
	f.Add(bin)
	f.Add(text)
	f.Add([]byte(`[[1,1],[1,4294967295]]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h Histogram
		if h.UnmarshalBinary(b) == nil {
			out, err := h.MarshalBinary()
			var again Histogram
			if err != nil || again.UnmarshalBinary(out) != nil || again != h {
				t.Errorf("%x is not the same after a round trip: %v", b, err)
			}
		}
		if h.UnmarshalJSON(b) == nil {
			out, err := json.Marshal(h)
			var again Histogram
			if err != nil || json.Unmarshal(out, &again) != nil || again != h {
				t.Errorf("%s is not the same after a round trip: %v", b, err)
			}
		}
		if d, ok := h.Quantile(0.5); ok == h.IsZero() || d < 0 {
			t.Errorf("median %s, known %t", d, ok)
		}
	})
}
