package pane

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// decisions are the pane of the router's newest decisions.
type decisions struct{ list }

// Decisions returns the pane of the router's decisions.
func Decisions(m *moment.Moment) Pane {
	p := &decisions{list{m: m, none: "no router decisions yet"}}
	p.columns, p.summary, p.rows = p.cols, p.sums, table.NewList(p.source())
	return p
}

func (p *decisions) at(i int) *cluster.RouterDecision { return &p.m.Snap.Decisions[i] }

func (p *decisions) cols() []table.Column {
	at := p.at
	name := func(get func(d *cluster.RouterDecision) string, st draw.Style) func(i, w int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{st.Text(cells.ClipMiddle(get(at(i)), w, p.m.Glyphs.More))}
		}
	}
	prefillAt := func(d *cluster.RouterDecision) string { p, _ := moment.Stages(d); return p }
	decodeAt := func(d *cluster.RouterDecision) string { _, d2 := moment.Stages(d); return d2 }
	prefillW, decodeW := 7, 6
	for i := range p.m.Snap.Decisions {
		p, d := moment.Stages(at(i))
		prefillW, decodeW = max(prefillW, cells.Width(p)), max(decodeW, cells.Width(d))
	}
	return []table.Column{
		{Title: "REQ", Width: 6, Most: 14, Leave: 5, Cell: name(func(d *cluster.RouterDecision) string { return cells.OrUnknown(d.RequestID) }, draw.Plain)},
		{Title: "PREFILL", Width: prefillW, Cell: name(prefillAt, draw.Prefill)},
		{Title: "DECODE", Width: decodeW, Cell: name(decodeAt, draw.Decode)},
		{Title: "OVERLAP", Width: 7, Right: true, Leave: 4, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Plain.Text(moment.OverlapText(at(i)))}
		}},
		{Title: "COST", Width: 5, Right: true, Leave: 3, Cell: func(i, _ int) []draw.Span {
			if c := moment.Chosen(at(i)); c != nil {
				return []draw.Span{draw.Plain.Text(moment.CostText(c.Cost))}
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
		{Title: "2nd", Width: 6, Least: 5, Most: 30, Leave: 2, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(moment.SecondText(at(i)))} }},
		{Title: "POLICY", Width: 8, Leave: 1, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(cells.OrUnknown(at(i).Policy))} }},
	}
}

func (p *decisions) source() table.Source {
	at := p.at
	return table.Source{
		N:      func() int { return len(p.m.Snap.Decisions) },
		Newest: true,
		Key: func(i int) table.Key {
			return table.Key{Name: at(i).RequestID + "\x00" + string(at(i).Phase), N: uint64(at(i).Time.UnixNano())}
		},
		Text: func(i int) string {
			d := at(i)
			return strings.Join([]string{d.RequestID, d.Chosen, d.Prefill, d.PrefillWhy, d.PrefillWay, d.Policy, d.Model}, " ")
		},
	}
}

// sums are the share of remote prefill and of blocks that were in a cache.
func (p *decisions) sums() []draw.Span {
	remote, told, overlap, blocks := 0, 0, 0, 0
	for i := range p.m.Snap.Decisions {
		d := &p.m.Snap.Decisions[i]
		if d.Phase == cluster.RolePrefill {
			continue // that of the decode worker says where the prompt was computed in the end
		}
		if p, _ := moment.Stages(d); p != cells.Unknown {
			told++
			if p != moment.LocalPrefill {
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
	return []draw.Span{
		draw.Dim.Text("remote prefill "), draw.Plain.Text(fmt.Sprintf("%d of %d", remote, told)), draw.Dim.Text("   overlap "), draw.Plain.Text(share), draw.Dim.Text(" of blocks"),
	}
}

func (p *decisions) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject(chooseWorker)
	}
	d := p.at(row)
	return detail.Subject{Title: d.RequestID, Value: d, NoWorker: chooseWorker, Open: detail.Route(p.m, d.RequestID)}
}

func (p *decisions) Table(o plain.Options) plain.Table {
	t := plain.New("router", "TIME", "REQUEST", "PREFILL", "DECODE", ">OVERLAP", ">BLOCKS", ">COST", "2ND", "POLICY")
	for i := range p.m.Snap.Decisions {
		d := p.at(i)
		prefill, decode := moment.Stages(d)
		cost, overlap := cells.Unknown, cells.Unknown
		if c := moment.Chosen(d); c != nil {
			cost = moment.CostText(c.Cost)
		}
		if d.Prefill != "" || d.WeighsOverlap() {
			overlap = strconv.Itoa(d.Overlap)
		}
		t.Add(o.Time(d.Time), cells.OrUnknown(d.RequestID), prefill, decode, overlap, strconv.Itoa(d.Blocks), cost, moment.SecondText(d), cells.OrUnknown(d.Policy))
	}
	return t
}
