package detail

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
)

// route is the screen of a request: what was chosen for each of its phases, and what the
// others would have cost.
type route struct {
	*moment.Moment
	quiet
	name string // request id
}

// Route returns the screen of the decisions about a request.
func Route(m *moment.Moment, request string) Screen { return &route{Moment: m, name: request} }

func (m *route) Header() []draw.Part { return titled(m.Moment, "route", m.name) }

func (m *route) Subject() Subject {
	s := Subject{Title: m.name, NoWorker: notWorker, NoOpen: noFurther}
	if ds := m.decisions(); len(ds) > 0 {
		s.Value = ds
	} else {
		s.NoValue = "the decision is no longer in the list"
	}
	return s
}

// decisions are the decisions about the request on the screen, prefill first.
func (m *route) decisions() []cluster.RouterDecision {
	var out []cluster.RouterDecision
	for i := range m.Snap.Decisions {
		if m.Snap.Decisions[i].RequestID == m.name {
			out = append(out, m.Snap.Decisions[i])
		}
	}
	slices.SortStableFunc(out, func(a, b cluster.RouterDecision) int {
		return slices.Index(cluster.Roles, a.Phase) - slices.Index(cluster.Roles, b.Phase)
	})
	return out
}

func (m *route) Sections(int) [][]Section {
	ds := m.decisions()
	if len(ds) == 0 {
		return [][]Section{{{"decision", [][]draw.Span{
			{draw.Warn.Text(cells.OrUnknown(m.name) + " is no longer among the newest decisions")},
			{draw.Plain.Text("esc goes back to the panes; dynctl explain route shows older ones while they are kept.")},
		}}}}
	}
	var out []Section
	for i := range ds {
		out = append(out, m.section(&ds[i]))
	}
	return [][]Section{out}
}

func (m *route) section(d *cluster.RouterDecision) Section {
	decided := cells.OrUnknown(cells.RoundTrip(time.Duration(d.DecidedNS)))
	lag := cells.Unknown
	if m.Snap.KVEventLag != nil {
		lag = cells.OrUnknown(cells.RoundTrip(*m.Snap.KVEventLag))
	}
	lines := [][]draw.Span{{
		draw.Dim.Text("prompt "), draw.Plain.Text(fmt.Sprintf("%s tok = %s blocks", cells.Commas(d.PromptToks), cells.Commas(d.Blocks))),
		draw.Dim.Text("   decided in "), draw.Plain.Text(decided),
		draw.Dim.Text("   index lag "), draw.Plain.Text(lag),
		draw.Dim.Text("   policy "), draw.Plain.Text(cells.OrUnknown(d.Policy)),
		draw.Dim.Text("   at "), draw.Plain.Text(m.TimeOfDay(d.Time)),
	}}
	if d.Prefill != "" {
		where := []draw.Span{draw.Dim.Text("prefilled at "), draw.Prefill.Text(d.Prefill)}
		if d.PrefillWay != "" {
			where = append(where, draw.Dim.Text(" by "), draw.Plain.Text(d.PrefillWay))
		}
		if d.PrefillWhy != "" {
			where = append(where, draw.Plain.Text(": "+d.PrefillWhy))
		}
		if kv := d.KV; kv != nil {
			ms := float64(kv.NS) / 1e6
			where = append(where, draw.Dim.Text("   KV "), draw.Plain.Text(cells.Millis(&ms)+" ms, "+cells.Bytes(float64(kv.Bytes))))
		}
		if d.DecodeNS > 0 {
			ms := float64(d.DecodeNS) / 1e6
			where = append(where, draw.Dim.Text("   decode "), draw.Plain.Text(cells.Millis(&ms)+" ms"))
		}
		lines = append(lines, where)
	}
	if r := d.Images; r != nil {
		ms, move := float64(max(r.EncodeNS-r.MoveNS, 0))/1e6, float64(r.MoveNS)/1e6
		images := []draw.Span{draw.Dim.Text("images "), draw.Plain.Text(fmt.Sprintf("%d, %d computed before", r.Count, r.Cached)), draw.Dim.Text("   encode "), draw.Plain.Text(cells.Millis(&ms) + " ms")}
		if len(r.By) > 0 {
			images = append(images, draw.Dim.Text(" at "), draw.Encode.Text(strings.Join(r.By, " ")))
		}
		if r.Bytes > 0 {
			images = append(images, draw.Dim.Text("   embeddings "), draw.Plain.Text(cells.Millis(&move)+" ms, "+cells.Bytes(float64(r.Bytes))))
		}
		lines = append(lines, images)
	}
	if len(d.Weighed) > 0 && !d.WeighsOverlap() {
		lines = append(lines, []draw.Span{draw.Dim.Text("decided by "), draw.Plain.Text(strings.Join(d.Weighed, ", ")), draw.Dim.Text("; overlap is observed, and not weighed")})
	}
	if len(d.Candidates) == 0 {
		lines = append(lines, []draw.Span{draw.Dim.Text("the router reported no candidates")})
	} else {
		rows := [][]draw.Span{draw.Titles("STAGE WORKER OVERLAP UNCACHED LOAD COST RESULT")}
		for i := range d.Candidates {
			rows = append(rows, m.candidateRow(d, &d.Candidates[i]))
		}
		lines = append(lines, draw.Grid(rows, []bool{false, false, true, true, true, true, false})...)
	}
	return Section{cells.OrUnknown(string(d.Phase)) + ": " + cells.OrUnknown(d.Chosen), lines}
}

func (m *route) candidateRow(d *cluster.RouterDecision, c *cluster.RouteCandidate) []draw.Span {
	overlap, uncached := cells.Unknown, cells.Unknown
	if have, known := d.OverlapAt(c); known {
		overlap, uncached = fmt.Sprintf("%d/%d", have, d.Blocks), cells.Commas(max(d.Blocks-have, 0))
	}
	cost, result, st := moment.CostText(c.Cost), "", draw.Plain
	best := moment.Chosen(d)
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
		moment.RoleStyle(d.Phase).Text(cells.OrUnknown(string(d.Phase))), draw.Strong.Text(cells.OrUnknown(c.Worker)), draw.Plain.Text(overlap), draw.Plain.Text(uncached),
		draw.Plain.Text(cells.Commas(c.Load)), draw.Plain.Text(cost), st.Text(result),
	}
}
