package predict

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// Predictor forecasts a series. Its methods are safe for concurrent use.
type Predictor interface {
	// Name is what the configuration calls the predictor.
	Name() string
	// Forecast returns the expected values of the n steps after series. It returns nil
	// when series has too few values for this predictor, or n < 1.
	Forecast(series []float64, n int) []float64
}

// predictors are all that can be named, the simplest first: [Auto] prefers them in this order.
func predictors() []Predictor {
	return []Predictor{Constant{}, MovingAverage{}, LinearTrend{}, Kalman{}, HoltWinters{}, ARIMA{}}
}

// AutoName is the name of the choice by back-testing.
const AutoName = "auto"

// Names lists what [Named] knows.
func Names() []string {
	names := []string{AutoName}
	for _, p := range predictors() {
		names = append(names, p.Name())
	}
	return names
}

// Named returns the predictor of that name, with the defaults of its type.
func Named(name string) (Predictor, error) {
	if name == AutoName {
		return Auto{}, nil
	}
	for _, p := range predictors() {
		if p.Name() == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("unknown predictor %q (known: %s)", name, strings.Join(Names(), ", "))
}

// started returns series without its cold start, with NaN for every gap.
func started(series []float64) []float64 {
	first := slices.IndexFunc(series, func(v float64) bool { return !isGap(v) && v != 0 })
	if first < 0 { // no load so far
		first = slices.IndexFunc(series, func(v float64) bool { return !isGap(v) })
	}
	if first < 0 {
		return nil
	}
	out := slices.Clone(series[first:])
	for i, v := range out {
		if isGap(v) {
			out[i] = math.NaN()
		}
	}
	return out
}

// filled is started with every gap on the line between its neighbors. After the last
// value a gap repeats it.
func filled(series []float64) []float64 {
	out := started(series)
	for i := 1; i < len(out); i++ {
		if !math.IsNaN(out[i]) {
			continue
		}
		next := i + 1
		for next < len(out) && math.IsNaN(out[next]) {
			next++
		}
		before := out[i-1]
		for k := i; k < next; k++ {
			out[k] = before
			if next < len(out) {
				out[k] += (out[next] - before) * float64(k-i+1) / float64(next-i+1)
			}
		}
		i = next
	}
	return out
}

func isGap(v float64) bool { return math.IsNaN(v) || math.IsInf(v, 0) || v < 0 }

// constant reports whether all values are the same.
func constant(series []float64) bool {
	return !slices.ContainsFunc(series, func(v float64) bool { return v != series[0] })
}

// repeated returns n times v, which is at least 0.
func repeated(v float64, n int) []float64 {
	return slices.Repeat([]float64{clamped(v)}, n)
}

// clamped returns v, or 0 for what no load can be.
func clamped(v float64) float64 {
	if isGap(v) {
		return 0
	}
	return v
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
