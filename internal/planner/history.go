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
	stepped
	windows []window // the newest last
	lengths []Length // a ring
	next    int      // where the next length goes
}

type window struct {
	end     time.Time
	seconds float64
	arrived float64

	finished, missed float64 // of the sample
}

// add records an observation.
func (h *history) add(o Observation, t Target) {
	h.windows = append(h.windows, window{o.End, o.End.Sub(o.Start).Seconds(), float64(o.Arrived), float64(len(o.Requests)), t.missed(o.Requests)})
	if n := len(h.windows) - rememberedWindows; n > 0 {
		h.windows = h.windows[n:]
	}
	h.spread(o)
	for _, r := range o.Requests {
		if len(h.lengths) < rememberedLengths {
			h.lengths = append(h.lengths, r.Length)
			continue
		}
		h.lengths[h.next] = r.Length
		h.next = (h.next + 1) % rememberedLengths
	}
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
