package planner

import (
	"math"
	"time"
)

const (
	rememberedSteps   = 360  // of ForecastStep: two hours by default
	rememberedLengths = 1024 // requests
	rememberedWindows = 64   // observations, for short-term rates
)

// history is the bounded memory of loads.
type history struct {
	step    time.Duration
	first   int64 // number of the first step since 1970
	steps   []stepLoad
	windows []window // the newest last
	lengths []Length // a ring
	next    int      // where the next length goes
}

// stepLoad is one step of the series.
type stepLoad struct{ arrived, covered float64 } // requests; seconds

type window struct {
	end     time.Time
	seconds float64
	arrived float64

	finished, missed float64 // of the sample
}

// add records an observation. Its arrivals are spread evenly over the steps it covers.
func (h *history) add(o Observation, t Target) {
	span := o.End.Sub(o.Start).Seconds()
	h.windows = append(h.windows, window{o.End, span, float64(o.Arrived), float64(len(o.Requests)), t.missed(o.Requests)})
	if n := len(h.windows) - rememberedWindows; n > 0 {
		h.windows = h.windows[n:]
	}
	for at := o.Start; at.Before(o.End); {
		number := at.UnixNano() / int64(h.step)
		end := time.Unix(0, (number+1)*int64(h.step))
		if end.After(o.End) {
			end = o.End
		}
		s := h.at(number)
		covered := end.Sub(at).Seconds()
		s.covered += covered
		s.arrived += float64(o.Arrived) * covered / span
		at = end
	}
	for _, r := range o.Requests {
		if len(h.lengths) < rememberedLengths {
			h.lengths = append(h.lengths, r.Length)
			continue
		}
		h.lengths[h.next] = r.Length
		h.next = (h.next + 1) % rememberedLengths
	}
}

// at returns the step of that number, and makes the steps up to it.
func (h *history) at(number int64) *stepLoad {
	if len(h.steps) == 0 || number-h.first >= int64(len(h.steps)+rememberedSteps) {
		h.first, h.steps = number, nil // nothing seen for longer than what counts
	}
	for number >= h.first+int64(len(h.steps)) {
		h.steps = append(h.steps, stepLoad{})
	}
	if n := len(h.steps) - rememberedSteps; n > 0 {
		h.steps = h.steps[n:]
		h.first += int64(n)
	}
	return &h.steps[max(0, number-h.first)]
}

// series returns the rates of the whole steps until now, with NaN for those that were
// observed for less than half of their time, and when the last one ended.
func (h *history) series(now time.Time) ([]float64, time.Time) {
	whole := int(now.UnixNano()/int64(h.step) - h.first)
	var out []float64
	for _, s := range h.steps[:max(0, min(whole, len(h.steps)))] {
		rate := math.NaN()
		if s.covered >= h.step.Seconds()/2 {
			rate = s.arrived / s.covered
		}
		out = append(out, rate)
	}
	return out, time.Unix(0, (h.first+int64(len(out)))*int64(h.step))
}

// recent returns the arrivals of the newest windows that cover at least span, and the seconds covered.
// Windows that ended longer ago than that do not count.
func (h *history) recent(now time.Time, span time.Duration) (arrived, covered float64) {
	for i := len(h.windows) - 1; i >= 0 && covered < span.Seconds()-1e-9; i-- {
		w := h.windows[i]
		if now.Sub(w.end) >= span {
			break
		}
		arrived += w.arrived
		covered += w.seconds
	}
	return arrived, covered
}

// Spans over which rates are measured, in load intervals: short ones see a step early, long ones see a
// level exactly, and see a fall late.
var rateSpans = []int{1, 2, 4}

// rateSigma is the certainty of measured rates, in standard deviations of a Poisson count. With one, constant
// loads now and then seem to have fallen.
const rateSigma = 2.0

// measured is a rate with the count that it comes from.
type measured struct {
	rate             float64 // a bound, in requests a second
	arrived, seconds float64
}

// mean returns the rate that was counted.
func (m measured) mean() float64 {
	if m.seconds == 0 {
		return 0
	}
	return m.arrived / m.seconds
}

// bound returns the highest bound of a rate over several spans, the given number of standard deviations of
// a Poisson count from its mean.
func (h *history) bound(now time.Time, interval time.Duration, spans []int, sigma float64) measured {
	var best measured
	for _, n := range spans {
		arrived, covered := h.recent(now, time.Duration(n)*interval)
		if covered <= 0 {
			continue
		}
		if rate := (arrived + sigma*math.Sqrt(arrived)) / covered; rate > best.rate {
			best = measured{rate, arrived, covered}
		}
	}
	return best
}

// proven returns the rate that the last windows show to be there at the least.
func (h *history) proven(now time.Time, interval time.Duration) measured {
	return h.bound(now, interval, rateSpans, -rateSigma)
}

// possible returns the rate that the longest span does not exclude.
func (h *history) possible(now time.Time, interval time.Duration) measured {
	return h.bound(now, interval, rateSpans[len(rateSpans)-1:], rateSigma)
}
