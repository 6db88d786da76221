package tui

import (
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
	"github.com/dynctl/dynctl/internal/tui/draw"
	"github.com/dynctl/dynctl/internal/tui/table"
)

// nodeFacts add up what the workers of a node do.
type nodeFacts struct {
	workers        int
	running        int
	kvUsed, kvAll  int
	tokS           *float64
	use            map[string]*float64 // of each device that has workers; nil: unknown
	devicesAreBusy bool                // some use is known
}

// add counts a worker in.
func (n *nodeFacts) add(w *cluster.Worker) {
	n.workers++
	if n.use == nil {
		n.use = map[string]*float64{}
	}
	if _, ok := n.use[w.Device]; !ok {
		n.use[w.Device] = nil
	}
	if !measured(w) {
		return
	}
	n.running += w.Stats.Running
	n.kvUsed += w.Stats.KVUsed()
	n.kvAll += max(w.Stats.KVTotal, 0)
	if w.TokS != nil {
		n.tokS = sum(n.tokS, *w.TokS)
	}
	if w.Busy != nil {
		// Workers that share a device compute in turns.
		n.use[w.Device], n.devicesAreBusy = sum(n.use[w.Device], *w.Busy), true
	}
}

func sum(p *float64, v float64) *float64 {
	if p != nil {
		v += *p
	}
	return &v
}

// useOf is the share of time in which a device computed, 0 to 1; nil is unknown.
func (n *nodeFacts) useOf(device string) *float64 {
	p := n.use[device]
	if p == nil {
		return nil
	}
	v := min(*p, 1)
	return &v
}

// meanUse is that of all devices with workers.
func (n *nodeFacts) meanUse() *float64 {
	if !n.devicesAreBusy {
		return nil
	}
	total := 0.0
	for device := range n.use {
		if p := n.useOf(device); p != nil {
			total += *p
		}
	}
	total /= float64(len(n.use))
	return &total
}

func (n *nodeFacts) kvText() string {
	if n.kvAll == 0 {
		return cells.Unknown
	}
	return cells.Commas(n.kvUsed) + "/" + cells.Commas(n.kvAll)
}

// deviceList names the devices of a node.
func deviceList(n *cluster.Node) string {
	var names []string
	for i := range n.Devices {
		names = append(names, n.DeviceLabel(n.Devices[i].ID))
	}
	return cells.OrUnknown(strings.Join(names, ", "))
}

// storeList names the stores that a node hosts.
func storeList(n *cluster.Node) string {
	var names []string
	if n.EmbeddedEtcd {
		names = append(names, "etcd")
	}
	if n.EmbeddedNATS {
		names = append(names, "nats")
	}
	return cells.OrUnknown(strings.Join(names, " "))
}

// nodeLease is the lease of a node; nil when it is not known.
func (m *model) nodeLease(n *cluster.Node) *cluster.Lease {
	if i, ok := m.known.leaseAt[n.InstanceID]; ok && n.InstanceID != 0 {
		return &m.snap.Leases[i]
	}
	return nil
}

// up is for how long something has run.
func (m *model) up(since time.Time) string {
	if since.IsZero() {
		return cells.Unknown
	}
	return cells.Uptime(m.at().Sub(since))
}

// nodeColumns are the columns of the nodes.
func (m *model) nodeColumns() []table.Column {
	at := func(i int) *cluster.Node { return &m.snap.Nodes[i] }
	text := func(get func(i int) string) func(int, int) []draw.Span {
		return func(i, w int) []draw.Span {
			return []draw.Span{draw.Plain.Text(cells.Clip(cells.OrUnknown(get(i)), w, m.glyphs.More))}
		}
	}
	nameW, deviceW, hostW := 8, 7, 4
	for i := range m.snap.Nodes {
		nameW, deviceW, hostW = max(nameW, cells.Width(at(i).Name)), max(deviceW, cells.Width(deviceList(at(i)))), max(hostW, cells.Width(at(i).Host))
	}
	return []table.Column{
		{Title: "NAME", Width: nameW, Cell: func(i, w int) []draw.Span {
			st := draw.Strong
			if len(at(i).Alarms) > 0 {
				st = draw.Bad // its screen has them
			}
			return []draw.Span{st.Text(cells.ClipMiddle(cells.OrUnknown(at(i).Name), w, m.glyphs.More))}
		}},
		{Title: "HOST", Width: cells.Clamp(hostW, 4, 20), Leave: 8, Cell: text(func(i int) string { return at(i).Host })},
		{Title: "DEVICES", Width: cells.Clamp(deviceW, 7, 20), Most: cells.Clamp(deviceW, 7, 48), Leave: 7, Cell: text(func(i int) string { return deviceList(at(i)) })},
		{Title: "WORKERS", Width: 7, Right: true, Leave: 12, Cell: text(func(i int) string { return cells.Commas(m.known.nodes[i].workers) })},
		{Title: "SEQS", Width: 5, Right: true, Leave: 9, Cell: text(func(i int) string { return cells.Commas(m.known.nodes[i].running) })},
		{Title: "KV BLOCKS", Width: 13, Right: true, Leave: 5, Cell: text(func(i int) string { return m.known.nodes[i].kvText() })},
		{Title: "TOK/S", Width: 5, Right: true, Leave: 6, Cell: text(func(i int) string { return cells.CompactOr(m.known.nodes[i].tokS) })},
		{Title: "USE%", Width: 4, Right: true, Leave: 11, Cell: text(func(i int) string { return cells.Percent(m.known.nodes[i].meanUse()) })},
		{Title: "LEASE", Width: 6, Right: true, Leave: 10, Cell: func(i, _ int) []draw.Span {
			if l := m.nodeLease(at(i)); l != nil {
				return m.leaseSpans(l.Left, l.TTL)
			}
			return []draw.Span{draw.Plain.Text(cells.Unknown)}
		}},
		{Title: "UP", Width: 5, Right: true, Leave: 4, Cell: text(func(i int) string { return m.up(at(i).StartedAt) })},
		{Title: "STORES", Width: 9, Leave: 3, Cell: text(func(i int) string { return storeList(at(i)) })},
		{Title: "VERSION", Width: 8, Leave: 2, Cell: text(func(i int) string { return at(i).Version })},
		{Title: "FRONTEND", Width: 22, Most: 40, Leave: 1, Cell: text(func(i int) string { return at(i).FrontendURL })},
	}
}

// nodeRows describes the nodes to their list.
func (m *model) nodeRows() table.Source {
	at := func(i int) *cluster.Node { return &m.snap.Nodes[i] }
	count := func(get func(n *nodeFacts) int) func(int) (float64, bool) {
		return func(i int) (float64, bool) { return float64(get(&m.known.nodes[i])), true }
	}
	ratio := func(get func(n *nodeFacts) *float64) func(int) (float64, bool) {
		return func(i int) (float64, bool) {
			if p := get(&m.known.nodes[i]); p != nil {
				return *p, true
			}
			return 0, false
		}
	}
	return table.Source{
		N:   len(m.snap.Nodes),
		Key: func(i int) table.Key { return table.Key{Name: at(i).ID} },
		Text: func(i int) string {
			return strings.Join([]string{at(i).Name, at(i).ID, at(i).Host, deviceList(at(i)), at(i).Version, at(i).FrontendURL}, " ")
		},
		Keys: []table.SortKey{
			{Id: "name", Num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{Id: "host", Text: func(i int) string { return at(i).Host }},
			{Id: "workers", Desc: true, Num: count(func(n *nodeFacts) int { return n.workers })},
			{Id: "seqs", Desc: true, Num: count(func(n *nodeFacts) int { return n.running })},
			{Id: "tok", Desc: true, Num: ratio(func(n *nodeFacts) *float64 { return n.tokS })},
			{Id: "use", Desc: true, Num: ratio((*nodeFacts).meanUse)},
			{Id: "up", Desc: true, Num: func(i int) (float64, bool) { return -float64(at(i).StartedAt.UnixNano()), !at(i).StartedAt.IsZero() }},
		},
	}
}

func (m *model) drawNodes(a draw.Area) {
	m.drawTable(a, paneNodes, m.nodeColumns(), nil, "no nodes: dynctl up starts one")
}
