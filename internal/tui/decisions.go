package tui

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

const localPrefill = "local"

// chosenCandidate is what the router weighed for the worker it chose; nil if it
// chose none or did not say.
func chosenCandidate(d *cluster.RouterDecision) *cluster.RouteCandidate {
	for i := range d.Candidates {
		if c := &d.Candidates[i]; c.Worker == d.Chosen && d.Chosen != "" {
			return c
		}
	}
	return nil
}

// secondBest is the cheapest other candidate that was allowed.
func secondBest(d *cluster.RouterDecision) *cluster.RouteCandidate {
	var best *cluster.RouteCandidate
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if c.Worker != d.Chosen && c.Excluded == "" && (best == nil || c.Cost < best.Cost) {
			best = c
		}
	}
	return best
}

func costText(f float64) string {
	if !cells.Finite(f) {
		return cells.Unknown
	}
	if f >= 100000 || f <= -100000 {
		return cells.Compact(f)
	}
	return fmt.Sprintf("%.1f", f)
}

// secondText is the runner-up with what it would have cost more, or why the
// prompt was computed locally. "w2" is short for worker-2.
func secondText(d *cluster.RouterDecision) string {
	if d.Prefill == localPrefill && d.PrefillWhy != "" {
		return d.PrefillWhy
	}
	second, first := secondBest(d), chosenCandidate(d)
	if second == nil {
		return cells.Unknown
	}
	name := second.Worker
	if n, err := cluster.WorkerNumber(name); err == nil {
		name = fmt.Sprintf("w%d", n)
	}
	if first == nil || !cells.Finite(second.Cost-first.Cost) {
		return name
	}
	return fmt.Sprintf("%s %+.0f", name, second.Cost-first.Cost)
}

// stages says where a request was prefilled and where it is decoded.
func stages(d *cluster.RouterDecision) (prefillAt, decodeAt string) {
	prefillAt, decodeAt = d.Prefill, d.Chosen
	if d.Phase == cluster.RolePrefill {
		prefillAt, decodeAt = d.Chosen, ""
	}
	return cells.OrUnknown(prefillAt), cells.OrUnknown(decodeAt)
}

// overlapText is the share of a prompt that was found in the cache, once somebody looked.
func overlapText(d *cluster.RouterDecision) string {
	if d.Prefill == "" && !d.WeighsOverlap() {
		return cells.Unknown
	}
	return fmt.Sprintf("%d/%d", d.Overlap, d.Blocks)
}

// decisionColumns are the columns of pane 6.
func (m *model) decisionColumns() []table.Column {
	at := func(i int) *cluster.RouterDecision { return &m.snap.Decisions[i] }
	name := func(get func(d *cluster.RouterDecision) string, st draw.Style) func(i, w int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{st.Text(cells.ClipMiddle(get(at(i)), w, m.glyphs.More))}
		}
	}
	prefillAt := func(d *cluster.RouterDecision) string { p, _ := stages(d); return p }
	decodeAt := func(d *cluster.RouterDecision) string { _, d2 := stages(d); return d2 }
	prefillW, decodeW := 7, 6
	for i := range m.snap.Decisions {
		p, d := stages(at(i))
		prefillW, decodeW = max(prefillW, cells.Width(p)), max(decodeW, cells.Width(d))
	}
	return []table.Column{
		{Title: "REQ", Width: 6, Most: 14, Leave: 5, Cell: name(func(d *cluster.RouterDecision) string { return cells.OrUnknown(d.RequestID) }, draw.Plain)},
		{Title: "PREFILL", Width: prefillW, Cell: name(prefillAt, draw.Prefill)},
		{Title: "DECODE", Width: decodeW, Cell: name(decodeAt, draw.Decode)},
		{Title: "OVERLAP", Width: 7, Right: true, Leave: 4, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Plain.Text(overlapText(at(i)))}
		}},
		{Title: "COST", Width: 5, Right: true, Leave: 3, Cell: func(i, _ int) []draw.Span {
			if c := chosenCandidate(at(i)); c != nil {
				return []draw.Span{draw.Plain.Text(costText(c.Cost))}
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
		{Title: "2nd", Width: 6, Least: 5, Most: 30, Leave: 2, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(secondText(at(i)))} }},
		{Title: "POLICY", Width: 8, Leave: 1, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(cells.OrUnknown(at(i).Policy))} }},
	}
}

func decisionKey(d *cluster.RouterDecision) table.Key {
	return table.Key{Name: d.RequestID + "\x00" + string(d.Phase), N: uint64(d.Time.UnixNano())}
}

// decisionRows describes pane 6 to its list.
func (m *model) decisionRows() table.Source {
	at := func(i int) *cluster.RouterDecision { return &m.snap.Decisions[i] }
	return table.Source{
		N:      len(m.snap.Decisions),
		Newest: true,
		Key:    func(i int) table.Key { return decisionKey(at(i)) },
		Text: func(i int) string {
			d := at(i)
			return strings.Join([]string{d.RequestID, d.Chosen, d.Prefill, d.PrefillWhy, d.PrefillWay, d.Policy, d.Model}, " ")
		},
	}
}

func (m *model) drawDecisions(a draw.Area) {
	m.drawTable(a.Sub(draw.Rect{X: 0, Y: 0, W: a.W(), H: a.H() - 1}), paneDecisions, m.decisionColumns(), nil, "no router decisions yet")
	remote, told, overlap, blocks := 0, 0, 0, 0
	for i := range m.snap.Decisions {
		d := &m.snap.Decisions[i]
		if d.Phase == cluster.RolePrefill {
			continue // that of the decode worker says where the prompt was computed in the end
		}
		if p, _ := stages(d); p != cells.Unknown {
			told++
			if p != localPrefill {
				remote++
			}
			overlap += d.Overlap
			blocks += d.Blocks
		}
	}
	share := cells.Unknown
	if blocks > 0 {
		v := float64(overlap) / float64(blocks)
		share = cells.Percent(&v) + "%"
	}
	a.Spans(0, a.H()-1, a.W(), []draw.Span{
		draw.Dim.Text("remote prefill "), draw.Plain.Text(fmt.Sprintf("%d of %d", remote, told)), draw.Dim.Text("   overlap "), draw.Plain.Text(share), draw.Dim.Text(" of blocks"),
	})
}
