package moment

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
)

// Planning is what is said of the planner first.
type Planning struct {
	Glyph, Word string
	Style       draw.Style
	Why         string // a sentence
	Decided     bool   // there is a decision to show
	Old         bool   // which is remembered: nobody decides now
}

// Planner returns what is known of the planner of the first pool: the main one, unless there are only others.
func (m *Moment) Planner() *cluster.PlannerView {
	if p := m.Snap.Planner; p == nil || p.Node != "" || len(m.Snap.PlannerPools) == 0 || p.Mode == "off" {
		return p
	}
	return &m.Snap.PlannerPools[0]
}

// OtherPlanners returns what is known of the planners of further pools.
func (m *Moment) OtherPlanners() []cluster.PlannerView {
	switch p := m.Planner(); {
	case p == nil || p.Mode == "off" && p.Pool == "": // of all
		return nil
	case p.Pool != "":
		return m.Snap.PlannerPools[1:]
	}
	return m.Snap.PlannerPools
}

// Planning says whether somebody plans the first pool, and what.
func (m *Moment) Planning() Planning { return m.PlanningOf(m.Planner()) }

// PlanningOf says whether somebody plans a pool, and what.
func (m *Moment) PlanningOf(p *cluster.PlannerView) Planning {
	g := m.Glyphs
	switch {
	case p == nil:
		return Planning{Glyph: g.Unknown, Word: "unknown", Style: draw.Dim, Why: "nothing is known of the planner"}
	case p.Mode == "off" && p.Pool == "":
		return Planning{Glyph: g.Drained, Word: "off", Style: draw.Dim, Why: "planner.mode is off, so that nothing is decided: dynctl set planner.mode=advise"}
	}
	out := Planning{Glyph: g.Ready, Style: draw.Good, Decided: p.Node != ""}
	if len(p.Explanation) > 0 {
		out.Why = p.Explanation[0]
	}
	if p.Detail != "" {
		out.Why += " " + p.Detail + "."
	}
	switch {
	case m.Snap.Leader == "":
		out.Glyph, out.Word, out.Style, out.Old = g.Lost, "no leader", draw.Bad, true
		out.Why = "no node leads, so that nobody plans"
	case p.Node == "":
		out.Glyph, out.Word, out.Style, out.Why = g.Starting, "no decision yet", draw.Plain, "the planner of "+m.Snap.Leader+" has not been heard yet"
	case p.Silent(m.At()):
		out.Glyph, out.Word, out.Style, out.Old = g.Degraded, "silent "+cells.Age(m.At().Sub(p.HeardAt)), draw.Warn, true
	case p.Mode == "off":
		out.Glyph, out.Word, out.Style = g.Drained, "off", draw.Dim
	case p.Proposes() && p.Mode == "act":
		out.Glyph, out.Word = g.Draining, "changes workers"
	case p.Proposes():
		out.Word = "advises a change"
	case p.Refusal == "insufficient_data":
		out.Glyph, out.Word, out.Style = g.Starting, "insufficient data", draw.Plain
	case slices.Contains([]string{"stale_data", "node_lost", "evaluation_failed", "budget"}, p.Refusal):
		out.Glyph, out.Word, out.Style = g.Degraded, "refuses", draw.Warn
	case p.Refusal == "no_change" || p.Refusal == "":
		out.Word = "no change"
	default:
		out.Word = "refuses"
	}
	return out
}

// PlansText is the current plan and, if it is another, the proposed one.
func PlansText(p *cluster.PlannerView) string {
	from, to := p.Current.String(), p.Proposal.String()
	switch {
	case !p.Proposes():
		return from + " stays"
	case from == to:
		return fmt.Sprintf("%s, local prompts to %d -> %d", from, p.Current.MaxLocalPrefill, p.Proposal.MaxLocalPrefill)
	}
	return from + " -> " + to
}

// NextLook says when the planner decides again; empty where nobody does, or where it has done so since: the store
// has only what is new.
func (m *Moment) NextLook() string {
	p := m.Planner()
	if s := m.Planning(); !s.Decided || s.Old || m.Stale {
		return ""
	}
	left := p.NextCheck.Sub(m.At())
	switch {
	case left <= -cluster.SilentAfter:
		return ""
	case left <= 0:
		return "checks now"
	}
	return "checks in " + cells.Age(left+time.Second-1)
}

// TargetName is "target p95", with the percentile of the goal; goals without latencies have none.
func TargetName(what string, t cluster.PlannerTarget) string {
	if t.Percentile == 0 {
		return what
	}
	return fmt.Sprintf("%s p%.4g", what, 100*t.Percentile)
}
