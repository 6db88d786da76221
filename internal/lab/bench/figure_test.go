package bench

import (
	"math"
	"testing"
	"time"
)

func TestSummarize(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		want   Figure
		text   string
	}{
		{"none", nil, Figure{}, "–"},
		{"one", []float64{7}, Figure{7, 7, 7, 1}, "7.00"},
		{"odd", []float64{3, 1, 2}, Figure{2, 1, 3, 3}, "2.00 (1.00–3.00)"},
		{"even: mean of the middle two", []float64{4, 1, 3, 2}, Figure{2.5, 1, 4, 4}, "2.50 (1.00–4.00)"},
		{"not finite", []float64{math.NaN(), 5, math.Inf(1)}, Figure{5, 5, 5, 1}, "5.00"},
		{"only not finite", []float64{math.NaN()}, Figure{}, "–"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := Summarize(tc.values)
			if got != tc.want {
				t.Errorf("got %+v, want %+v", got, tc.want)
			}
			if got.String() != tc.text {
				t.Errorf("got %q, want %q", got, tc.text)
			}
		})
	}
}

func TestSummarizeKeepsItsInput(t *testing.T) {
	values := []float64{3, 1, math.NaN(), 2}
	Summarize(values)
	if values[0] != 3 || values[1] != 1 || values[3] != 2 {
		t.Errorf("the values are now %v", values)
	}
}

func TestTail(t *testing.T) {
	s := Sample{}
	s.tail("x", nil, time.Millisecond)
	if len(s) != 0 {
		t.Errorf("no durations gave %v", s)
	}
	s.tail("x", []time.Duration{3 * time.Millisecond, time.Millisecond, 2 * time.Millisecond}, time.Millisecond)
	if s["x_p50"] != 2 || s["x_p95"] <= 2 || s["x_p99"] > 3 || s["x_p99"] < s["x_p95"] {
		t.Errorf("got %v", s)
	}
}

func TestNumber(t *testing.T) {
	for _, tc := range []struct {
		v    float64
		want string
	}{
		{0, "0"}, {1e-7, "1e-07"}, {0.01234, "0.012"}, {0.9999, "1.000"}, {1.234, "1.23"}, {12.34, "12.3"},
		{123.4, "123"}, {1234.5, "1,234"}, {1234567, "1,234,567"}, {-1234, "-1,234"}, {-0.5, "-0.500"},
	} {
		if got := number(tc.v); got != tc.want {
			t.Errorf("%v: got %q, want %q", tc.v, got, tc.want)
		}
	}
}
