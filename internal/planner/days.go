package planner

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"
)

const (
	// dayStep is the resolution at which earlier days are remembered.
	dayStep = 5 * time.Minute
	perDay  = int64(24 * time.Hour / dayStep)
	// rememberedDays are today, and a week before it.
	rememberedDays = 8
	// dayTests is how many steps a back-test needs.
	dayTests = 12
	// dayMargin is by how much earlier days must lower the error of the predictor to count.
	dayMargin = 0.05
)

// days is the load of the last days. What it expects of a time is the median of the same time on the days before, no more
// than a week before, and lower where today is lower so far: in the last minutes, relative to the same minutes before. It
// only ever raises what the predictor expects, where it is a tenth higher.
type days struct {
	stepped
	judged int64     // the step in which errs was found
	errs   dayErrors // of the whole steps
}

// dayErrors are the mean squared errors of the predictor, alone and raised by what was known of earlier days.
type dayErrors struct {
	steps         int
	alone, raised float64
}

func newDays() days { return days{stepped: stepped{step: dayStep, most: rememberedDays * int(perDay)}} }

// ratio returns the error with earlier days, that of the predictor alone being 1. ok is false without enough steps to compare.
func (e dayErrors) ratio() (ratio float64, ok bool) {
	if e.steps < dayTests {
		return 1, false
	}
	const least = 1e-12
	return math.Sqrt((e.raised + least) / (e.alone + least)), true
}

// pays reports whether earlier days predict better.
func (e dayErrors) pays() bool {
	ratio, ok := e.ratio()
	return ok && ratio < 1-dayMargin
}

// before returns the rate at the same time on earlier days, and on how many it is known.
func (d *days) before(number int64) (rate float64, known int) {
	var rates []float64
	week := math.Inf(1)
	for k := int64(1); k < rememberedDays; k++ {
		r, ok := d.rate(number - k*perDay)
		if !ok {
			continue
		}
		rates = append(rates, r)
		if k == 7 {
			week = r
		}
	}
	if len(rates) == 0 {
		return 0, 0
	}
	slices.Sort(rates)
	n := len(rates)
	return min((rates[(n-1)/2]+rates[n/2])/2, week), n
}

// raised returns what is expected of a rate where the predictor expects alone, and earlier days another one.
func raised(alone, daily float64) float64 {
	if daily > clearly*alone {
		return daily
	}
	return alone
}

// level returns how today compares with earlier days: at most 1, and 1 where that is not known.
func level(today, before float64) float64 {
	if before <= 0 {
		return 1
	}
	return min(1, today/before)
}

// judge back-tests earlier days over all whole steps, with what was known the given number of steps before each. What the
// predictor expected is what it said then.
func (d *days) judge(now time.Time, reach int64) {
	number := d.number(now)
	if d.judged == number {
		return
	}
	d.judged, d.errs = number, dayErrors{}
	for n := d.first; n < min(number, d.first+int64(len(d.steps))); n++ {
		rate, ok := d.rate(n)
		daily, known := d.before(n)
		alone := d.steps[n-d.first]
		if !ok || !alone.told || known == 0 {
			continue
		}
		if today, ok := d.rate(n - 1 - reach); ok {
			if then, known := d.before(n - 1 - reach); known > 0 {
				daily *= level(today, then)
			}
		}
		off, offRaised := alone.expected-rate, raised(alone.expected, daily)-rate
		d.errs.steps++
		d.errs.alone += off * off
		d.errs.raised += offRaised * offRaised
	}
}

// tell notes what the predictor expects of the step that begins at the end of the look-ahead.
func (d *days) tell(now time.Time, ahead, interval time.Duration, expects func(time.Time) float64) {
	then := now.Add(ahead)
	number := d.number(then)
	if then.Sub(d.start(number)) > 2*interval {
		return // it has begun earlier, and what was expected of it then is not known
	}
	if l := d.at(number); !l.told {
		l.expected, l.told = expects(d.start(number)), true
	}
}

// daily is what earlier days say of the time to come.
type daily struct {
	rate  float64 // the highest within the look-ahead, with the level of today
	later float64 // and until a stopped worker would have paid for its return
	days  int     // that the rate is known from; 0: nothing is known
	ratio float64 // of errors; 0: not tested
	pays  bool    // it counts
}

// daily returns what earlier days say.
func (p *Planner) daily(now time.Time) (out daily) {
	d := &p.days
	ahead := p.lookAhead()
	d.judge(now, int64((ahead+dayStep-1)/dayStep))
	low := p.today(now)
	most := func(until time.Time) (rate float64) {
		for n := d.number(now); d.start(n).Before(until); n++ {
			if r, known := d.before(n); known > 0 {
				rate, out.days = max(rate, low*r), max(out.days, known)
			}
		}
		return rate
	}
	out.later = most(now.Add(ahead + p.payback()))
	out.rate = most(now.Add(ahead))
	if ratio, ok := d.errs.ratio(); ok {
		out.ratio, out.pays = ratio, d.errs.pays()
	}
	return out
}

// today returns the level of the last minutes.
func (p *Planner) today(now time.Time) float64 {
	arrived, covered := p.history.recent(now, dayStep)
	if covered < dayStep.Seconds()/2 {
		return 1
	}
	expected := 0.0
	end := now
	for left := covered; left > 1e-9; {
		n := p.days.number(end.Add(-1))
		span := min(left, end.Sub(p.days.start(n)).Seconds())
		r, known := p.days.before(n)
		if known == 0 {
			return 1
		}
		expected += r * span
		left -= span
		end = p.days.start(n)
	}
	return level(arrived, expected)
}

// Days is the load of the last days as it is kept for the next planner. Steps are five minutes.
type Days struct {
	First int64 `json:"first"` // number of the first step since 1970
	// Rates are requests a second, Expected what the predictor expected of each step before. -1: not known.
	Rates    []float64 `json:"rates"`
	Expected []float64 `json:"expected"`
}

// notKnown stands for a gap.
const notKnown = -1

// Days returns the whole steps until now.
func (p *Planner) Days(now time.Time) Days {
	d := &p.days
	out := Days{First: d.first}
	for n := d.first; n < min(d.number(now), d.first+int64(len(d.steps))); n++ {
		rate, expected := float64(notKnown), float64(notKnown)
		if r, ok := d.rate(n); ok {
			rate = rounded(r)
		}
		if l := d.steps[n-d.first]; l.told {
			expected = rounded(l.expected)
		}
		out.Rates, out.Expected = append(out.Rates, rate), append(out.Expected, expected)
	}
	return out
}

// rounded keeps four digits.
func rounded(v float64) float64 {
	v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 4, 64), 64)
	return v
}

// highestRate bounds what is believed of a store.
const highestRate = 1e9

// Validate returns an error that names what cannot be.
func (d Days) Validate(now time.Time) error {
	most := rememberedDays * int(perDay)
	switch last := now.UnixNano() / int64(dayStep); {
	case len(d.Rates) > most:
		return fmt.Errorf("rates: %d steps, at most %d are remembered", len(d.Rates), most)
	case len(d.Expected) != len(d.Rates):
		return fmt.Errorf("expected: %d steps, rates has %d", len(d.Expected), len(d.Rates))
	case d.First < 0 || d.First > last+1 || d.First+int64(len(d.Rates)) > last+1:
		return fmt.Errorf("first: step %d and %d more end after now, step %d", d.First, len(d.Rates), last)
	}
	for name, values := range map[string][]float64{"rates": d.Rates, "expected": d.Expected} {
		for i, v := range values {
			if v != notKnown && !(v >= 0 && v <= highestRate) {
				return fmt.Errorf("%s[%d]: %v is no rate", name, i, v)
			}
		}
	}
	return nil
}

// RecallDays takes over what a planner before this one knew of earlier days. It must come before the first
// observation. What cannot be is refused as a whole.
func (p *Planner) RecallDays(now time.Time, d Days) error {
	if err := d.Validate(now); err != nil {
		return err
	}
	p.days = newDays()
	for i, rate := range d.Rates {
		l := p.days.at(d.First + int64(i))
		if rate != notKnown {
			l.covered = dayStep.Seconds()
			l.arrived = rate * l.covered
		}
		l.expected, l.told = d.Expected[i], d.Expected[i] != notKnown
	}
	return nil
}
