package planner

import (
	"math"
	"time"
)

// stepped is a load in equal steps of time, of which it remembers the newest.
type stepped struct {
	step  time.Duration
	most  int   // steps that are remembered
	first int64 // number of the first step since 1970
	steps []stepLoad
}

// stepLoad is one step.
type stepLoad struct {
	arrived, covered float64 // requests; seconds
	// expected is the rate that the predictor expected of it before, if told.
	expected float64
	told     bool
}

// spread adds the arrivals of an observation evenly to the steps that it covers.
func (s *stepped) spread(o Observation) {
	span := o.End.Sub(o.Start).Seconds()
	for at := o.Start; at.Before(o.End); {
		number := s.number(at)
		end := s.start(number + 1)
		if end.After(o.End) {
			end = o.End
		}
		covered := end.Sub(at).Seconds()
		l := s.at(number)
		l.covered += covered
		l.arrived += float64(o.Arrived) * covered / span
		at = end
	}
}

// number returns the step of a time, start when a step begins.
func (s *stepped) number(t time.Time) int64     { return t.UnixNano() / int64(s.step) }
func (s *stepped) start(number int64) time.Time { return time.Unix(0, number*int64(s.step)) }

// at returns the step of that number, and makes the steps up to it.
func (s *stepped) at(number int64) *stepLoad {
	if len(s.steps) == 0 || number-s.first >= int64(len(s.steps)+s.most) {
		s.first, s.steps = number, nil // nothing seen for longer than what counts
	}
	for number >= s.first+int64(len(s.steps)) {
		s.steps = append(s.steps, stepLoad{})
	}
	if n := len(s.steps) - s.most; n > 0 {
		s.steps = s.steps[n:]
		s.first += int64(n)
	}
	return &s.steps[max(0, number-s.first)]
}

// rate returns the requests a second of a step. ok is false for one that was observed for less than half of its time.
func (s *stepped) rate(number int64) (rate float64, ok bool) {
	if number < s.first || number >= s.first+int64(len(s.steps)) {
		return 0, false
	}
	l := s.steps[number-s.first]
	if l.covered < s.step.Seconds()/2 {
		return 0, false
	}
	return l.arrived / l.covered, true
}

// series returns the rates of the whole steps until now, with NaN for those that are not known, and when the last
// one ended.
func (s *stepped) series(now time.Time) ([]float64, time.Time) {
	whole := min(max(0, s.number(now)-s.first), int64(len(s.steps)))
	var out []float64
	for n := s.first; n < s.first+whole; n++ {
		rate, ok := s.rate(n)
		if !ok {
			rate = math.NaN()
		}
		out = append(out, rate)
	}
	return out, s.start(s.first + whole)
}
