package predict

import "math"

// Noise of the local linear trend, as in Dynamo 1.5. Only their ratios matter.
const (
	kalmanLevel   = 1.0  // variance that the level gains in a step
	kalmanTrend   = 0.1  // variance that the trend gains in a step
	kalmanNoise   = 10.0 // variance of a value around the level
	kalmanDiffuse = 1e4  // of the first state, in units of kalmanNoise: it knows next to nothing
)

// minFitted is how many values Kalman and ARIMA need, as in Dynamo.
const minFitted = 5

// Kalman filters a level and a trend (a local linear trend model) and continues them. A gap is
// a step without a measurement.
type Kalman struct{}

// Name implements Predictor.
func (Kalman) Name() string { return "kalman" }

// Forecast implements Predictor. It needs five values.
func (Kalman) Forecast(series []float64, n int) []float64 {
	y := started(series)
	seen := 0
	for _, v := range y {
		if !math.IsNaN(v) {
			seen++
		}
	}
	if seen < minFitted || n < 1 {
		return nil
	}
	// The state is (level, trend) with covariance (ll, lt; lt, tt).
	level, trend := y[0], 0.0
	ll, lt, tt := kalmanNoise, 0.0, kalmanNoise*kalmanDiffuse
	for _, v := range y[1:] {
		level += trend
		ll, lt, tt = ll+2*lt+tt+kalmanLevel, lt+tt, tt+kalmanTrend
		if math.IsNaN(v) {
			continue
		}
		gainLevel, gainTrend := ll/(ll+kalmanNoise), lt/(ll+kalmanNoise)
		off := v - level
		level += gainLevel * off
		trend += gainTrend * off
		ll, lt, tt = (1-gainLevel)*ll, (1-gainLevel)*lt, tt-gainTrend*lt
	}
	out := make([]float64, n)
	for k := range out {
		out[k] = clamped(level + trend*float64(k+1))
	}
	return out
}
