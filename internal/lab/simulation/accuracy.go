package simulation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/stats"
	"github.com/dynctl/dynctl/internal/mooncake"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Agreement is a figure that was measured on a cluster and simulated, in milliseconds.
type Agreement struct {
	Figure    string  `json:"figure"`
	Measured  float64 `json:"measured_ms"`
	Simulated float64 `json:"simulated_ms"`
	// Error is simulated less measured, as a share of measured; Allowed is its goal.
	Error   float64 `json:"error"`
	Allowed float64 `json:"allowed"`
}

// Good reports whether the error is within its goal.
func (a Agreement) Good() bool { return math.Abs(a.Error) <= a.Allowed }

// The goals of a simulation.
const (
	allowedP50 = 0.05
	allowedP95 = 0.15
)

// Latencies are those of simulated answers, in milliseconds. ITL is the mean of an answer.
type Latencies struct {
	TTFT, ITL, E2E *stats.Sample
	Answered       int
	CachedShare    float64 // of their prompts
}

// Last simulates requests and returns the latencies of the last n.
func Last(ctx context.Context, c simulate.Config, requests []mooncake.Request, n int) (*Latencies, error) {
	c.Load, c.Records = simulate.NewTrace(requests, 1, 1), true
	r, err := simulate.Run(ctx, c)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(r.Records, func(a, b simulate.Record) int { return cmp.Compare(a.AtS, b.AtS) })
	sample := func() *stats.Sample { return stats.NewSample(len(r.Records), 1) }
	l := &Latencies{TTFT: sample(), ITL: sample(), E2E: sample()}
	input, cached := 0, 0
	for _, q := range r.Records[max(len(r.Records)-n, 0):] {
		if q.Refused != "" {
			continue
		}
		l.Answered++
		l.TTFT.Add(q.TTFT)
		l.E2E.Add(q.E2E)
		if q.Output > 1 {
			l.ITL.Add(q.TPOT)
		}
		input, cached = input+q.Input, cached+q.Cached
	}
	l.CachedShare = float64(cached) / float64(max(input, 1))
	return l, nil
}

// Agree compares what was measured with what was simulated. It fails where both are not of the same requests.
func Agree(measured *bench.Report, simulated *Latencies) ([]Agreement, error) {
	if measured.Succeeded != simulated.Answered || measured.Failed > 0 || measured.Interrupted {
		return nil, fmt.Errorf("%d requests were answered, %d failed, and %d were answered in the simulation: figures of other requests say nothing", measured.Succeeded, measured.Failed, simulated.Answered)
	}
	var out []Agreement
	for _, f := range []struct {
		name string
		is   *stats.Summary
		sim  *stats.Sample
	}{{"TTFT", measured.TTFT, simulated.TTFT}, {"ITL", measured.TPOT, simulated.ITL}, {"E2E", measured.E2E, simulated.E2E}} {
		sim := f.sim.Summary(f.sim.Count())
		if f.is == nil || sim == nil {
			return nil, errors.New("no request has a " + f.name)
		}
		out = append(out, agreement(f.name+" p50", f.is.P50.Value, sim.P50.Value, allowedP50), agreement(f.name+" p95", f.is.P95.Value, sim.P95.Value, allowedP95))
	}
	return out, nil
}

func agreement(name string, measured, simulated, allowed float64) Agreement {
	return Agreement{Figure: name, Measured: measured, Simulated: simulated, Error: simulated/measured - 1, Allowed: allowed}
}

// ShowAgreement prints the figures side by side, and what keeps them from meaning something.
func ShowAgreement(out io.Writer, all []Agreement, measured *bench.Report, simulated *Latencies) error {
	var b strings.Builder
	b.WriteString("| figure | measured | simulated | error | goal | |\n|---|---:|---:|---:|---:|---|\n")
	for _, a := range all {
		verdict := "missed"
		if a.Good() {
			verdict = "met"
		}
		fmt.Fprintf(&b, "| %s | %s ms | %s ms | %+.1f %% | %.0f %% | %s |\n", a.Figure, round(a.Measured), round(a.Simulated), 100*a.Error, 100*a.Allowed, verdict)
	}
	fmt.Fprintf(&b, "\n%d requests; prompt tokens from caches: %.1f %% measured, %.1f %% simulated. ITL is the mean of an answer.\n", measured.Succeeded, 100*measured.CachedShare, 100*simulated.CachedShare)
	for _, why := range measured.Client.Limited {
		fmt.Fprintf(&b, "The client did not keep up, so the measured figures may be its own: %s.\n", why)
	}
	_, err := io.WriteString(out, b.String())
	return err
}
