package arrival

import (
	"math"
	"strings"
	"testing"
	"time"
)

// times are the first arrivals of a schedule, or those until a time.
func times(s *Schedule, until time.Duration) (out []time.Duration) {
	for {
		at, ok := s.Next()
		if !ok || at > until {
			return out
		}
		out = append(out, at)
	}
}

// Counts of arrivals in each part of the time are those of the curve: exactly where they are
// evenly spaced, within four deviations where they are random.
func TestRates(t *testing.T) {
	for _, c := range []Curve{Constant(7), Ramp{2, 40, 40 * time.Second}, Ramp{30, 0, 50 * time.Second}, Sine{1, 25, 20 * time.Second}, Sine{5, 5, time.Second}} {
		for _, poisson := range []bool{false, true} {
			const part = 10 * time.Second
			got := make([]int, 6)
			for _, at := range times(New(c, poisson, 5), time.Minute-1) {
				got[at/part]++
			}
			for i, n := range got {
				begin := time.Duration(i) * part
				want := c.Count(begin+part) - c.Count(begin)
				slack := 1.0
				if poisson {
					slack = 4 * math.Sqrt(want)
				}
				if math.Abs(float64(n)-want) > slack {
					t.Errorf("%v, poisson %t: %d arrivals in %s, want %.1f", c, poisson, n, begin, want)
				}
				// The count is the integral of the rate.
				sum := 0.0
				for k := range 1000 {
					sum += c.Rate(begin+part*time.Duration(2*k+1)/2000) * part.Seconds() / 1000
				}
				if math.Abs(sum-want) > 0.001 {
					t.Errorf("%v: the rate sums up to %.4f in %s, the count to %.4f", c, sum, begin, want)
				}
			}
		}
	}
}

// Gaps of a Poisson process are exponential: their deviation is their mean, and 1/e of them
// are longer.
func TestPoissonGaps(t *testing.T) {
	all := times(New(Constant(20), true, 1), 1000*time.Second)
	sum, square, long := 0.0, 0.0, 0
	for i := 1; i < len(all); i++ {
		gap := (all[i] - all[i-1]).Seconds()
		sum, square = sum+gap, square+gap*gap
		if gap > 0.05 {
			long++
		}
	}
	n := float64(len(all) - 1)
	mean := sum / n
	deviation := math.Sqrt(square/n - mean*mean)
	if math.Abs(mean-0.05) > 0.0015 || math.Abs(deviation/mean-1) > 0.04 || math.Abs(float64(long)/n-1/math.E) > 0.015 {
		t.Errorf("mean %.4f, deviation %.4f, %.3f are longer than the mean", mean, deviation, float64(long)/n)
	}
}

func TestEvenTimes(t *testing.T) {
	got := times(New(Constant(4), false, 0), time.Second)
	for i, at := range got {
		if want := time.Duration(i) * 250 * time.Millisecond; (at - want).Abs() > 2*time.Nanosecond {
			t.Errorf("arrival %d at %s, want %s", i, at, want)
		}
	}
	if len(got) < 4 {
		t.Errorf("%d arrivals", len(got))
	}
}

// The same seed draws the same times, another one others; times never go back.
func TestSeeds(t *testing.T) {
	a, b, c := New(Sine{0, 9, time.Minute}, true, 1), New(Sine{0, 9, time.Minute}, true, 1), New(Sine{0, 9, time.Minute}, true, 2)
	differ, last := 0, time.Duration(0)
	for range 1000 {
		x, _ := a.Next()
		y, _ := b.Next()
		z, _ := c.Next()
		if x != y || x < last {
			t.Fatalf("%s and %s after %s", x, y, last)
		}
		if last = x; x != z {
			differ++
		}
	}
	if differ < 990 {
		t.Errorf("only %d times of another seed differ", differ)
	}
}

// A ramp that ends at 0 ends.
func TestRampToNothingEnds(t *testing.T) {
	s := New(Ramp{10, 0, 10 * time.Second}, false, 0)
	if got := len(times(s, maxSpan)); got != 50 && got != 51 {
		t.Errorf("%d arrivals, want 50", got)
	}
	if at, ok := s.Next(); ok {
		t.Errorf("one more at %s", at)
	}
}

func TestParse(t *testing.T) {
	if r, err := ParseRamp("1:20.5:5m"); err != nil || r != (Ramp{1, 20.5, 5 * time.Minute}) || r.String() != "1 to 20.5 requests/s over 5m0s" {
		t.Errorf("%v, %v", r, err)
	}
	if r, err := ParseRamp("20:0:1s"); err != nil || r.To != 0 {
		t.Errorf("%v, %v", r, err)
	}
	if s, err := ParseSine("0:3:1m"); err != nil || s != (Sine{0, 3, time.Minute}) {
		t.Errorf("%v, %v", s, err)
	}
	for text, want := range map[string]string{
		"": "not three parts", "1:2": "not three parts", "1:2:3s:4": "not three parts", "x:2:3s": "invalid syntax", "1:-2:3s": "-2 requests/s is not between",
		"1:NaN:3s": "NaN requests/s is not", "1:2:3": "missing unit", "1:2:10ms": "10ms is not between", "1:2:9999h": "9999h is not between", "0:0:1m": "nothing arrives", "1:1e6:1m": "1e6 requests/s",
	} {
		if _, err := ParseRamp(text); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "FROM:TO:TIME") {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	if _, err := ParseSine("3:2:1m"); err == nil || !strings.Contains(err.Error(), "MIN:MAX:PERIOD") || !strings.Contains(err.Error(), "higher than the second") {
		t.Errorf("%v", err)
	}
	for rate, ok := range map[float64]bool{0: false, -1: false, math.NaN(): false, math.Inf(1): false, 2e5: false, 0.01: true, 1e5: true} {
		if err := Check(rate); (err == nil) != ok {
			t.Errorf("%v: %v", rate, err)
		}
	}
}
