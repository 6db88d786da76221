package tui

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
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
		return []section{{"decision", [][]span{
			{{orUnknown(m.detail.route) + " is no longer among the newest decisions", warn}},
			{{"esc goes back to the panes; dynctl explain route shows older ones while they are kept.", plain}},
		}}}
	}
	var out []section
	for i := range ds {
		out = append(out, m.routeSection(&ds[i]))
	}
	return out
}

func (m *model) routeSection(d *cluster.RouterDecision) section {
	decided := orUnknown(rtt(time.Duration(d.DecidedNS)))
	lag := unknown
	if m.snap.KVEventLag != nil {
		lag = orUnknown(rtt(*m.snap.KVEventLag))
	}
	lines := [][]span{{
		{"prompt ", dim}, {fmt.Sprintf("%s tok = %s blocks", commas(d.PromptToks), commas(d.Blocks)), plain},
		{"   decided in ", dim}, {decided, plain},
		{"   index lag ", dim}, {lag, plain},
		{"   policy ", dim}, {orUnknown(d.Policy), plain},
		{"   at ", dim}, {m.timeOfDay(d.Time), plain},
	}}
	if d.Prefill != "" {
		where := []span{{"prefilled at ", dim}, {d.Prefill, prefill}}
		if d.PrefillWay != "" {
			where = append(where, span{" by ", dim}, span{d.PrefillWay, plain})
		}
		if d.PrefillWhy != "" {
			where = append(where, span{": " + d.PrefillWhy, plain})
		}
		lines = append(lines, where)
	}
	if len(d.Weighed) > 0 && !d.WeighsOverlap() {
		lines = append(lines, []span{{"decided by ", dim}, {strings.Join(d.Weighed, ", "), plain}, {"; overlap is observed, and not weighed", dim}})
	}
	if len(d.Candidates) == 0 {
		lines = append(lines, []span{{"the router told no candidates", dim}})
	} else {
		rows := [][]span{titleRow("STAGE WORKER OVERLAP UNCACHED LOAD COST RESULT")}
		for i := range d.Candidates {
			rows = append(rows, m.candidateRow(d, &d.Candidates[i]))
		}
		lines = append(lines, gridLines(rows, []bool{false, false, true, true, true, true, false})...)
	}
	return section{orUnknown(string(d.Phase)) + ": " + orUnknown(d.Chosen), lines}
}

func (m *model) candidateRow(d *cluster.RouterDecision, c *cluster.RouteCandidate) []span {
	overlap, uncached := unknown, unknown
	if have, known := d.OverlapAt(c); known {
		overlap, uncached = fmt.Sprintf("%d/%d", have, d.Blocks), commas(max(d.Blocks-have, 0))
	}
	cost, result, st := costText(c.Cost), "", plain
	best := chosenCandidate(d)
	switch {
	case c.Excluded != "":
		overlap, uncached, cost = unknown, unknown, unknown
		result, st = "excluded: "+c.Excluded, warn
	case c.Worker == d.Chosen && d.Chosen != "":
		result, st = "chosen", good
	case best != nil && finite(c.Cost-best.Cost):
		result = fmt.Sprintf("%+.1f", c.Cost-best.Cost)
	}
	return []span{
		{orUnknown(string(d.Phase)), roleStyle(d.Phase)}, {orUnknown(c.Worker), strong}, {overlap, plain}, {uncached, plain},
		{commas(c.Load), plain}, {cost, plain}, {result, st},
	}
}
