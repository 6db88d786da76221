package predict

import "math"

const (
	minSeason      = 4   // steps; shorter ones are noise
	seasonEvidence = 0.4 // autocorrelation at the season's lag
)

// HoltWinters smooths a level, a damped trend and, where autocorrelation finds one, an
// additive season exponentially. The smoothing weights are those of a small grid with the
// least squared one-step error.
//
// Gardner and McKenzie, Forecasting trends in time series, 1985 (the damped trend).
type HoltWinters struct{}

// Name implements Predictor.
func (HoltWinters) Name() string { return "holt-winters" }

// Forecast implements Predictor. It needs five values, and two seasons to see one.
func (HoltWinters) Forecast(series []float64, n int) []float64 {
	y := filled(series)
	if len(y) < minFitted || n < 1 {
		return nil
	}
	m := season(y)
	gammas := []float64{0}
	if m > 0 {
		gammas = []float64{0.05, 0.2, 0.4}
	}
	var best holtWinters
	for _, alpha := range []float64{0.05, 0.2, 0.4, 0.6, 0.8} {
		for _, beta := range []float64{0, 0.05, 0.2} {
			for _, gamma := range gammas {
				h := smooth(y, m, alpha, beta, gamma)
				if best.alpha == 0 || h.sse < best.sse {
					best = h
				}
			}
		}
	}
	out := make([]float64, n)
	damped := 0.0
	for k := range out {
		damped += math.Pow(damping, float64(k+1))
		v := best.level + damped*best.trend
		if m > 0 {
			v += best.season[(len(y)+k)%m]
		}
		out[k] = clamped(v)
	}
	return out
}

// damping is by how much a trend is trusted less with every step ahead.
const damping = 0.95

type holtWinters struct {
	alpha, level, trend, sse float64
	season                   []float64
}

// smooth runs the recursions over y. The first season, or the first two values, start them.
func smooth(y []float64, m int, alpha, beta, gamma float64) holtWinters {
	h := holtWinters{alpha: alpha, season: make([]float64, m)}
	from := 1
	if m > 0 {
		from = m
		h.level = mean(y[:m])
		h.trend = (mean(y[m:2*m]) - h.level) / float64(m)
		for i := range m {
			h.season[i] = y[i] - h.level - h.trend*(float64(i)-float64(m-1)/2)
		}
		h.level += h.trend * float64(m-1) / 2 // from the middle of the season to its end
	} else {
		h.level, h.trend = y[0], 0
	}
	for t := from; t < len(y); t++ {
		ahead, s := h.level+damping*h.trend, 0.0
		if m > 0 {
			s = h.season[t%m]
		}
		off := y[t] - ahead - s
		h.sse += off * off
		level := ahead + alpha*off
		h.trend = (1-beta)*damping*h.trend + beta*(level-h.level)
		h.level = level
		if m > 0 {
			h.season[t%m] = (1-gamma)*s + gamma*(y[t]-level)
		}
	}
	return h
}

// season returns the lag of the highest peak of the autocorrelation of y without its line of
// least squares, 0 when there is no evidence for a season. Two whole seasons must be there.
func season(y []float64) int {
	d := detrended(y)
	variance := 0.0
	for _, v := range d {
		variance += v * v
	}
	if len(d) < 2*minSeason || variance <= 1e-12*float64(len(d))*mean(y)*mean(y) {
		return 0
	}
	correlation := func(lag int) float64 {
		sum := 0.0
		for i := lag; i < len(d); i++ {
			sum += d[i] * d[i-lag]
		}
		return sum / variance // of two seasons at most a half: less evidence counts less
	}
	// Peaks count only after the first lag without correlation: a smooth series correlates
	// with itself at short lags.
	best, at, passed := seasonEvidence, 0, false
	for lag := 1; lag <= len(d)/2; lag++ {
		r := correlation(lag)
		passed = passed || r <= 0
		if passed && lag >= minSeason && r > best {
			best, at = r, lag
		}
	}
	if at == 0 {
		return 0
	}
	// The sum has fewer terms at longer lags, which moves the peak towards short ones.
	perTerm := func(lag int) float64 { return correlation(lag) / float64(len(d)-lag) }
	for at < len(d)/2 && perTerm(at+1) > perTerm(at) {
		at++
	}
	return at
}

func detrended(y []float64) []float64 {
	middle, level := float64(len(y)-1)/2, mean(y)
	var xy, xx float64
	for i, v := range y {
		x := float64(i) - middle
		xy += x * (v - level)
		xx += x * x
	}
	out := make([]float64, len(y))
	for i, v := range y {
		out[i] = v - level
		if xx > 0 {
			out[i] -= xy / xx * (float64(i) - middle)
		}
	}
	return out
}
