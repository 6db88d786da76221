package profile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/term"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/profiler"
)

// finish writes and prints what was measured, whatever ended the run.
func (o *Options) finish(ctx context.Context, t *target, r profiler.Result, failed error) error {
	p, err := profiler.Build(t.subject, r.Measured)
	if err == nil {
		err = errors.Join(o.write(t, p, r.Measured), o.print(t, p, r))
	}
	if err == nil && failed == nil && ctx.Err() == nil {
		err = o.teach(ctx, t, p)
	}
	switch {
	case errors.Is(err, profiler.ErrTooFew) && (failed != nil || ctx.Err() != nil):
		err = nil // the end of the run says why
	case errors.Is(err, profiler.ErrTooFew):
		f := &exit.Failure{Action: action, Err: err, Tries: []string{"--budget 10m"}}
		for _, l := range r.Left[:min(len(r.Left), 3)] {
			f.Facts = append(f.Facts, l.String()+": "+l.Why)
		}
		return f
	}
	kept := "stopped"
	if n := len(r.Measured); o.Save != "" {
		kept = fmt.Sprintf("stopped; %s of %d are in %s, and the same command goes on", human.Plural(n, "point"), n+len(r.Left), o.journal())
	} else if p != nil {
		kept = "stopped; the profile is of what was measured"
	}
	switch {
	case ctx.Err() != nil:
		return errors.Join(err, &exit.Stopped{Text: kept, Err: context.Cause(ctx)})
	case failed != nil && err != nil:
		return errors.Join(failed, err)
	case failed != nil:
		return failed
	}
	return err
}

// print prints the points, then what there is to know beside them.
func (o *Options) print(t *target, p *profile.Profile, r profiler.Result) error {
	out := o.Session.Out
	if err := out.Answer(output.Answer{Data: p, Table: func(bool) *output.Table { return o.prompts(r.Measured) }}); err != nil || !out.Prose() {
		return err
	}
	_, _ = io.WriteString(out.Streams.Out, "\n") // the next write tells
	if err := out.Answer(output.Answer{Table: func(bool) *output.Table { return o.decoding(t.subject.Limits, r.Measured) }}); err != nil {
		return err
	}
	var b strings.Builder
	for _, line := range o.summary(t, p, r) {
		b.WriteString("\n" + term.Clean(line))
	}
	_, err := io.WriteString(out.Beside(), b.String()+"\n")
	return err
}

// prompts is the table of the prompts.
func (o *Options) prompts(all []profiler.Measurement) *output.Table {
	rows := of(all, profiler.Prefill)
	t := o.barred(">PROMPT", ">CACHED", ">TTFT MS", ">TOKENS/S")
	for _, m := range rows {
		t.Add(append([]string{human.Commas(m.Prompt), human.Commas(m.Cached), number(1e3 * m.Seconds), number(m.Throughput())}, o.bar(m, rows)...)...)
	}
	return t
}

// decoding is the table of the points of decoding.
func (o *Options) decoding(l profile.Limits, all []profiler.Measurement) *output.Table {
	rows := of(all, profiler.Decode)
	t := o.barred(">CONTEXT", ">SEQUENCES", ">KV USE", ">ITL MS", ">TOKENS/S")
	for _, m := range rows {
		t.Add(append([]string{human.Commas(int(math.Round(m.Context))), human.Commas(m.Streams), percent(m.Use(l)), number(1e3 * m.Seconds), number(m.Throughput())}, o.bar(m, rows)...)...)
	}
	return t
}

// barCells is the width of the longest bar.
const barCells = 20

// barred is a table that has bars behind its columns on a terminal.
func (o *Options) barred(titles ...string) *output.Table {
	if o.Session.Out.Streams.OutTTY {
		titles = append(titles, "~")
	}
	return output.NewTable(titles...)
}

// bar draws the time of a point beside the others.
func (o *Options) bar(m profiler.Measurement, among []profiler.Measurement) []string {
	if !o.Session.Out.Streams.OutTTY {
		return nil
	}
	most := m.Seconds
	for _, other := range among {
		most = max(most, other.Seconds)
	}
	return []string{strings.Repeat("█", max(int(math.Round(barCells*m.Seconds/most)), 1))}
}

func of(all []profiler.Measurement, kind string) (out []profiler.Measurement) {
	for _, m := range all {
		if m.Kind == kind {
			out = append(out, m)
		}
	}
	slices.SortFunc(out, func(a, b profiler.Measurement) int {
		if a.Tokens != b.Tokens {
			return a.Tokens - b.Tokens
		}
		return a.Streams - b.Streams
	})
	return out
}

// summary is the profile in sentences.
func (o *Options) summary(t *target, p *profile.Profile, r profiler.Result) (lines []string) {
	line := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	took := 0.0
	for _, m := range r.Measured {
		took += m.TookS
	}
	line("%s of %s: %s, measured in %s s", t.subject.Model, t.subject.Server, human.Plural(len(r.Measured), "point"), number(took))
	c := p.Step
	line("a step takes %s, each sequence %s, 1,000 tokens of context %s, 1,000 tokens of prompts %s; a request %s beside its steps", unit(c.Step), unit(c.Decode), unit(1e3*c.DecodeContext), unit(1e3*c.Token), unit(p.Overheads.Frontend))
	q := p.Fitted
	line("these costs are off by %s on average, by %s at most for 95 %% of the points", percent(q.MeanError), percent(q.P95Error))
	if q.MeanError > doubtful {
		line("the points do not agree with each other: was the machine busy with something else? Measure them again")
	}
	if len(q.Unseen) > 0 {
		line("no point shows %s: 0 in the profile", strings.Join(q.Unseen, ", "))
	}
	line("not measured: %s: 0 in the profile", strings.Join(profiler.Unknown(), ", "))
	lines = append(lines, t.notes...)
	reasons := map[string][]string{}
	var order []string
	for _, l := range r.Left {
		if reasons[l.Why] == nil {
			order = append(order, l.Why)
		}
		reasons[l.Why] = append(reasons[l.Why], l.String())
	}
	for _, why := range order {
		names := reasons[why]
		text := strings.Join(names[:min(len(names), namedPoints)], ", ")
		if more := len(names) - namedPoints; more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		line("left out: %s: %s", text, why)
	}
	if len(r.Left) > 0 && o.Save != "" {
		line("the same command goes on with what is left")
	}
	return lines
}

// doubtful is the mean error of the costs beyond which the points cannot be those of one worker.
const doubtful = 0.2

// namedPoints is how many points that were left out for one reason are named.
const namedPoints = 4

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) + " %" }

// unit prints seconds as milliseconds.
func unit(seconds float64) string { return number(1e3*seconds) + " ms" }

// number prints three digits, or all before the point.
func number(v float64) string {
	switch abs := math.Abs(v); {
	case abs >= 100:
		return human.Commas(int(math.Round(v)))
	case abs >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case abs >= 0.1 || abs == 0:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'g', 2, 64)
}
