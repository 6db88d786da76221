package profiler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/workload"
	"github.com/dynctl/dynctl/internal/openai"
	"github.com/dynctl/dynctl/internal/profile"
)

// Config is a sweep.
type Config struct {
	Ask   bench.Ask
	Model string
	// Text has prompts sent as texts to be continued, and not as messages of a chat.
	Text bool
	// ExactLength asks for answers that go on for as many tokens as wanted.
	ExactLength bool
	Scale       workload.Scale
	Seed        uint64 // of the texts; another one in each run, or caches have them
	Timeout     time.Duration

	Limits profile.Limits
	// Plan is what to measure, in order; Have is what is measured already.
	Plan []Point
	Have []Measurement
	// Budget bounds the time of the run. What does not fit any more is left out.
	Budget time.Duration

	// Others returns what the worker does; nil if nobody can tell.
	Others func(context.Context) (Activity, error)
	// Done gets every point as it is measured; an error of it ends the run. Watch gets how far
	// the run is. Each is called by one goroutine at a time.
	Done  func(Measurement) error
	Watch func(Status)
}

// Activity is what a worker does for everybody.
type Activity struct {
	Sequences int    // that it has now
	Tokens    uint64 // of prompts and answers since its start
}

// Status is how far a run is.
type Status struct {
	Elapsed time.Duration
	Now     Point // that is measured
	Done    []Measurement
	Planned int // points, with those done
}

// LeftOut is a point that was not measured, and why.
type LeftOut struct {
	Point
	Why string
}

// Result is what a run has measured, in the order in which it did, behind what it had.
type Result struct {
	Measured []Measurement
	Left     []LeftOut
}

// ErrBusy is returned when others use the worker that is measured.
var ErrBusy = errors.New("the worker has other load")

// overBudget is why a point is left out that had no time.
const overBudget = "the budget has no time for it"

// errBudget ends a point at the end of the budget.
var errBudget = errors.New("the time is over")

// Run measures the points of the plan that it does not have, until the budget is over. A point
// that the server refuses is left out. With an error, or when ctx ends, the result has what was
// measured before.
func Run(ctx context.Context, c Config) (Result, error) {
	s := &sweep{Config: c, begin: time.Now(), state: Status{Done: slices.Clone(c.Have), Planned: len(c.Plan)}}
	over, end := context.WithCancel(context.WithoutCancel(ctx))
	var aside sync.WaitGroup
	if c.Watch != nil {
		aside.Go(func() { s.watch(over) })
	}
	left, err := s.all(ctx)
	end()
	aside.Wait()
	return Result{s.state.Done, left}, err
}

// all measures point after point: the first of the plan that the rest of the budget has time for.
func (s *sweep) all(ctx context.Context) (left []LeftOut, err error) {
	var open []Point
	for _, p := range s.Plan {
		if !slices.ContainsFunc(s.Have, func(m Measurement) bool { return m.Point == p }) {
			open = append(open, p)
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, s.Budget, errBudget)
	defer cancel()
	if len(open) > 0 {
		switch err := s.warm(limited); {
		case err == nil:
		case ctx.Err() != nil:
			return unmeasured(nil, open, "the run was stopped"), context.Cause(ctx)
		case limited.Err() != nil:
			return unmeasured(nil, open, overBudget), nil
		default:
			return unmeasured(nil, open, "the run failed"), err
		}
	}
	for len(open) > 0 {
		rest := s.Budget - time.Since(s.begin)
		i := slices.IndexFunc(open, func(p Point) bool { return s.predict(p) <= min(rest, s.Budget/pointShare) })
		if i < 0 { // what takes long comes last, since it would take the place of many others
			i = slices.IndexFunc(open, func(p Point) bool { return s.predict(p) <= rest })
		}
		if i < 0 || rest <= 0 {
			break
		}
		p := open[i]
		m, err := s.undisturbed(limited, p)
		switch {
		case err == nil:
			open = slices.Delete(open, i, i+1)
			s.mu.Lock()
			s.state.Done = append(s.state.Done, m)
			s.mu.Unlock()
			if err := s.Done(m); err != nil {
				return unmeasured(left, open, "the run failed"), err
			}
		case ctx.Err() != nil:
			return unmeasured(left, open, "the run was stopped"), context.Cause(ctx)
		case limited.Err() != nil:
			return unmeasured(left, open, overBudget), nil
		case refused(err):
			left = append(left, LeftOut{p, err.Error()})
			open = slices.Delete(open, i, i+1)
		default:
			return unmeasured(left, open, "the run failed"), fmt.Errorf("measure %s: %w", p, err)
		}
	}
	return unmeasured(left, open, overBudget), nil
}

// warm has a short answer made that is not measured.
func (s *sweep) warm(ctx context.Context) error {
	if _, err := s.idle(ctx); err != nil {
		return err
	}
	_, err := s.together(ctx, []string{s.write(shortest)}, leastWindow)
	if err != nil {
		return fmt.Errorf("the first request: %w", err)
	}
	return nil
}

// unmeasured adds what is still open, and why.
func unmeasured(left []LeftOut, open []Point, why string) []LeftOut {
	for _, p := range open {
		left = append(left, LeftOut{p, why})
	}
	return left
}

// pointShare is the part of the budget that a point may take while there are shorter ones.
const pointShare = 10

// refused reports whether an error is about one point, and others can still be measured.
func refused(err error) bool {
	var said *openai.Error
	return errors.Is(err, ErrShort) || errors.As(err, &said) && slices.Contains([]int{400, 413, 422}, said.Status)
}

// undisturbed measures a point while nobody else uses the worker. One that others have spoiled
// is measured anew, a few times.
func (s *sweep) undisturbed(ctx context.Context, p Point) (Measurement, error) {
	s.mu.Lock()
	s.state.Now = p
	s.mu.Unlock()
	var others uint64
	for range attempts {
		before, err := s.idle(ctx)
		if err != nil {
			return Measurement{}, err
		}
		begin, own := time.Now(), s.own
		m, err := s.measure(ctx, p)
		if err != nil {
			return m, err
		}
		m.TookS = time.Since(begin).Seconds()
		if s.Others == nil {
			return m, nil
		}
		after, err := s.idle(ctx)
		if err != nil {
			return m, err
		}
		own = s.own - own
		others = after.Tokens - before.Tokens - min(own, after.Tokens-before.Tokens)
		if others <= max(own/100, strayTokens) {
			return m, nil
		}
	}
	return Measurement{}, fmt.Errorf("%w: others had %d tokens computed meanwhile", ErrBusy, others)
}

// strayTokens are those that a worker may compute beside a point: its health checks ask for a
// few. One percent of the point's own tokens may come from others, too.
const strayTokens = 32

// Times of looking whether a worker is idle: what was sent before has ended, and it is busy for
// others if it does not get idle.
const (
	idleWithin = 3 * time.Second
	idleEvery  = 50 * time.Millisecond
)

// idle waits until the worker has no sequence.
func (s *sweep) idle(ctx context.Context) (Activity, error) {
	if s.Others == nil {
		return Activity{}, nil
	}
	for begin := time.Now(); ; {
		a, err := s.Others(ctx)
		switch {
		case err != nil:
			return a, err
		case a.Sequences == 0:
			return a, nil
		case time.Since(begin) > idleWithin:
			return a, fmt.Errorf("%w: it has %d sequences of others", ErrBusy, a.Sequences)
		}
		if err := pause(ctx, idleEvery); err != nil {
			return a, err
		}
	}
}

// pause waits for a time, or returns why ctx ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// predict returns how long a point takes, by what was measured so far; 0 if nothing tells.
func (s *sweep) predict(p Point) time.Duration {
	once := s.prompt(p.Tokens) * float64(p.Streams)
	if p.Kind == Decode {
		itl := 0.0
		for _, m := range s.state.Done {
			if m.Kind == Decode && m.Tokens <= p.Tokens && m.Streams <= p.Streams {
				itl = max(itl, m.Seconds)
			}
		}
		once += itl * window
	}
	if profile.Seconds(once*(repeats-1)) < s.Budget/repeatShare {
		once *= repeats
	}
	return profile.Seconds(once)
}

// prompt returns the seconds of a prompt, in a straight line between the measured ones that are
// next to it, or in proportion to the longest; 0 before one was measured.
func (s *sweep) prompt(tokens int) float64 {
	var below, above Measurement
	for _, m := range s.state.Done {
		switch {
		case m.Kind != Prefill:
		case m.Tokens <= tokens && m.Tokens > below.Tokens:
			below = m
		case m.Tokens > tokens && (above.Tokens == 0 || m.Tokens < above.Tokens):
			above = m
		}
	}
	switch {
	case above.Tokens > 0:
		return below.Seconds + (above.Seconds-below.Seconds)*float64(tokens-below.Tokens)/float64(above.Tokens-below.Tokens)
	case below.Tokens > 0:
		return below.Seconds * float64(tokens) / float64(below.Tokens)
	}
	return 0
}

// watchEvery is the time between two calls of Watch.
const watchEvery = 200 * time.Millisecond

// watch tells how far the run is until ctx ends.
func (s *sweep) watch(ctx context.Context) {
	for {
		s.mu.Lock()
		now := s.state
		now.Done = slices.Clone(now.Done)
		s.mu.Unlock()
		now.Elapsed = time.Since(s.begin)
		s.Watch(now)
		if pause(ctx, watchEvery) != nil {
			return
		}
	}
}
