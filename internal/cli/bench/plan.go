package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/arrival"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/mooncake"
)

// Defaults of loads that nothing else bounds.
const (
	defaultConcurrency = 4
	defaultDuration    = 30 * time.Second
	defaultPhases      = 5
	maxPhases          = 50
	maxConnections     = 1 << 16
)

// load is a load, and what it is in words.
type load struct {
	bench.Config
	arrivals, prompts, answers string
	whole                      time.Duration // that it takes; 0 if unknown
	turns                      int           // of each conversation
}

// plan makes the load that the flags describe. It finds mistakes before anything is dialed.
func (o *Options) plan() (load, error) {
	given := o.Session.Given
	l := load{Config: bench.Config{
		MaxInFlight: o.MaxInFlight, Conversations: o.Requests, Duration: o.Duration, Warmup: o.Warmup, Think: o.Think, Timeout: o.Timeout,
		ExactLength: !o.NoIgnoreEOS, Seed: o.Seed,
	}, turns: max(o.Turns, 1)}
	if !given("seed") {
		l.Seed = uint64(rand.Uint32()) // short, to be typed again
	}
	var err error
	switch {
	case o.Timeout <= 0:
		return l, usage("timeout", errors.New("must be greater than 0"))
	case o.MaxInFlight < 1 || o.MaxInFlight > maxConnections:
		return l, usage("max-in-flight", fmt.Errorf("%d is not between 1 and %d", o.MaxInFlight, maxConnections))
	case o.Concurrency > maxConnections || given("concurrency") && o.Concurrency == 0:
		return l, usage("concurrency", fmt.Errorf("%d is not between 1 and %d", o.Concurrency, maxConnections))
	case given("url") && o.URL == "":
		return l, usage("url", errors.New("no address given"))
	case o.Phases > maxPhases:
		return l, usage("phases", fmt.Errorf("%d are more than %d", o.Phases, maxPhases))
	}
	if given("slo") {
		if l.SLO, err = bench.ParseSLO(o.SLO); err != nil {
			return l, usage("slo", err)
		}
	}
	trace, err := o.source(&l)
	if err != nil {
		return l, err
	}
	span, err := o.times(&l, trace)
	if err != nil {
		return l, err
	}
	if span > 0 && l.Duration == 0 && l.Conversations == 0 && trace == nil {
		l.Duration = span
	}
	if span == 0 && l.Duration == 0 && l.Conversations == 0 && !given("trace") {
		l.Duration = defaultDuration
	}
	if l.whole = l.Duration; l.whole == 0 {
		l.whole = span
	}
	if l.Phases = o.Phases; l.Phases == 0 && span > 0 && !given("phases") {
		l.Phases = defaultPhases
	}
	if l.Phases > 0 && l.whole <= 0 {
		return l, usage("phases", errors.New("needs --duration, a ramp, a sine or a trace"))
	}
	if l.Phases > 0 {
		l.PhaseLength = max(l.whole/time.Duration(l.Phases), 1)
	}
	return l, nil
}

// source chooses the prompts: of a trace, which it returns, or drawn.
func (o *Options) source(l *load) (*workload.Trace, error) {
	given := o.Session.Given
	if given("trace") {
		for _, f := range []string{"isl", "osl", "prefix-share", "prefixes", "turns", "think"} {
			if given(f) {
				return nil, usage(f, errors.New("prompts and answers are those of the trace"))
			}
		}
		if !(o.Speed > 0 && o.Speed <= 1e6) {
			return nil, usage("speed", fmt.Errorf("%v is not above 0 and at most a million", o.Speed))
		}
		f, err := os.Open(o.Session.Env.Path(o.Trace))
		if err != nil {
			return nil, &exit.Failure{Action: action, Err: fmt.Errorf("--trace: %w", err)}
		}
		defer f.Close()
		requests, err := mooncake.Read(f)
		if err == nil && len(requests) <= o.Warmup {
			err = errors.New("it has no request, or none behind the warm-up")
		}
		if err != nil {
			return nil, &exit.Failure{Action: action, Err: fmt.Errorf("--trace %s: %w", o.Trace, err)}
		}
		t := workload.Trace{Requests: requests, Speed: o.Speed}
		l.Source = t
		l.prompts, l.answers = "of "+filepath.Base(o.Trace), "of "+filepath.Base(o.Trace)
		return &t, nil
	}
	if given("speed") {
		return nil, usage("speed", errors.New("needs --trace"))
	}
	input, err := workload.ParseLengths(o.Input)
	if err != nil {
		return nil, usage("isl", err)
	}
	output, err := workload.ParseLengths(o.Output)
	switch {
	case err != nil:
		return nil, usage("osl", err)
	case !(o.Share >= 0 && o.Share <= 1):
		return nil, usage("prefix-share", fmt.Errorf("%v is not between 0 and 1", o.Share))
	case o.Prefixes < 1:
		return nil, usage("prefixes", errors.New("at least one"))
	case o.Turns < 1 || o.Turns > workload.MaxTurns:
		return nil, usage("turns", fmt.Errorf("%d is not between 1 and %d", o.Turns, workload.MaxTurns))
	case o.Turns > 1 && o.API == "completions":
		return nil, usage("turns", errors.New("conversations need --api chat"))
	}
	l.Source = workload.Synthetic{Input: input, Output: output, Share: o.Share, Prefixes: o.Prefixes, Turns: o.Turns, Seed: l.Seed}
	l.prompts, l.answers = input.String()+" tokens", output.String()+" tokens"
	if o.Share > 0 {
		l.prompts += fmt.Sprintf(", %v of them one of %s", o.Share, human.Plural(o.Prefixes, "prefix"))
		if o.Prefixes > 1 {
			l.prompts = l.prompts[:len(l.prompts)-1] + "es"
		}
	}
	if o.Turns > 1 {
		l.prompts += fmt.Sprintf(", %d turns", o.Turns)
		if o.Think > 0 {
			l.prompts += " with pauses of " + command.DurationText(o.Think)
		}
	}
	return nil, nil
}

// times chooses when requests are sent, and returns the time that the load takes by itself.
func (o *Options) times(l *load, trace *workload.Trace) (time.Duration, error) {
	given := o.Session.Given
	chosen := ""
	for _, f := range []string{"rate", "ramp", "sine", "concurrency"} {
		if given(f) && chosen != "" {
			return 0, &exit.UsageError{Text: fmt.Sprintf("--%s and --%s: choose one", chosen, f)}
		}
		if given(f) {
			chosen = f
		}
	}
	var curve arrival.Curve
	var err error
	switch {
	case chosen == "rate":
		curve, err = arrival.Constant(o.Rate), arrival.Check(o.Rate)
	case chosen == "ramp":
		curve, err = arrival.ParseRamp(o.Ramp)
	case chosen == "sine":
		curve, err = arrival.ParseSine(o.Sine)
	case chosen == "" && trace != nil:
		first, _ := trace.Conversation(o.Warmup)
		next := o.Warmup
		l.Arrivals = func() (time.Duration, bool) {
			c, ok := trace.Conversation(next)
			next++
			return c.At - first.At, ok
		}
		l.arrivals = "of the trace"
		if o.Speed != 1 {
			l.arrivals += fmt.Sprintf(", %v times as fast", o.Speed)
		}
		return trace.Span() - first.At + 1, nil
	default:
		if l.Concurrency = o.Concurrency; l.Concurrency == 0 {
			l.Concurrency = defaultConcurrency
		}
		l.arrivals = human.Plural(l.Concurrency, "conversation") + " at a time"
		return 0, nil
	}
	if err != nil {
		return 0, usage(chosen, err)
	}
	l.Arrivals = arrival.New(curve, o.Arrival == "poisson", l.Seed).Next
	l.arrivals = curve.String() + ", " + o.Arrival
	return curve.Span(), nil
}
