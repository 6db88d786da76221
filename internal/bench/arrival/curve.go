package arrival

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Curve is a rate of arrivals over time.
type Curve interface {
	// Rate returns the rate at a time, in arrivals a second.
	Rate(at time.Duration) float64
	// Count returns how many arrivals are expected until a time.
	Count(until time.Duration) float64
	// Span is the time in which the curve shows all of itself; 0 if any time does.
	Span() time.Duration
	// String is the curve in words.
	String() string
}

// Constant is a rate that does not change.
type Constant float64

// Rate implements [Curve].
func (c Constant) Rate(time.Duration) float64 { return float64(c) }

// Count implements [Curve].
func (c Constant) Count(until time.Duration) float64 { return float64(c) * until.Seconds() }

// Span implements [Curve].
func (c Constant) Span() time.Duration { return 0 }

func (c Constant) String() string { return text(float64(c)) + " requests/s" }

// Ramp is a rate that changes evenly from one to another, and then stays.
type Ramp struct {
	From, To float64
	Over     time.Duration
}

// Rate implements [Curve].
func (r Ramp) Rate(at time.Duration) float64 {
	return r.From + (r.To-r.From)*min(at.Seconds()/r.Over.Seconds(), 1)
}

// Count implements [Curve].
func (r Ramp) Count(until time.Duration) float64 {
	in := min(until, r.Over)
	return (r.From+r.Rate(in))/2*in.Seconds() + r.To*(until-in).Seconds()
}

// Span implements [Curve].
func (r Ramp) Span() time.Duration { return r.Over }

func (r Ramp) String() string {
	return fmt.Sprintf("%s to %s requests/s over %s", text(r.From), text(r.To), r.Over)
}

// Sine is a rate that swings between two, beginning at the lower one.
type Sine struct {
	Min, Max float64
	Period   time.Duration
}

// Rate implements [Curve].
func (s Sine) Rate(at time.Duration) float64 {
	return (s.Min+s.Max)/2 - (s.Max-s.Min)/2*math.Cos(s.angle(at))
}

// Count implements [Curve].
func (s Sine) Count(until time.Duration) float64 {
	return (s.Min+s.Max)/2*until.Seconds() - (s.Max-s.Min)/2*s.Period.Seconds()/(2*math.Pi)*math.Sin(s.angle(until))
}

func (s Sine) angle(at time.Duration) float64 {
	return 2 * math.Pi * at.Seconds() / s.Period.Seconds()
}

// Span implements [Curve].
func (s Sine) Span() time.Duration { return s.Period }

func (s Sine) String() string {
	return fmt.Sprintf("%s to %s requests/s and back in %s", text(s.Min), text(s.Max), s.Period)
}

// MaxRate bounds rates, in arrivals a second.
const MaxRate = 1e5

// ParseRamp reads "from:to:time", as 1:20:5m.
func ParseRamp(s string) (Ramp, error) {
	a, b, over, err := parse(s)
	if err != nil {
		return Ramp{}, fmt.Errorf("%q is not FROM:TO:TIME, as 1:20:5m: %w", s, err)
	}
	return Ramp{a, b, over}, nil
}

// ParseSine reads "min:max:period", as 2:10:10m.
func ParseSine(s string) (Sine, error) {
	a, b, period, err := parse(s)
	if err == nil && a > b {
		err = errors.New("the first rate is higher than the second")
	}
	if err != nil {
		return Sine{}, fmt.Errorf("%q is not MIN:MAX:PERIOD, as 2:10:10m: %w", s, err)
	}
	return Sine{a, b, period}, nil
}

// Check refuses rates at which nothing, or too much, arrives.
func Check(rate float64) error {
	if !(rate > 0 && rate <= MaxRate) {
		return fmt.Errorf("%s requests/s is not above 0 and at most %s", text(rate), text(MaxRate))
	}
	return nil
}

func parse(s string) (a, b float64, over time.Duration, err error) {
	parts := strings.Split(s, ":")
	if len(parts) != 3 {
		return 0, 0, 0, errors.New("it has not three parts")
	}
	var rates [2]float64
	for i := range rates {
		if rates[i], err = strconv.ParseFloat(parts[i], 64); err == nil && !(rates[i] >= 0 && rates[i] <= MaxRate) {
			err = fmt.Errorf("%s requests/s is not between 0 and %s", parts[i], text(MaxRate))
		}
		if err != nil {
			return 0, 0, 0, err
		}
	}
	over, err = time.ParseDuration(parts[2])
	switch {
	case err != nil:
		return 0, 0, 0, err
	case over < time.Second || over > maxSpan:
		return 0, 0, 0, fmt.Errorf("%s is not between 1s and %s", parts[2], maxSpan)
	case rates[0] == 0 && rates[1] == 0:
		return 0, 0, 0, errors.New("nothing arrives")
	}
	return rates[0], rates[1], over, nil
}

func text(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }
