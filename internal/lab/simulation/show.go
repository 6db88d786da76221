package simulation

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Played is a simulation that has ended.
type Played struct {
	Name   string
	Config simulate.Config
	Result *simulate.Result
}

// figure is a row of the table.
type figure struct {
	name string
	of   func(*simulate.Result) float64
	unit string
}

func quantiles(name string, of func(*simulate.Result) simulate.Quantiles) []figure {
	return []figure{
		{name + " mean", func(r *simulate.Result) float64 { return of(r).Mean }, "ms"},
		{name + " p50", func(r *simulate.Result) float64 { return of(r).P50 }, "ms"},
		{name + " p95", func(r *simulate.Result) float64 { return of(r).P95 }, "ms"},
		{name + " p99", func(r *simulate.Result) float64 { return of(r).P99 }, "ms"},
	}
}

func figures() []figure {
	number := func(name string, of func(*simulate.Result) int) figure {
		return figure{name, func(r *simulate.Result) float64 { return float64(of(r)) }, ""}
	}
	percent := func(name string, of func(*simulate.Result) float64) figure { return figure{name, of, "%"} }
	goodput := func(of func(*simulate.Goodput) float64) func(*simulate.Result) float64 {
		return func(r *simulate.Result) float64 {
			if r.Goodput == nil {
				return 0
			}
			return of(r.Goodput)
		}
	}
	return slices.Concat(
		[]figure{
			number("requests", func(r *simulate.Result) int { return r.Requests }),
			number("refused", func(r *simulate.Result) int { return r.Requests - r.Succeeded }),
			{"span", func(r *simulate.Result) float64 { return r.SpanS }, "s"},
		},
		quantiles("TTFT", func(r *simulate.Result) simulate.Quantiles { return r.TTFT }),
		quantiles("ITL", func(r *simulate.Result) simulate.Quantiles { return r.ITL }),
		quantiles("E2E", func(r *simulate.Result) simulate.Quantiles { return r.E2E }),
		[]figure{
			percent("within the targets", goodput(func(g *simulate.Goodput) float64 { return g.Share })),
			{"good requests per s", goodput(func(g *simulate.Goodput) float64 { return g.RequestsPerS }), ""},
			{"good requests per device-hour", goodput(func(g *simulate.Goodput) float64 { return g.PerDeviceHour }), ""},
			{"output tokens per s", func(r *simulate.Result) float64 { return float64(r.Output) / max(r.SpanS, 1e-9) }, ""},
			percent("prompt tokens from caches", func(r *simulate.Result) float64 { return r.CachedShare }),
			percent("prompts computed by prefill workers", func(r *simulate.Result) float64 { return float64(r.Remote) / float64(max(1, r.Remote+r.Local)) }),
			{"KV moved", func(r *simulate.Result) float64 { return r.MovedGB }, "GB"},
			number("preempted", func(r *simulate.Result) int { return r.Preempted }),
			percent("prefill workers busy", func(r *simulate.Result) float64 { return r.PrefillBusy }),
			percent("decode workers busy", func(r *simulate.Result) float64 { return r.DecodeBusy }),
			{"device-hours", func(r *simulate.Result) float64 { return r.DeviceHours }, ""},
		},
	)
}

// Show prints results as a table, a column for each. With two, a third column says how the
// second differs from the first.
func Show(out io.Writer, load string, all ...Played) error {
	var b strings.Builder
	b.WriteString(load + "\n")
	for _, p := range all {
		fmt.Fprintf(&b, "%s: %s\n", p.Name, describe(p.Config))
	}
	b.WriteString("\n| figure |")
	for _, p := range all {
		b.WriteString(" " + p.Name + " |")
	}
	if len(all) == 2 {
		b.WriteString(" change |")
	}
	b.WriteString("\n|---|" + strings.Repeat("---:|", len(all)+len(all)/2) + "\n")
	for _, f := range figures() {
		if f.empty(all) {
			continue
		}
		b.WriteString("| " + f.name + " |")
		for _, p := range all {
			b.WriteString(" " + f.text(f.of(p.Result)) + " |")
		}
		if len(all) == 2 {
			b.WriteString(" " + change(f.of(all[0].Result), f.of(all[1].Result)) + " |")
		}
		b.WriteString("\n")
	}
	for _, p := range all {
		for _, why := range slices.Sorted(maps.Keys(p.Result.Refused)) {
			fmt.Fprintf(&b, "\n%s: %d requests refused: %s\n", p.Name, p.Result.Refused[why], why)
		}
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// empty reports whether a figure says nothing in any of the results.
func (f figure) empty(all []Played) bool {
	return !slices.ContainsFunc(all, func(p Played) bool { return f.of(p.Result) != 0 })
}

func (f figure) text(v float64) string {
	switch f.unit {
	case "":
		if v == float64(int(v)) {
			return strconv.Itoa(int(v))
		}
		return round(v)
	case "%":
		return fmt.Sprintf("%.1f %%", 100*v)
	}
	return round(v) + " " + f.unit
}

// round keeps three digits, and all before the point.
func round(v float64) string {
	switch {
	case v >= 100 || v == 0:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

func change(from, to float64) string {
	switch {
	case from == to:
		return "-"
	case from == 0:
		return "new"
	}
	return fmt.Sprintf("%+.1f %%", 100*(to/from-1))
}

// describe says what was simulated.
func describe(c simulate.Config) string {
	text := fmt.Sprintf("%d decode workers", c.Decode)
	if c.Prefill > 0 {
		how := ""
		if c.Sequential {
			how = ", one after the other"
		}
		text = fmt.Sprintf("%d prefill and %s, %s%s (%s)", c.Prefill, text, c.Strategy, how, c.Disagg.Conditional.Rule)
	}
	return text + ", policy " + c.Policy
}

// Draw draws the series of a result as an SVG.
func Draw(out io.Writer, title string, r *simulate.Result) error {
	before := 0.0
	span := func(p simulate.Point) float64 {
		d := p.AtS - before
		before = p.AtS
		return max(d, 1e-9)
	}
	arrivals := bench.Curve{Line: true}
	for _, p := range r.Series {
		arrivals.Xs, arrivals.Ys = append(arrivals.Xs, p.AtS), append(arrivals.Ys, float64(p.Arrivals)/span(p))
	}
	line := func(name string, of func(simulate.Point) float64) bench.Chart {
		c := bench.Curve{Line: true}
		for _, p := range r.Series {
			c.Xs, c.Ys = append(c.Xs, p.AtS), append(c.Ys, of(p))
		}
		return bench.Chart{Title: name, Across: "s", Curves: []bench.Curve{c}}
	}
	return bench.WriteCharts(out, title, bench.Chart{Title: "requests that came, per s", Across: "s", Curves: []bench.Curve{arrivals}},
		line("requests that wait", func(p simulate.Point) float64 { return float64(p.Queued + p.Waiting) }),
		line("TTFT p95, ms", func(p simulate.Point) float64 { return p.TTFT95 }),
		line("mean time between the tokens of an answer, p95, ms", func(p simulate.Point) float64 { return p.TPOT95 }),
		line("ready prefill workers", func(p simulate.Point) float64 { return float64(p.Prefill) }),
		line("ready decode workers", func(p simulate.Point) float64 { return float64(p.Decode) }),
		line("share of time in which prefill workers compute", func(p simulate.Point) float64 { return p.PrefillUse }),
		line("share of time in which decode workers compute", func(p simulate.Point) float64 { return p.DecodeUse }),
	)
}
