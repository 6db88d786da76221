package tui

import (
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// leaseColumns are the columns of pane 2.
func (m *model) leaseColumns() []table.Column {
	at := func(i int) *cluster.Lease { return &m.snap.Leases[i] }
	return []table.Column{
		{Title: "OWNER", Width: max(m.known.ownerW, 8), Cell: func(i, w int) []draw.Span {
			return []draw.Span{draw.Strong.Text(cells.ClipMiddle(cells.OrUnknown(at(i).Owner), w, m.glyphs.More))}
		}},
		{Title: "TTL left", Width: 16, Least: 6, Most: 28, Cell: func(i, w int) []draw.Span { return m.ttlSpans(at(i), w) }},
		{Title: "RENEWED", Width: 9, Right: true, Leave: 2, Cell: func(i, _ int) []draw.Span {
			mark := ""
			if m.freshness().kind == stale {
				mark = "~"
			}
			return []draw.Span{draw.Dim.Text(mark + cells.Seconds(max(at(i).Renewed+m.countdown(), 0)) + " ago")}
		}},
		{Title: "LEASE ID", Width: 16, Leave: 1, Cell: func(i, _ int) []draw.Span {
			return []draw.Span{draw.Dim.Text(at(i).ID.String())}
		}},
	}
}

// ttlSpans is a bar of the time left beside its number; an ended lease says so.
func (m *model) ttlSpans(l *cluster.Lease, width int) []draw.Span {
	left := l.Left - m.countdown()
	if left <= 0 && m.freshness().kind != stale {
		return []draw.Span{draw.Bad.Text(m.glyphs.Lost + " ended")}
	}
	number := m.leaseSpans(l.Left, l.TTL)
	text := cells.PadLeft(number[0].Text, 5)
	room := width - cells.Width(text) - 1
	if l.TTL <= 0 || room < 3 {
		return number
	}
	share := float64(left) / float64(l.TTL)
	st := draw.Good
	if share < 1.0/3 {
		st = draw.Warn
	}
	return append(draw.Bar(m.glyphs, share, room, st), number[0].Style.Text(" "+text))
}

// leaseRows describes pane 2 to its list.
func (m *model) leaseRows() table.Source {
	at := func(i int) *cluster.Lease { return &m.snap.Leases[i] }
	return table.Source{
		N: len(m.snap.Leases), Soonest: true,
		Key:  func(i int) table.Key { return table.Key{Name: at(i).Owner, N: uint64(at(i).ID)} },
		Text: func(i int) string { return strings.Join([]string{at(i).Owner, at(i).ID.String()}, " ") },
		Keys: []table.SortKey{
			{Id: "owner", Text: func(i int) string { return at(i).Owner }},
			{Id: "ttl", Num: func(i int) (float64, bool) { return float64(at(i).Left), true }},
			{Id: "renewed", Desc: true, Num: func(i int) (float64, bool) { return float64(at(i).Renewed), true }},
		},
	}
}

func (m *model) drawLeases(a draw.Area) {
	m.drawTable(a, paneLeases, m.leaseColumns(), nil, "no leases: no node of this cluster is running")
}
