package pane

import (
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// leases are the pane of the leases in etcd, the one that ends first on top.
type leases struct{ list }

// Leases returns the pane of the leases.
func Leases(m *moment.Moment) Pane {
	p := &leases{list{m: m, none: "no leases: no node of this cluster is running", counts: true}}
	p.columns, p.rows = p.cols, table.NewList(p.source())
	return p
}

func (p *leases) at(i int) *cluster.Lease { return &p.m.Snap.Leases[i] }

func (p *leases) cols() []table.Column {
	at, ownerW := p.at, 8
	for i := range p.m.Snap.Leases {
		ownerW = max(ownerW, cells.Width(at(i).Owner))
	}
	return []table.Column{
		{Title: "OWNER", Width: ownerW, Cell: func(i, w int) []draw.Span {
			name, style := cells.ClipMiddle(cells.OrUnknown(at(i).Owner), w, p.m.Glyphs.More), draw.Strong
			if prog := at(i).Program; prog != nil && prog.Reason != "" {
				style = draw.Warn // a service that does not answer
			}
			return []draw.Span{style.Text(name)}
		}},
		{Title: "TTL left", Width: 16, Least: 6, Most: 28, Cell: func(i, w int) []draw.Span { return p.m.TTL(at(i), w) }},
		{Title: "RENEWED", Width: 9, Right: true, Leave: 2, Cell: func(i, _ int) []draw.Span {
			mark := ""
			if p.m.Stale {
				mark = "~"
			}
			return []draw.Span{draw.Dim.Text(mark + cells.Seconds(max(at(i).Renewed+p.m.Countdown, 0)) + " ago")}
		}},
		{Title: "LEASE ID", Width: 16, Leave: 1, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Dim.Text(at(i).ID.String())}
		}},
	}
}

func (p *leases) source() table.Source {
	at := p.at
	return table.Source{
		N:       func() int { return len(p.m.Snap.Leases) },
		Soonest: "ttl",
		Key:     func(i int) table.Key { return table.Key{Name: at(i).Owner, N: uint64(at(i).ID)} },
		Text:    func(i int) string { return strings.Join([]string{at(i).Owner, at(i).ID.String()}, " ") },
		Keys: []table.SortKey{
			{ID: "owner", Text: func(i int) string { return at(i).Owner }},
			{ID: "ttl", Num: func(i int) (float64, bool) { return float64(at(i).Left), true }},
			{ID: "renewed", Desc: true, Num: func(i int) (float64, bool) { return float64(at(i).Renewed), true }},
		},
	}
}

func (p *leases) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject("no worker under the cursor")
	}
	l := p.at(row)
	s := detail.Subject{Title: "lease " + l.ID.String(), Value: l, Worker: l.Owner, Open: detail.Lease(p.m, l)}
	if w, _ := p.m.Worker(l.Owner); w == nil {
		s.Worker, s.NoWorker = "", "the lease of "+cells.OrUnknown(l.Owner)+" is not a worker's"
	}
	return s
}

func (p *leases) Table(o plain.Options) plain.Table {
	t := plain.New("leases", "OWNER", "LEASE ID", ">TTL LEFT", ">TTL", ">RENEWED AGO")
	for i := range p.m.Snap.Leases {
		l := p.at(i)
		t.Add(cells.OrUnknown(l.Owner), l.ID.String(), o.Duration(&l.Left, cells.Seconds), o.Duration(&l.TTL, cells.Seconds), o.Duration(&l.Renewed, cells.Seconds))
	}
	return t
}
