package predict

import "math"

const (
	autoOrigins = 8    // back-tests: each forecasts from an earlier moment of the series
	autoMinimum = 8    // values before the first of them
	autoMargin  = 0.05 // by how much a predictor must be better than a simpler one
)

// Auto chooses among all predictors. It forecasts from up to 8 earlier moments of the series with
// each and takes the one with the least error, over one step and over the whole horizon, in units of
// the error of repeating the last value. A predictor that is simpler and not 5 % worse wins.
type Auto struct{}

// Name implements Predictor.
func (Auto) Name() string { return AutoName }

// Forecast implements Predictor. It needs one value.
func (a Auto) Forecast(series []float64, n int) []float64 {
	p, _ := a.Choose(series, n)
	return p.Forecast(series, n)
}

// Score is how a predictor did in the back-tests.
type Score struct {
	Predictor string  `json:"predictor"`
	OneStep   float64 `json:"one_step"` // mean absolute error of the next step, of repeating the last value: 1
	Horizon   float64 `json:"horizon"`  // the same over all steps of the horizon
}

func (s Score) total() float64 { return (s.OneStep + s.Horizon) / 2 }

// Choose returns the predictor for the n steps after series, and how all did in the back-tests. Without enough
// values for tests it is the simplest one, and there are no scores.
func (Auto) Choose(series []float64, n int) (Predictor, []Score) {
	y := filled(series)
	all := predictors()
	chosen := all[0]
	first := max(autoMinimum, len(y)/2)
	if len(y) <= first || n < 1 {
		return chosen, nil
	}
	var scores []Score
	best := math.Inf(1)
	for _, p := range all {
		s, ok := backTest(p, y, first, n)
		if !ok {
			continue
		}
		scores = append(scores, s)
		if s.total() < best*(1-autoMargin) {
			best, chosen = s.total(), p
		}
	}
	return chosen, scores
}

// backTest forecasts y from origins that are spread evenly over y[first:].
func backTest(p Predictor, y []float64, first, n int) (Score, bool) {
	s := Score{Predictor: p.Name()}
	origins := min(autoOrigins, len(y)-first)
	var one, all, naiveOne, naiveAll float64
	for k := range origins {
		at := first + k*(len(y)-first)/origins
		ahead := p.Forecast(y[:at], n)
		if ahead == nil {
			return s, false
		}
		reach := min(n, len(y)-at)
		for i := range reach {
			off, naive := math.Abs(ahead[i]-y[at+i]), math.Abs(y[at-1]-y[at+i])
			if i == 0 {
				one += off
				naiveOne += naive
			}
			all += off / float64(reach)
			naiveAll += naive / float64(reach)
		}
	}
	s.OneStep, s.Horizon = ratio(one, naiveOne), ratio(all, naiveAll)
	return s, true
}

// ratio is 1 where neither errs: repeating the last value is perfect and so is this.
func ratio(off, naive float64) float64 {
	const least = 1e-12
	return (off + least) / (naive + least)
}
