package tui

import (
	"fmt"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
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
	if !finite(f) {
		return unknown
	}
	if f >= 100000 || f <= -100000 {
		return compact(f)
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
		return unknown
	}
	name := second.Worker
	if n, err := cluster.WorkerNumber(name); err == nil {
		name = fmt.Sprintf("w%d", n)
	}
	if first == nil || !finite(second.Cost-first.Cost) {
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
	return orUnknown(prefillAt), orUnknown(decodeAt)
}

// overlapText is the share of a prompt that was found in the cache, once somebody looked.
func overlapText(d *cluster.RouterDecision) string {
	if d.Prefill == "" && !d.WeighsOverlap() {
		return unknown
	}
	return fmt.Sprintf("%d/%d", d.Overlap, d.Blocks)
}

// decisionColumns are the columns of pane 6.
func (m *model) decisionColumns() []column {
	at := func(i int) *cluster.RouterDecision { return &m.snap.Decisions[i] }
	name := func(get func(d *cluster.RouterDecision) string, st style) func(i, w int) []span {
		return func(i, w int) []span { return []span{{clipMiddle(get(at(i)), w, m.glyphs.more), st}} }
	}
	prefillAt := func(d *cluster.RouterDecision) string { p, _ := stages(d); return p }
	decodeAt := func(d *cluster.RouterDecision) string { _, d2 := stages(d); return d2 }
	prefillW, decodeW := 7, 6
	for i := range m.snap.Decisions {
		p, d := stages(at(i))
		prefillW, decodeW = max(prefillW, textWidth(p)), max(decodeW, textWidth(d))
	}
	return []column{
		{title: "REQ", width: 6, most: 14, leave: 5, cell: name(func(d *cluster.RouterDecision) string { return orUnknown(d.RequestID) }, plain)},
		{title: "PREFILL", width: prefillW, cell: name(prefillAt, prefill)},
		{title: "DECODE", width: decodeW, cell: name(decodeAt, decode)},
		{title: "OVERLAP", width: 7, right: true, leave: 4, cell: func(i, _ int) []span {
			return []span{{overlapText(at(i)), plain}}
		}},
		{title: "COST", width: 5, right: true, leave: 3, cell: func(i, _ int) []span {
			if c := chosenCandidate(at(i)); c != nil {
				return []span{{costText(c.Cost), plain}}
			}
			return []span{{unknown, plain}}
		}},
		{title: "2nd", width: 6, least: 5, most: 30, leave: 2, cell: func(i, _ int) []span { return []span{{secondText(at(i)), dim}} }},
		{title: "POLICY", width: 8, leave: 1, cell: func(i, _ int) []span { return []span{{orUnknown(at(i).Policy), dim}} }},
	}
}

func decisionKey(d *cluster.RouterDecision) rowKey {
	return rowKey{d.RequestID + "\x00" + string(d.Phase), uint64(d.Time.UnixNano())}
}

// decisionRows describes pane 6 to its list.
func (m *model) decisionRows() rowSource {
	at := func(i int) *cluster.RouterDecision { return &m.snap.Decisions[i] }
	return rowSource{
		n:      len(m.snap.Decisions),
		newest: true,
		key:    func(i int) rowKey { return decisionKey(at(i)) },
		text: func(i int) string {
			d := at(i)
			return strings.Join([]string{d.RequestID, d.Chosen, d.Prefill, d.PrefillWhy, d.PrefillWay, d.Policy, d.Model}, " ")
		},
	}
}

func (m *model) drawDecisions(a area) {
	m.drawTable(a.sub(rect{0, 0, a.w(), a.h() - 1}), paneDecisions, m.decisionColumns(), nil, "no router decisions yet")
	remote, told, overlap, blocks := 0, 0, 0, 0
	for i := range m.snap.Decisions {
		d := &m.snap.Decisions[i]
		if d.Phase == cluster.RolePrefill {
			continue // that of the decode worker says where the prompt was computed in the end
		}
		if p, _ := stages(d); p != unknown {
			told++
			if p != localPrefill {
				remote++
			}
			overlap += d.Overlap
			blocks += d.Blocks
		}
	}
	share := unknown
	if blocks > 0 {
		v := float64(overlap) / float64(blocks)
		share = percent(&v) + "%"
	}
	a.spans(0, a.h()-1, a.w(), []span{
		{"remote prefill ", dim}, {fmt.Sprintf("%d of %d", remote, told), plain}, {"   overlap ", dim}, {share, plain}, {" of blocks", dim},
	})
}
