package pane

import (
	"strconv"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/detail"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/moment"
	"github.com/dynctl/dynctl/internal/tui/plain"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// nodes are the pane of the nodes with what their workers do.
type nodes struct{ list }

// Nodes returns the pane of the nodes.
func Nodes(m *moment.Moment) Pane {
	p := &nodes{list{m: m, none: "no nodes: dynctl up starts one", counts: true}}
	p.columns, p.rows = p.cols, table.NewList(p.source())
	return p
}

func (p *nodes) at(i int) *cluster.Node { return &p.m.Snap.Nodes[i] }

func (p *nodes) cols() []table.Column {
	at := p.at
	text := func(get func(i int) string) func(int, int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cells.Clip(cells.OrUnknown(get(i)), w, p.m.Glyphs.More))}
		}
	}
	nameW, deviceW, hostW := 8, 7, 4
	for i := range p.m.Snap.Nodes {
		nameW, deviceW, hostW = max(nameW, cells.Width(at(i).Name)), max(deviceW, cells.Width(moment.DeviceList(at(i)))), max(hostW, cells.Width(at(i).Host))
	}
	full := func(get func(i int) string) int { return widest(len(p.m.Snap.Nodes), get) }
	kv := func(i int) string { return p.m.Known.Nodes[i].KVText() }
	stores := func(i int) string { return moment.StoreList(at(i)) }
	version := func(i int) string { return at(i).Version }
	frontend := func(i int) string { return at(i).FrontendURL }
	return []table.Column{
		{Title: "NAME", Width: nameW, Cell: func(i, w int) []draw.Span {
			st := draw.Strong
			if len(at(i).Alarms) > 0 {
				st = draw.Bad // its screen has them
			}
			return []draw.Span{st.Text(cells.ClipMiddle(cells.OrUnknown(at(i).Name), w, p.m.Glyphs.More))}
		}},
		{Title: "HOST", Width: cells.Clamp(hostW, 4, 20), Full: hostW, Leave: 8, Cell: text(func(i int) string { return at(i).Host })},
		{Title: "DEVICES", Width: cells.Clamp(deviceW, 7, 20), Full: deviceW, Leave: 7, Cell: text(func(i int) string { return moment.DeviceList(at(i)) })},
		{Title: "WORKERS", Width: 7, Right: true, Leave: 12, Cell: text(func(i int) string { return cells.Commas(p.m.Known.Nodes[i].Workers) })},
		{Title: "SEQS", Width: 5, Right: true, Leave: 9, Cell: text(func(i int) string { return cells.Commas(p.m.Known.Nodes[i].Running) })},
		{Title: "KV BLOCKS", Width: 13, Full: full(kv), Right: true, Leave: 5, Cell: text(kv)},
		{Title: "TOK/S", Width: 5, Right: true, Leave: 6, Cell: text(func(i int) string { return cells.CompactOr(p.m.Known.Nodes[i].TokS) })},
		{Title: "USE%", Width: 4, Right: true, Leave: 11, Cell: text(func(i int) string { return cells.Percent(p.m.Known.Nodes[i].MeanUse()) })},
		{Title: "LEASE", Width: 6, Right: true, Leave: 10, Cell: func(i, _ int) []draw.Span {
			if l := p.m.NodeLease(at(i)); l != nil {
				return p.m.LeaseLeft(l.Left, l.TTL)
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
		{Title: "UP", Width: 5, Right: true, Leave: 4, Cell: text(func(i int) string { return p.m.Up(at(i).StartedAt) })},
		{Title: "STORES", Width: 9, Full: full(stores), Leave: 3, Cell: text(stores)},
		{Title: "VERSION", Width: 8, Full: full(version), Leave: 2, Cell: text(version)},
		{Title: "FRONTEND", Width: 22, Full: full(frontend), Leave: 1, Cell: text(frontend)},
	}
}

func (p *nodes) source() table.Source {
	at := p.at
	count := func(get func(n *moment.NodeFacts) int) func(int) (float64, bool) {
		return func(i int) (float64, bool) { return float64(get(&p.m.Known.Nodes[i])), true }
	}
	ratio := func(get func(n *moment.NodeFacts) *float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if p := get(&p.m.Known.Nodes[i]); p != nil {
				return *p, true
			}
			return 0, false
		}
	}
	return table.Source{
		N:   func() int { return len(p.m.Snap.Nodes) },
		Key: func(i int) table.Key { return table.Key{Name: at(i).ID} },
		Text: func(i int) string {
			return strings.Join([]string{at(i).Name, at(i).ID, at(i).Host, moment.DeviceList(at(i)), at(i).Version, at(i).FrontendURL}, " ")
		},
		Keys: []table.SortKey{
			{ID: "name", Num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{ID: "host", Text: func(i int) string { return at(i).Host }},
			{ID: "workers", Desc: true, Num: count(func(n *moment.NodeFacts) int { return n.Workers })},
			{ID: "seqs", Desc: true, Num: count(func(n *moment.NodeFacts) int { return n.Running })},
			{ID: "tok", Desc: true, Num: ratio(func(n *moment.NodeFacts) *float64 { return n.TokS })},
			{ID: "use", Desc: true, Num: ratio((*moment.NodeFacts).MeanUse)},
			{ID: "up", Desc: true, Num: func(i int) (float64, bool) { return -float64(at(i).StartedAt.UnixNano()), !at(i).StartedAt.IsZero() }},
		},
	}
}

func (p *nodes) Subject() detail.Subject {
	row, ok := p.rows.Selected()
	if !ok {
		return p.subject(chooseWorker)
	}
	n := p.at(row)
	return detail.Subject{Title: n.Name, Value: n, Node: n.Name, NoWorker: chooseWorker, Open: detail.Node(p.m, n.Name)}
}

func (p *nodes) Table(o plain.Options) plain.Table {
	t := plain.New("nodes", "NAME", "HOST", "DEVICES", ">WORKERS", ">SEQS", ">KV USED", ">KV TOTAL", ">TOK/S", ">USE%", ">LEASE", ">UP", "VERSION", "FRONTEND")
	for i := range p.m.Snap.Nodes {
		n, f := p.at(i), &p.m.Known.Nodes[i]
		var lease, up *time.Duration
		if l := p.m.NodeLease(n); l != nil {
			lease = &l.Left
		}
		if !n.StartedAt.IsZero() {
			d := p.m.Snap.Time.Sub(n.StartedAt)
			up = &d
		}
		t.Add(cells.OrUnknown(n.Name), cells.OrUnknown(n.Host), moment.DeviceList(n), strconv.Itoa(f.Workers), strconv.Itoa(f.Running),
			strconv.Itoa(f.KVUsed), strconv.Itoa(f.KVTotal), o.Float(f.TokS, cells.CompactOr), cells.Percent(f.MeanUse()),
			o.Duration(lease, cells.Seconds), o.Duration(up, cells.Uptime), cells.OrUnknown(n.Version), cells.OrUnknown(n.FrontendURL))
	}
	return t
}
