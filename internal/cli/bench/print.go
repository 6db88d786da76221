package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/bench/stats"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/term"
)

// print prints a report: latencies, then phases, then what else there is to know.
func (o *Options) print(r *bench.Report) error {
	out := o.Session.Out
	if err := out.Answer(output.Answer{Data: r, Table: func(bool) *output.Table { return latencies(r) }}); err != nil || !out.Prose() {
		return err
	}
	if len(r.Phases) > 0 {
		_, _ = io.WriteString(out.Streams.Out, "\n") // the next write tells
		if err := out.Answer(output.Answer{Table: func(bool) *output.Table { return phases(r) }}); err != nil {
			return err
		}
	}
	var b strings.Builder
	for _, line := range summary(r) {
		b.WriteString("\n" + term.Clean(line))
	}
	_, err := io.WriteString(out.Beside(), b.String()+"\n")
	return err
}

// latencies is the table of what was measured, in milliseconds or tokens.
func latencies(r *bench.Report) *output.Table {
	t := output.NewTable("", ">MEAN", ">P50 (95 %)", ">P90", ">P95", ">P99", ">MAX")
	for _, l := range []struct {
		name string
		s    *stats.Summary
	}{{"TTFT ms", r.TTFT}, {"ITL ms", r.ITL}, {"TPOT ms", r.TPOT}, {"E2E ms", r.E2E}, {"tokens in", r.Input.Real}, {"tokens out", r.Output.Real}} {
		if l.s == nil {
			t.Add(l.name, "-", "-", "-", "-", "-", "-")
			continue
		}
		t.Add(l.name, number(l.s.Mean.Value), figure(l.s.P50), figure(l.s.P90), figure(l.s.P95), figure(l.s.P99), number(l.s.Max))
	}
	return t
}

// figure is a value with its interval, as "12.3 (11.9-13.0)".
func figure(f stats.Figure) string {
	bound := func(v *float64) string {
		if v == nil {
			return "?"
		}
		return number(*v)
	}
	return number(f.Value) + " (" + bound(f.Low) + "-" + bound(f.High) + ")"
}

// phases is the table of the phases.
func phases(r *bench.Report) *output.Table {
	titles := []string{"PHASE", ">REQ/S", ">OK", ">FAILED", ">TTFT P50", ">P99", ">ITL P50", ">P99", ">TOK/S"}
	if r.Goodput != nil {
		titles = append(titles, ">GOOD")
	}
	t := output.NewTable(titles...)
	for _, p := range r.Phases {
		row := []string{seconds(p.FromS) + " to " + seconds(p.ToS), number(p.OfferedPerS), human.Commas(p.Succeeded), human.Commas(p.Failed)}
		for _, s := range []*stats.Summary{p.TTFT, p.ITL} {
			if s == nil {
				row = append(row, "-", "-")
			} else {
				row = append(row, number(s.P50.Value), number(s.P99.Value))
			}
		}
		row = append(row, number(p.OutputPerS))
		if p.Goodput != nil {
			row = append(row, percent(p.Goodput.Share))
		}
		t.Add(row...)
	}
	return t
}

func seconds(s float64) string { return human.Duration(time.Duration(s * float64(time.Second))) }

// summary is the report in sentences.
func summary(r *bench.Report) (lines []string) {
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	line("%s of %s at %s, %s", r.API, r.Model, r.URL, r.Load.Arrivals)
	line("%s in %s: %d ok, %d failed%s%s", human.Plural(r.Requests, "request"), seconds(r.WindowS), r.Succeeded, r.Failed, kinds(r.Errors), stopped(r.Stopped))
	line("%s requests/s, %s prompt tokens/s, %s answer tokens/s", number(r.RequestsPerS), number(r.InputPerS), number(r.OutputPerS))
	if g := r.Goodput; g != nil {
		line("goodput %s requests/s: %s within %s", number(g.RequestsPerS), percent(g.Share), g.SLO)
	}
	if r.Succeeded > 0 {
		counted := "not counted by the server"
		if r.Input.Real != nil {
			counted = number(r.Input.Real.Mean.Value)
		}
		line("tokens, wanted and real: prompts %s and %s, answers %s and %s; %s of prompts cached; ended by %s", number(r.Input.WantedMean), counted,
			number(r.Output.WantedMean), number(r.Output.Real.Mean.Value), percent(r.CachedShare), strings.Trim(kinds(r.Finish), " ()"))
		if r.TokensPerChunk > 1.05 {
			line("answers came in chunks of %s tokens: unless the server counts them in each, ITL is the time between chunks", number(r.TokensPerChunk))
		}
		if r.Uncounted > 0 {
			line("the server did not count the tokens of %s: their chunks are taken for tokens", human.Plural(r.Uncounted, "answer"))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(r.ErrorTexts)) {
		line("%s: %s", kind, r.ErrorTexts[kind])
	}
	late := "nothing was sent"
	if r.Client.Late != nil {
		late = fmt.Sprintf("sent %s ms late (p99), at most %s in flight", number(r.Client.Late.P99.Value), human.Plural(r.Client.MaxInFlight, "request"))
	}
	line("client: %s; seed %d", late, r.Load.Seed)
	for _, why := range r.Client.Limited {
		line("the client did not keep up, so the figures may be its own: %s", why)
	}
	return lines
}

func stopped(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprintf(", %d stopped in flight", n)
}

// kinds are counts by name, the most first: " (timeout 3, http-503 1)".
func kinds(counts map[string]int) string {
	if len(counts) == 0 {
		return ""
	}
	names := slices.Sorted(maps.Keys(counts))
	slices.SortStableFunc(names, func(a, b string) int { return counts[b] - counts[a] })
	parts := make([]string, len(names))
	for i, n := range names {
		parts[i] = fmt.Sprintf("%s %d", human.OrDash(n), counts[n])
	}
	return " (" + strings.Join(parts, ", ") + ")"
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// number prints three digits, or all before the point.
func number(v float64) string {
	switch abs := max(v, -v); {
	case abs >= 100:
		return human.Commas(int(v + 0.5))
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

// printComparison prints two reports side by side.
func (o *Options) printComparison(c bench.Comparison) error {
	out := o.Session.Out
	err := out.Answer(output.Answer{Data: c, Table: func(bool) *output.Table {
		t := output.NewTable("FIGURE", ">A", ">B", ">B/A", "BEYOND CHANCE")
		value := func(v *float64) string {
			if v == nil {
				return "-"
			}
			return number(*v)
		}
		for _, d := range c.Figures {
			verdict := map[bench.Verdict]string{bench.Differs: "yes", bench.Alike: "no", bench.Unsure: "too few values"}[d.Verdict]
			t.Add(d.Name, value(d.A), value(d.B), value(d.Ratio), human.OrDash(verdict))
			if d.Verdict == bench.Differs {
				t.Paint(4, out.Palette().Bold)
			}
		}
		return t
	}})
	if err == nil && out.Prose() {
		for _, u := range c.Unequal {
			out.Warn("the loads differ in more than the server: %s", u)
		}
	}
	return err
}
