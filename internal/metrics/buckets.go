package metrics

import (
	"math"
	"slices"
)

// LogBuckets returns histogram bounds by Dynamo's rule: 0, then count-1 bounds on
// a logarithmic scale that ends at hi and whose zeroth step, left out, is lo; each
// is rounded to two significant digits, and bounds that become equal are merged.
// It returns nil unless 0 < lo < hi and count > 0.
func LogBuckets(lo, hi float64, count int) []float64 {
	if !(lo > 0 && lo < hi) || math.IsInf(hi, 0) || count < 1 {
		return nil
	}
	bounds := []float64{0}
	for i := 1; i < count; i++ {
		share := float64(i) / float64(count-1)
		bounds = append(bounds, round2(math.Exp(math.Log(lo)+(math.Log(hi)-math.Log(lo))*share)))
	}
	return slices.Compact(bounds)
}

// round2 rounds to two significant digits.
func round2(v float64) float64 {
	scale := math.Pow(10, 1-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// Dynamo's bounds of the frontend histograms.
func durationBuckets() []float64     { return LogBuckets(1, 512, 10) }
func ttftBuckets() []float64         { return LogBuckets(0.001, 480, 18) }
func itlBuckets() []float64          { return LogBuckets(0.001, 2, 13) }
func inputTokenBuckets() []float64   { return LogBuckets(50, 128000, 12) }
func outputTokenBuckets() []float64  { return LogBuckets(50, 32000, 10) }
func tokenizerMSBuckets() []float64  { return []float64{0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512} }
func requestPlaneBuckets() []float64 { return []float64{.0001, .0005, .001, .005, .01, .05, .1, .5, 1} }

// Bounds of our own histograms.
func ratioBuckets() []float64 { return []float64{.25, .5, .67, .8, .9, 1, 1.1, 1.25, 1.5, 2, 4} }
func chunkTokenBuckets() []float64 {
	return []float64{1, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 1024, 2048}
}

// Bounds of our own histograms, in seconds.
func transferBuckets() []float64 { return LogBuckets(0.00001, 30, 20) } // KV blocks of one request
func stepBuckets() []float64     { return LogBuckets(0.0005, 10, 18) }  // one step of an engine
func waitBuckets() []float64     { return LogBuckets(0.001, 60, 15) }   // queue and remote prefill
