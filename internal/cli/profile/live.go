package profile

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/profiler"
)

// watch shows how far the run is, on a terminal or where --progress asks for it. The display is
// used by one goroutine at a time: the run's until that ends, then the caller's.
func (o *Options) watch(c *profiler.Config, of profiler.Subject) progress.Display {
	out := o.Session.Out
	mode := o.Progress
	if mode == "auto" && !out.Streams.Animated(out.Environ) {
		mode = "quiet"
	}
	d := out.Progress(mode)
	plan := c.Plan
	c.Watch = func(s profiler.Status) { d.Show(o.screen(of, plan, s)) }
	return d
}

// screen has a row for prompts and one for decoding.
func (o *Options) screen(of profiler.Subject, plan []profiler.Point, s profiler.Status) progress.Screen {
	footer := "ctrl-c ends with what was measured"
	if o.Save != "" {
		footer += "; the same command goes on"
	}
	screen := progress.Screen{
		Operation: "profile", Subject: of.Model, Title: "Measuring " + of.Server + ", at most " + command.DurationText(o.Budget), Footer: footer,
	}
	for _, kind := range []string{profiler.Prefill, profiler.Decode} {
		row := progress.Row{Item: kind, Kind: "points", Cells: []string{kind}, State: progress.Waiting, Word: "waiting"}
		planned, done := 0, 0
		for _, p := range plan {
			if p.Kind != kind {
				continue
			}
			planned++
			if i := slices.IndexFunc(s.Done, func(m profiler.Measurement) bool { return m.Point == p }); i >= 0 {
				done++
			}
		}
		for _, m := range s.Done {
			if m.Kind == kind {
				row.After = said(m)
			}
		}
		row.Detail = fmt.Sprintf("%d of %d", done, planned)
		row.Share = new(float64(done) / float64(max(planned, 1)))
		switch {
		case done == planned:
			row.State, row.Word = progress.Done, "done"
		case s.Now.Kind == kind:
			row.State, row.Word = progress.Running, "running"
			row.After = "now " + s.Now.String()
		}
		row.Line = fmt.Sprintf("%s %d of %d points", kind, done, planned)
		screen.Rows = append(screen.Rows, row)
	}
	return screen
}

// said is a point with its figure.
func said(m profiler.Measurement) string {
	return fmt.Sprintf("%s: %s ms", m.Point, number(1e3*m.Seconds))
}
