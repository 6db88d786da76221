package tui

import (
	"strings"

	"github.com/dynctl/dynctl/internal/cluster"
)

// leaseColumns are the columns of pane 2.
func (m *model) leaseColumns() []column {
	at := func(i int) *cluster.Lease { return &m.snap.Leases[i] }
	return []column{
		{title: "OWNER", width: max(m.known.ownerW, 8), cell: func(i, w int) []span {
			return []span{{clipMiddle(orUnknown(at(i).Owner), w, m.glyphs.more), strong}}
		}},
		{title: "TTL left", width: 16, least: 6, most: 28, cell: func(i, w int) []span { return m.ttlSpans(at(i), w) }},
		{title: "RENEWED", width: 9, right: true, leave: 2, cell: func(i, _ int) []span {
			mark := ""
			if m.freshness().kind == stale {
				mark = "~"
			}
			return []span{{mark + seconds(max(at(i).Renewed+m.countdown(), 0)) + " ago", dim}}
		}},
		{title: "LEASE ID", width: 16, leave: 1, cell: func(i, _ int) []span {
			return []span{{at(i).ID.String(), dim}}
		}},
	}
}

// ttlSpans is a bar of the time left beside its number; an ended lease says so.
func (m *model) ttlSpans(l *cluster.Lease, width int) []span {
	left := l.Left - m.countdown()
	if left <= 0 && m.freshness().kind != stale {
		return []span{{m.glyphs.lost + " ended", bad}}
	}
	number := m.leaseSpans(l.Left, l.TTL)
	text := padLeft(number[0].text, 5)
	room := width - textWidth(text) - 1
	if l.TTL <= 0 || room < 3 {
		return number
	}
	share := float64(left) / float64(l.TTL)
	st := good
	if share < 1.0/3 {
		st = warn
	}
	return append(bar(m.glyphs, share, room, st), span{" " + text, number[0].st})
}

// leaseRows describes pane 2 to its list.
func (m *model) leaseRows() rowSource {
	at := func(i int) *cluster.Lease { return &m.snap.Leases[i] }
	return rowSource{
		n: len(m.snap.Leases), soonest: true,
		key:  func(i int) rowKey { return rowKey{at(i).Owner, uint64(at(i).ID)} },
		text: func(i int) string { return strings.Join([]string{at(i).Owner, at(i).ID.String()}, " ") },
		keys: []sortKey{
			{id: "owner", text: func(i int) string { return at(i).Owner }},
			{id: "ttl", num: func(i int) (float64, bool) { return float64(at(i).Left), true }},
			{id: "renewed", desc: true, num: func(i int) (float64, bool) { return float64(at(i).Renewed), true }},
		},
	}
}

func (m *model) drawLeases(a area) {
	m.drawTable(a, paneLeases, m.leaseColumns(), nil, "no leases: no node of this cluster is running")
}
