package bench

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

const besideIdle = ", idle"

// besidePrompt measures the gaps of running streams while a long prompt is prefilled.
func (d *disaggBench) besidePrompt(ctx context.Context, sec *Section) error {
	sc := d.scale.disagg
	busy := fmt.Sprintf(", prompt of %d tokens", sc.prompt)
	var cases []Case
	for _, n := range d.nodes {
		cases = append(cases,
			Case{n.spec.name + besideIdle, func(ctx context.Context) (Sample, error) { return d.gaps(ctx, n, 0) }},
			Case{n.spec.name + busy, func(ctx context.Context) (Sample, error) { return d.gaps(ctx, n, sc.prompt) }})
	}
	res, err := d.takeTurns(ctx, "disagg, streams beside a prompt", sc.turns, cases)
	if err != nil {
		return err
	}
	plot := Plot{Name: "disaggregation", Title: fmt.Sprintf("ITL of %d streams, alone and while a prompt of %d tokens is prefilled", sc.streams, sc.prompt), Unit: "ms"}
	for _, n := range d.nodes {
		res.ratio(n.spec.name+busy, keyITLTimes, keyITL+"_p99", n.spec.name+besideIdle, 1)
		for _, name := range []string{n.spec.name + besideIdle, n.spec.name + busy} {
			plot.Bars = append(plot.Bars,
				Bar{name + ", p50", res.figure(name, keyITL+"_p50")},
				Bar{name + ", p99", res.figure(name, keyITL+"_p99")})
		}
	}
	sec.Plots = append(sec.Plots, plot)
	sec.Tables = append(sec.Tables, res.table("Running streams beside a prompt",
		fmt.Sprintf("%d streams, on two workers where the node is aggregated and on one where it is not. Gaps\n"+
			"count that touch the time from the arrival of a prompt of %d tokens to its first token;\n"+
			"idle, %s of nothing else.", sc.streams, sc.prompt, sc.idle), []Column{
			{keyITL + "_p50", "ITL p50 ms", "gaps between events as the client reads them"},
			{keyITL + "_p95", "p95", ""}, {keyITL + "_p99", "p99", ""},
			{keyITLTimes, "p99 × idle", "against the same streams alone"},
			{keyTTFT, "TTFT of the prompt ms", ""},
		}))
	return nil
}

// gaps runs the streams during a prompt of the given number of tokens, 0 for none.
func (d *disaggBench) gaps(ctx context.Context, n *node, prompt int) (Sample, error) {
	sc := d.scale.disagg
	target := d.client.to(n.url)
	questions := make([]question, sc.streams+1)
	for i := range questions {
		length, output := 1, sc.output
		if i == sc.streams {
			length, output = prompt, 1
		}
		var err error
		if questions[i], err = d.ask.question(ctx, length, output); err != nil {
			return nil, err
		}
	}
	running, stop := context.WithCancelCause(ctx)
	var streams sync.WaitGroup
	defer streams.Wait()
	defer stop(errDone)
	heard := newArrivals(sc.streams)
	for i := range sc.streams {
		q := questions[i]
		q.arrived = func() { heard.add(i) }
		streams.Go(func() {
			_, err := target.answer(running, q)
			if err == nil {
				err = errNoOverlap // it should run until stop
			}
			stop(err)
		})
	}
	if err := heard.wait(running, time.Time{}); err != nil {
		return nil, err
	}
	s := Sample{}
	from := time.Now()
	if prompt > 0 {
		a, err := target.answer(running, questions[sc.streams])
		if err != nil {
			return nil, errors.Join(err, context.Cause(running))
		}
		s[keyTTFT] = float64(a.ttft) / float64(time.Millisecond)
	} else {
		select {
		case <-time.After(sc.idle):
		case <-running.Done():
			return nil, context.Cause(running)
		}
	}
	to := time.Now()
	// A gap that is open now counts in full.
	if err := heard.wait(running, to); err != nil {
		return nil, err
	}
	s.tail(keyITL, heard.gaps(from, to), time.Millisecond)
	return s, nil
}

// arrivals records when streams delivered text. It is safe for concurrent use.
type arrivals struct {
	mu   sync.Mutex
	at   [][]time.Time // by stream
	news chan struct{} // capacity 1
}

func newArrivals(streams int) *arrivals {
	return &arrivals{at: make([][]time.Time, streams), news: make(chan struct{}, 1)}
}

func (a *arrivals) add(stream int) {
	a.mu.Lock()
	a.at[stream] = append(a.at[stream], time.Now())
	a.mu.Unlock()
	select {
	case a.news <- struct{}{}:
	default: // the reader has not seen the last signal yet
	}
}

// wait waits until every stream has delivered text after t.
func (a *arrivals) wait(ctx context.Context, t time.Time) error {
	for !a.allLater(t) {
		select {
		case <-a.news:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (a *arrivals) allLater(t time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.at {
		if len(at) == 0 || !at[len(at)-1].After(t) {
			return false
		}
	}
	return true
}

// gaps returns the gaps between neighboring arrivals of a stream that overlap a span of
// time.
func (a *arrivals) gaps(from, to time.Time) (out []time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, at := range a.at {
		for i := 1; i < len(at); i++ {
			if at[i].After(from) && at[i-1].Before(to) {
				out = append(out, at[i].Sub(at[i-1]))
			}
		}
	}
	return out
}
