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
	prefillW, decodeW, indexW := 7, 6, 5
	for i := range p.m.Snap.Decisions {
		p, d := moment.Stages(at(i))
		prefillW, decodeW, indexW = max(prefillW, cells.Width(p)), max(decodeW, cells.Width(d)), max(indexW, cells.Width(moment.IndexText(at(i))))
	}
	full := func(get func(d *cluster.RouterDecision) string) int {
		return widest(len(p.m.Snap.Decisions), func(i int) string { return get(at(i)) })
	}
	cost := func(d *cluster.RouterDecision) string {
		if c := moment.Chosen(d); c != nil {
			return moment.CostText(c.Cost)
		}
		return cells.Unknown
	}
	return []table.Column{
		{Title: "REQ", Width: 6, Full: full(func(d *cluster.RouterDecision) string { return d.RequestID }), Leave: 6, Cell: name(func(d *cluster.RouterDecision) string { return cells.OrUnknown(d.RequestID) }, draw.Plain)},
		{Title: "PREFILL", Width: prefillW, Cell: name(prefillAt, draw.Prefill)},
		{Title: "DECODE", Width: decodeW, Cell: name(decodeAt, draw.Decode)},
		{Title: "OVERLAP", Width: 7, Full: full(moment.OverlapText), Right: true, Leave: 5, Help: "blocks that the chosen worker found in its cache / blocks of the prompt", Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Plain.Text(moment.OverlapText(at(i)))}
		}},
		{Title: "INDEX", Width: indexW, Right: true, Leave: 4, Help: "blocks that the index promised of the chosen worker / of the best candidate", Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Plain.Text(moment.IndexText(at(i)))}
		}},
		{Title: "COST", Width: 5, Full: full(cost), Right: true, Leave: 2, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cost(at(i)))}
		}},
		{Title: "2nd", Width: 6, Least: 5, Full: full(moment.SecondText), Leave: 3, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(moment.SecondText(at(i)))} }},
		{Title: "POLICY", Width: 8, Full: full(func(d *cluster.RouterDecision) string { return d.Policy }), Leave: 1, Cell: func(i, _ int) []draw.Span { return []draw.Span{draw.Dim.Text(cells.OrUnknown(at(i).Policy))} }},
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

// sums say what routing achieved, over the decisions of the pane.
func (p *decisions) sums(width, height int) [][]draw.Span {
	r := p.m.Routed()
	reuse, balance, remote, wrong := cells.Unknown, cells.Unknown, cells.Unknown, cells.Unknown
	if r.Reuse() != nil {
		reuse = cells.Percent(r.Reuse()) + "%"
	}
	if r.MaxMean != nil {
		balance = fmt.Sprintf("%.2f", *r.MaxMean)
	}
	if r.Requests > 0 {
		remote, wrong = fmt.Sprintf("%d/%d", r.Remote, r.Requests), "0"
		if n := r.Predicted - r.Found; n != 0 {
			wrong = fmt.Sprintf("%+d", n)
		}
	}
	reusable, reused := moment.CountOr(r.Reusable, r.Reports), moment.CountOr(r.Reused, r.Reports)
	first := figures(width,
		figure(0, "reuse", reuse), figure(1, "blocks", cells.Commas(r.Blocks)),
		draw.Part{Leave: 2, Spans: []draw.Span{draw.Dim.Text("of "), draw.Plain.Text(reusable), draw.Dim.Text(" reusable "), draw.Plain.Text(reused), draw.Dim.Text(" reused")}})
	if height < 6 {
		return [][]draw.Span{first}
	}
	return [][]draw.Span{first, figures(width, figure(3, "remote", remote), figure(1, "max/mean", balance), figure(2, "pred-found", wrong))}
}

// Help explains the columns and the figures below them.
func (p *decisions) Help() []Term {
	return append(p.list.Help(),
		Term{"reuse", "share of prompt blocks that the chosen workers found, over the decisions listed"},
		Term{"reusable", "blocks that at least one worker held when the request was routed"},
		Term{"remote", "requests whose prompt another worker prefilled / all"},
		Term{"max/mean", "prompt blocks that were not found, by decode worker: most / mean"},
		Term{"pred-found", "blocks that the index promised minus blocks that were found"},
	)
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
	t := plain.New("router", "TIME", "REQUEST", "PREFILL", "DECODE", ">OVERLAP", ">BLOCKS", ">COST", "2ND", "POLICY", ">PREDICTED", ">BEST", ">REUSABLE")
	for i := range p.m.Snap.Decisions {
		d := p.at(i)
		prefill, decode := moment.Stages(d)
		cost, overlap := cells.Unknown, cells.Unknown
		if c := moment.Chosen(d); c != nil {
			cost = moment.CostText(c.Cost)
		}
		if d.Prefill != "" {
			overlap = strconv.Itoa(d.Overlap)
		}
		t.Add(o.Time(d.Time), cells.OrUnknown(d.RequestID), prefill, decode, overlap, strconv.Itoa(d.Blocks), cost, moment.SecondText(d), cells.OrUnknown(d.Policy),
			strconv.Itoa(d.Predicted), moment.CountOr(moment.BestOverlap(d)), cells.IntOr(d.Reusable))
	}
	return t
}
