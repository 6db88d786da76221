package predict

// Constant expects the last value.
type Constant struct{}

// Name implements Predictor.
func (Constant) Name() string { return "constant" }

// Forecast implements Predictor. It needs one value.
func (Constant) Forecast(series []float64, n int) []float64 {
	y := filled(series)
	if len(y) == 0 || n < 1 {
		return nil
	}
	return repeated(y[len(y)-1], n)
}

// averageSteps is how many steps MovingAverage and LinearTrend look back: long enough to
// halve the noise of one step three times, short enough to follow a new level.
const averageSteps = 8

// MovingAverage expects the mean of the last 8 values.
type MovingAverage struct{}

// Name implements Predictor.
func (MovingAverage) Name() string { return "moving-average" }

// Forecast implements Predictor. It needs one value.
func (MovingAverage) Forecast(series []float64, n int) []float64 {
	y := filled(series)
	if len(y) == 0 || n < 1 {
		return nil
	}
	return repeated(mean(y[max(0, len(y)-averageSteps):]), n)
}

// LinearTrend continues the line of least squares through the last 8 values.
type LinearTrend struct{}

// Name implements Predictor.
func (LinearTrend) Name() string { return "linear" }

// Forecast implements Predictor. It needs three values.
func (LinearTrend) Forecast(series []float64, n int) []float64 {
	y := filled(series)
	if len(y) < 3 || n < 1 {
		return nil
	}
	y = y[max(0, len(y)-averageSteps):]
	middle, level := float64(len(y)-1)/2, mean(y)
	var xy, xx float64
	for i, v := range y {
		x := float64(i) - middle
		xy += x * (v - level)
		xx += x * x
	}
	out := make([]float64, n)
	for k := range out {
		out[k] = clamped(level + xy/xx*(float64(len(y)+k)-middle))
	}
	return out
}
