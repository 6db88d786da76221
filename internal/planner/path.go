package planner

import (
	"math"
	"time"

	"github.com/dynctl/dynctl/internal/planner/predict"
)

// path is a forecast of the rate: what the throughput loop leaves to the load loop. It is a floor for
// every moment until the next forecast, so that a load which falls within the interval is followed.
type path struct {
	chosen    time.Time // when predictor was chosen
	made      time.Time
	start     time.Time // of the first value
	step      time.Duration
	values    []float64
	predictor predict.Predictor
	scores    []predict.Score
}

// most returns the highest value between two times.
func (f *path) most(from, to time.Time) float64 {
	if f == nil || len(f.values) == 0 {
		return 0
	}
	rate := 0.0
	for i, v := range f.values {
		start := f.start.Add(time.Duration(i) * f.step)
		if start.Before(to) && start.Add(f.step).After(from) {
			rate = max(rate, v)
		}
	}
	return rate
}

// brokenSpan is how many load intervals a forecast is compared with, and brokenSigma how many
// standard deviations of a Poisson count are too far from it.
const (
	brokenSpan  = 4
	brokenSigma = 3.0
)

// broken reports whether the newest windows contradict the forecast.
func (f *path) broken(h *history, now time.Time, interval time.Duration) bool {
	span := brokenSpan * interval
	if now.Sub(f.made) < span {
		return false
	}
	arrived, covered := h.recent(now, span)
	expected := f.most(now.Add(-span/2), now.Add(-span/2+1)) * covered
	return math.Abs(arrived-expected) > brokenSigma*math.Sqrt(max(arrived, expected, 1))
}

// forecastRate continues the series whenever it has a new step. Which predictor does so is chosen
// when the throughput interval is over, or the last forecast broken.
func (p *Planner) forecastRate(now time.Time) {
	f := p.path
	choose := f == nil || now.Sub(f.chosen) >= p.cfg.ThroughputInterval
	if !choose && f.broken(&p.history, now, p.cfg.LoadInterval) {
		choose = now.Sub(f.chosen) >= p.cfg.ForecastStep
	}
	series, end := p.history.series(now)
	if !choose && end.Equal(f.start) {
		return
	}
	reach := p.cfg.ThroughputInterval + p.lookAhead() + p.payback()
	n := int(reach/p.cfg.ForecastStep) + 2
	next := &path{chosen: now, made: now, start: end, step: p.cfg.ForecastStep, predictor: p.predictor}
	auto, automatic := p.predictor.(predict.Auto)
	switch {
	case !automatic:
		next.values = p.predictor.Forecast(series, n)
	case choose:
		next.predictor, next.scores = auto.Choose(series, n)
		next.values = next.predictor.Forecast(series, n)
	default:
		next.chosen, next.predictor, next.scores = f.chosen, f.predictor, f.scores
		next.values = next.predictor.Forecast(series, n)
	}
	p.path = next
}

// lookAhead is how far ahead a plan must last: a worker ordered now is there after a start, and
// nothing else is ordered before; what is ordered then, takes a start again.
func (p *Planner) lookAhead() time.Duration {
	return 2*p.durations.Expect(ActionStart, p.cfg.StartEstimate) + p.cfg.LoadInterval
}

// payback is for how long a worker must not be needed for its stop to free more of its device than
// the drain and the next start take.
func (p *Planner) payback() time.Duration {
	return p.durations.Expect(ActionStart, p.cfg.StartEstimate) + p.durations.Expect(ActionDrain, p.cfg.DrainEstimate)
}
