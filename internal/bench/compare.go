package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/dynctl/dynctl/internal/bench/stats"
)

// maxReport bounds a report that is read, in bytes.
const maxReport = 16 << 20

// Read reads a report in its JSON form.
func Read(r io.Reader) (*Report, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxReport+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxReport {
		return nil, fmt.Errorf("it has more than %d bytes", maxReport)
	}
	var out Report
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("it is no report: %w", err)
	}
	switch {
	case out.Version == 0:
		return nil, errors.New("it is no report of dynctl bench: it has no version")
	case out.Version != Version:
		return nil, fmt.Errorf("its version is %d, and this dynctl reads %d", out.Version, Version)
	}
	return &out, nil
}

// Verdict says whether two figures differ.
type Verdict string

// Verdicts on figures with intervals.
const (
	Differs Verdict = "differs" // their intervals have nothing in common
	Alike   Verdict = "alike"   // the difference may be chance
	Unsure  Verdict = "unsure"  // there are too few values for intervals
)

// Difference is one figure of two reports.
type Difference struct {
	Name string   `json:"name"`
	A    *float64 `json:"a"` // nil where a report has no value
	B    *float64 `json:"b"`
	// Ratio is B over A; nil where there is none.
	Ratio *float64 `json:"ratio"`
	// Verdict is empty for rates, which have no interval.
	Verdict Verdict `json:"verdict,omitempty"`
}

// Comparison is two reports side by side.
type Comparison struct {
	Version int          `json:"version"`
	Figures []Difference `json:"figures"`
	// Unequal lists what else differs between the loads, with both values.
	Unequal []string `json:"unequal"`
}

// Compare compares b with a.
func Compare(a, b *Report) Comparison {
	c := Comparison{Version: Version, Unequal: []string{}}
	add := func(name string, x, y *float64, v Verdict) {
		d := Difference{Name: name, A: x, B: y, Verdict: v}
		if x != nil && y != nil && *x != 0 {
			d.Ratio = new(*y / *x)
		}
		c.Figures = append(c.Figures, d)
	}
	for _, l := range []struct {
		name string
		x, y *stats.Summary
	}{{"ttft", a.TTFT, b.TTFT}, {"itl", a.ITL, b.ITL}, {"tpot", a.TPOT, b.TPOT}, {"e2e", a.E2E, b.E2E}} {
		x, y := figures(l.x), figures(l.y)
		for i, q := range []string{"mean", "p50", "p90", "p95", "p99"} {
			name := l.name + "_" + q + "_ms"
			switch {
			case x == nil && y == nil:
			case x == nil:
				add(name, nil, &y[i].Value, "")
			case y == nil:
				add(name, &x[i].Value, nil, "")
			default:
				add(name, &x[i].Value, &y[i].Value, judge(x[i], y[i]))
			}
		}
	}
	add("requests_per_s", &a.RequestsPerS, &b.RequestsPerS, "")
	add("input_tokens_per_s", &a.InputPerS, &b.InputPerS, "")
	add("output_tokens_per_s", &a.OutputPerS, &b.OutputPerS, "")
	shares := func(name string, n1, of1, n2, of2 int) {
		if of1 > 0 && of2 > 0 {
			add(name, new(float64(n1)/float64(of1)), new(float64(n2)/float64(of2)), judgeShares(n1, of1, n2, of2))
		}
	}
	shares("failed_share", a.Failed, a.Requests-a.Stopped, b.Failed, b.Requests-b.Stopped)
	if a.Goodput != nil && b.Goodput != nil && a.Goodput.SLO == b.Goodput.SLO {
		add("goodput_requests_per_s", &a.Goodput.RequestsPerS, &b.Goodput.RequestsPerS, "")
		shares("good_share", a.Goodput.Good, a.Requests-a.Stopped, b.Goodput.Good, b.Requests-b.Stopped)
	}
	for _, s := range []struct{ what, x, y string }{
		{"model", a.Model, b.Model}, {"API", a.API, b.API}, {"arrivals", a.Load.Arrivals, b.Load.Arrivals}, {"prompts", a.Load.Prompts, b.Load.Prompts},
		{"answers", a.Load.Answers, b.Load.Answers}, {"interrupted", fmt.Sprint(a.Interrupted), fmt.Sprint(b.Interrupted)},
		{"limited by the client", fmt.Sprint(len(a.Client.Limited) > 0), fmt.Sprint(len(b.Client.Limited) > 0)},
	} {
		if s.x != s.y {
			c.Unequal = append(c.Unequal, fmt.Sprintf("%s: %s, and %s", s.what, s.x, s.y))
		}
	}
	return c
}

func figures(s *stats.Summary) []stats.Figure {
	if s == nil {
		return nil
	}
	return []stats.Figure{s.Mean, s.P50, s.P90, s.P95, s.P99}
}

// judge compares intervals. One that is open on the side of the other's may reach it.
func judge(a, b stats.Figure) Verdict {
	if a.Value > b.Value {
		a, b = b, a
	}
	switch {
	case a.High == nil || b.Low == nil:
		return Unsure
	case *a.High < *b.Low:
		return Differs
	}
	return Alike
}

// judgeShares compares two shares of independent requests by the difference that chance
// exceeds once in twenty times.
func judgeShares(n1, of1, n2, of2 int) Verdict {
	together := float64(n1+n2) / float64(of1+of2)
	deviation := math.Sqrt(together * (1 - together) * (1/float64(of1) + 1/float64(of2)))
	if d := math.Abs(float64(n1)/float64(of1) - float64(n2)/float64(of2)); d > 1.959964*deviation {
		return Differs
	}
	return Alike
}
