package bench

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/bench"
	"github.com/dynctl/dynctl/internal/cli/progress"
)

// watch shows how far the load is, on a terminal or where --progress asks for it. The display
// is used by one goroutine at a time: the load's until that ends, then the caller's.
func (o *Options) watch(l *load) progress.Display {
	out := o.Session.Out
	mode := o.Progress
	if mode == "auto" && !out.Streams.Animated(out.Environ) {
		mode = "quiet"
	}
	d := out.Progress(mode)
	l.Watch = func(s bench.Status) { d.Show(o.screen(*l, s)) }
	return d
}

// screen is one line about the load.
func (o *Options) screen(l load, s bench.Status) progress.Screen {
	row := progress.Row{Item: "load", State: progress.Running, Word: "running", Kind: "load", Share: l.share(s)}
	row.Detail = fmt.Sprintf("%d ok", s.Succeeded)
	if s.Failed > 0 {
		row.Detail += fmt.Sprintf(", %d failed", s.Failed)
	}
	row.After = fmt.Sprintf("%d in flight  %s requests/s  %s tokens/s", s.InFlight, number(s.RequestsPerS), number(s.TokensPer))
	row.Line = "sending " + l.arrivals
	return progress.Screen{
		Operation: "bench", Subject: l.Model, Title: "Measuring " + l.Model + ", " + l.arrivals, Rows: []progress.Row{row},
		Footer: "ctrl-c ends with the report",
	}
}

// share is the part of the load that is done: of its requests, or else of its time.
func (l load) share(s bench.Status) *float64 {
	switch {
	case l.Conversations > 0 && l.turns > 0:
		return new(float64(s.Succeeded+s.Failed) / float64(l.Conversations*l.turns))
	case l.whole > 0:
		return new(min(s.Elapsed.Seconds()/l.whole.Seconds(), 1))
	}
	return nil
}
