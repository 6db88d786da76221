package tui

import (
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
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
		return unknown
	}
	return commas(n.kvUsed) + "/" + commas(n.kvAll)
}

// deviceList names the devices of a node.
func deviceList(n *cluster.Node) string {
	var names []string
	for i := range n.Devices {
		names = append(names, n.DeviceLabel(n.Devices[i].ID))
	}
	return orUnknown(strings.Join(names, ", "))
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
	return orUnknown(strings.Join(names, " "))
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
		return unknown
	}
	return uptime(m.at().Sub(since))
}

// nodeColumns are the columns of the nodes.
func (m *model) nodeColumns() []column {
	at := func(i int) *cluster.Node { return &m.snap.Nodes[i] }
	text := func(get func(i int) string) func(int, int) []span {
		return func(i, w int) []span { return []span{{clip(orUnknown(get(i)), w, m.glyphs.more), plain}} }
	}
	nameW, deviceW, hostW := 8, 7, 4
	for i := range m.snap.Nodes {
		nameW, deviceW, hostW = max(nameW, textWidth(at(i).Name)), max(deviceW, textWidth(deviceList(at(i)))), max(hostW, textWidth(at(i).Host))
	}
	return []column{
		{title: "NAME", width: nameW, cell: func(i, w int) []span {
			st := strong
			if len(at(i).Alarms) > 0 {
				st = bad // its screen has them
			}
			return []span{{clipMiddle(orUnknown(at(i).Name), w, m.glyphs.more), st}}
		}},
		{title: "HOST", width: clamp(hostW, 4, 20), leave: 8, cell: text(func(i int) string { return at(i).Host })},
		{title: "DEVICES", width: clamp(deviceW, 7, 20), most: clamp(deviceW, 7, 48), leave: 7, cell: text(func(i int) string { return deviceList(at(i)) })},
		{title: "WORKERS", width: 7, right: true, leave: 12, cell: text(func(i int) string { return commas(m.known.nodes[i].workers) })},
		{title: "SEQS", width: 5, right: true, leave: 9, cell: text(func(i int) string { return commas(m.known.nodes[i].running) })},
		{title: "KV BLOCKS", width: 13, right: true, leave: 5, cell: text(func(i int) string { return m.known.nodes[i].kvText() })},
		{title: "TOK/S", width: 5, right: true, leave: 6, cell: text(func(i int) string { return compactOr(m.known.nodes[i].tokS) })},
		{title: "USE%", width: 4, right: true, leave: 11, cell: text(func(i int) string { return percent(m.known.nodes[i].meanUse()) })},
		{title: "LEASE", width: 6, right: true, leave: 10, cell: func(i, _ int) []span {
			if l := m.nodeLease(at(i)); l != nil {
				return m.leaseSpans(l.Left, l.TTL)
			}
			return []span{{unknown, plain}}
		}},
		{title: "UP", width: 5, right: true, leave: 4, cell: text(func(i int) string { return m.up(at(i).StartedAt) })},
		{title: "STORES", width: 9, leave: 3, cell: text(func(i int) string { return storeList(at(i)) })},
		{title: "VERSION", width: 8, leave: 2, cell: text(func(i int) string { return at(i).Version })},
		{title: "FRONTEND", width: 22, most: 40, leave: 1, cell: text(func(i int) string { return at(i).FrontendURL })},
	}
}

// nodeRows describes the nodes to their list.
func (m *model) nodeRows() rowSource {
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
	return rowSource{
		n:   len(m.snap.Nodes),
		key: func(i int) rowKey { return rowKey{name: at(i).ID} },
		text: func(i int) string {
			return strings.Join([]string{at(i).Name, at(i).ID, at(i).Host, deviceList(at(i)), at(i).Version, at(i).FrontendURL}, " ")
		},
		keys: []sortKey{
			{id: "name", num: func(i int) (float64, bool) { return float64(i), true }}, // snapshots come in that order
			{id: "host", text: func(i int) string { return at(i).Host }},
			{id: "workers", desc: true, num: count(func(n *nodeFacts) int { return n.workers })},
			{id: "seqs", desc: true, num: count(func(n *nodeFacts) int { return n.running })},
			{id: "tok", desc: true, num: ratio(func(n *nodeFacts) *float64 { return n.tokS })},
			{id: "use", desc: true, num: ratio((*nodeFacts).meanUse)},
			{id: "up", desc: true, num: func(i int) (float64, bool) { return -float64(at(i).StartedAt.UnixNano()), !at(i).StartedAt.IsZero() }},
		},
	}
}

func (m *model) drawNodes(a area) {
	m.drawTable(a, paneNodes, m.nodeColumns(), nil, "no nodes: dynctl up starts one")
}
