package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// routeDecisions are the decisions about the request on the screen, prefill first.
func (m *model) routeDecisions() []cluster.RouterDecision {
	var out []cluster.RouterDecision
	for i := range m.snap.Decisions {
		if m.snap.Decisions[i].RequestID == m.detail.route {
			out = append(out, m.snap.Decisions[i])
		}
	}
	slices.SortStableFunc(out, func(a, b cluster.RouterDecision) int {
		return slices.Index(cluster.Roles, a.Phase) - slices.Index(cluster.Roles, b.Phase)
	})
	return out
}

// routeSections say what was chosen for each phase, and what the others would
// have cost.
func (m *model) routeSections() []section {
	ds := m.routeDecisions()
	if len(ds) == 0 {
		return []section{{"decision", [][]draw.Span{
			{draw.Warn.Text(cells.OrUnknown(m.detail.route) + " is no longer among the newest decisions")},
			{draw.Plain.Text("esc goes back to the panes; dynctl explain route shows older ones while they are kept.")},
		}}}
	}
	var out []section
	for i := range ds {
		out = append(out, m.routeSection(&ds[i]))
	}
	return out
}

func (m *model) routeSection(d *cluster.RouterDecision) section {
	decided := cells.OrUnknown(cells.RoundTrip(time.Duration(d.DecidedNS)))
	lag := cells.Unknown
	if m.snap.KVEventLag != nil {
		lag = cells.OrUnknown(cells.RoundTrip(*m.snap.KVEventLag))
	}
	lines := [][]draw.Span{{
		draw.Dim.Text("prompt "), draw.Plain.Text(fmt.Sprintf("%s tok = %s blocks", cells.Commas(d.PromptToks), cells.Commas(d.Blocks))),
		draw.Dim.Text("   decided in "), draw.Plain.Text(decided),
		draw.Dim.Text("   index lag "), draw.Plain.Text(lag),
		draw.Dim.Text("   policy "), draw.Plain.Text(cells.OrUnknown(d.Policy)),
		draw.Dim.Text("   at "), draw.Plain.Text(m.timeOfDay(d.Time)),
	}}
	if d.Prefill != "" {
		where := []draw.Span{draw.Dim.Text("prefilled at "), draw.Prefill.Text(d.Prefill)}
		if d.PrefillWay != "" {
			where = append(where, draw.Dim.Text(" by "), draw.Plain.Text(d.PrefillWay))
		}
		if d.PrefillWhy != "" {
			where = append(where, draw.Plain.Text(": "+d.PrefillWhy))
		}
		lines = append(lines, where)
	}
	if len(d.Weighed) > 0 && !d.WeighsOverlap() {
		lines = append(lines, []draw.Span{draw.Dim.Text("decided by "), draw.Plain.Text(strings.Join(d.Weighed, ", ")), draw.Dim.Text("; overlap is observed, and not weighed")})
	}
	if len(d.Candidates) == 0 {
		lines = append(lines, []draw.Span{draw.Dim.Text("the router told no candidates")})
	} else {
		rows := [][]draw.Span{draw.Titles("STAGE WORKER OVERLAP UNCACHED LOAD COST RESULT")}
		for i := range d.Candidates {
			rows = append(rows, m.candidateRow(d, &d.Candidates[i]))
		}
		lines = append(lines, draw.Grid(rows, []bool{false, false, true, true, true, true, false})...)
	}
	return section{cells.OrUnknown(string(d.Phase)) + ": " + cells.OrUnknown(d.Chosen), lines}
}

func (m *model) candidateRow(d *cluster.RouterDecision, c *cluster.RouteCandidate) []draw.Span {
	overlap, uncached := cells.Unknown, cells.Unknown
	if have, known := d.OverlapAt(c); known {
		overlap, uncached = fmt.Sprintf("%d/%d", have, d.Blocks), cells.Commas(max(d.Blocks-have, 0))
	}
	cost, result, st := costText(c.Cost), "", draw.Plain
	best := chosenCandidate(d)
	switch {
	case c.Excluded != "":
		overlap, uncached, cost = cells.Unknown, cells.Unknown, cells.Unknown
		result, st = "excluded: "+c.Excluded, draw.Warn
	case c.Worker == d.Chosen && d.Chosen != "":
		result, st = "chosen", draw.Good
	case best != nil && cells.Finite(c.Cost-best.Cost):
		result = fmt.Sprintf("%+.1f", c.Cost-best.Cost)
	}
	return []draw.Span{
		roleStyle(d.Phase).Text(cells.OrUnknown(string(d.Phase))), draw.Strong.Text(cells.OrUnknown(c.Worker)), draw.Plain.Text(overlap), draw.Plain.Text(uncached),
		draw.Plain.Text(cells.Commas(c.Load)), draw.Plain.Text(cost), st.Text(result),
	}
}
