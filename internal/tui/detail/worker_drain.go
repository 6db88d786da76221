package detail

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// drainSection shows how far a drain has come. It says safe only when the worker
// does.
func (m *worker) drainSection(w *cluster.Worker) Section {
	g, d, all := m.Glyphs, w.Drain, cluster.DrainSteps
	now := slices.Index(all, d.Step)
	ended := !d.EndedAt.IsZero() || d.Safe
	var lines [][]draw.Span
	wide := 18
	for _, step := range cluster.DrainStepsOf(w.Role) {
		wide = max(wide, len(step.For(w.Role)))
	}
	for _, step := range cluster.DrainStepsOf(w.Role) {
		i := slices.Index(all, step)
		glyph, st := g.Starting, draw.Dim
		switch {
		case ended || i < now:
			glyph, st = g.Ready, draw.Good
		case i == now:
			glyph, st = g.Draining, draw.Warn
		}
		name := step.For(w.Role)
		text := name
		switch step {
		case cluster.DrainDiscovery:
			if d.Routers > 0 {
				text = fmt.Sprintf("%-*s %d of %d routers acknowledged", wide, name, d.Acknowledged, d.Routers)
			}
		case cluster.DrainIncoming:
			text = fmt.Sprintf("%-*s %d transfers pending", wide, name, d.Incoming)
		case cluster.DrainSequences:
			text = fmt.Sprintf("%-*s %d of %d left", wide, name, d.Left, d.Sequences)
		case cluster.DrainOutgoing:
			text = fmt.Sprintf("%-*s %d held for others", wide, name, d.Outgoing)
		}
		lines = append(lines, []draw.Span{st.Text(glyph + " "), draw.Plain.Text(text)})
	}
	done := fmt.Sprintf("%d finished  %d moved  %d cancelled", d.Finished, d.Moved, d.Cancelled)
	if d.CutOff > 0 {
		done += fmt.Sprintf("  %d cut off", d.CutOff)
	}
	lines = append(lines, draw.Fact("so far", done, draw.Plain))
	switch {
	case d.Safe:
		lines = append(lines, []draw.Span{draw.Good.Text(g.Drained + " drained: safe to stop")})
	case d.Overdue:
		lines = append(lines, []draw.Span{draw.Bad.Text(g.Degraded + " the deadline passed with work left")})
	case !d.Deadline.IsZero():
		lines = append(lines, draw.Fact("deadline", "in "+cells.ClockLeft(d.Deadline.Sub(m.At())), draw.Plain))
	}
	if len(d.Open) > 0 {
		rows := [][]draw.Span{draw.Titles("REQUEST OUT AGE")}
		for _, o := range d.Open[:min(len(d.Open), 10)] {
			rows = append(rows, []draw.Span{
				draw.Plain.Text(cells.ClipMiddle(cells.OrUnknown(o.RequestID), 24, g.More)), draw.Plain.Text(cells.Commas(o.OutTokens)),
				draw.Plain.Text(cells.ClockLeft(time.Duration(o.AgeMS) * time.Millisecond)),
			})
		}
		lines = append(lines, draw.Grid(rows, []bool{false, true, true})...)
	}
	return Section{"drain", lines}
}
