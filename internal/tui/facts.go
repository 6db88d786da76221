package tui

import (
	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/tui/cells"
)

// facts are worked out once for each snapshot, so that drawing a frame costs
// only the rows it shows, also with a thousand workers.
type facts struct {
	devices           []string // of each worker: "gpu0 H200"
	hosts, versions   []string
	byName            map[string]int // worker name to row
	nodes             []nodeFacts    // of each node
	nodeAt            map[string]int // node id and name to row
	leaseAt           map[cluster.InstanceID]int
	nameW, deviceW    int // widest cells
	stateW, kvW, seqW int
	modelW, hostW     int
	versionW          int
	ownerW, eventW    int
	stateCount        map[cluster.State]int
	leases            bool // some worker's lease is known
	model             string
}

func factsOf(s *cluster.Snapshot) facts {
	n := len(s.Workers)
	f := facts{
		devices: make([]string, n), hosts: make([]string, n), versions: make([]string, n),
		byName: make(map[string]int, n), stateCount: map[cluster.State]int{},
	}
	f.nodes, f.nodeAt = make([]nodeFacts, len(s.Nodes)), map[string]int{}
	for i := range s.Nodes {
		f.nodeAt[s.Nodes[i].Name] = i
	}
	for i := range s.Nodes { // ids win over names
		f.nodeAt[s.Nodes[i].ID] = i
	}
	models := map[string]bool{}
	for i := range s.Workers {
		w := &s.Workers[i]
		var node *cluster.Node
		if at, ok := f.nodeAt[w.Node]; ok {
			node = &s.Nodes[at]
			f.nodes[at].add(w)
		}
		f.devices[i] = node.DeviceLabel(w.Device)
		f.hosts[i] = w.Node
		if node != nil {
			f.hosts[i], f.versions[i] = node.Host, node.Version
		}
		f.byName[w.Name] = i
		f.stateCount[w.State]++
		f.leases = f.leases || w.Lease != nil
		models[w.Model] = true
		f.nameW = max(f.nameW, cells.Width(w.Name))
		f.deviceW = max(f.deviceW, cells.Width(f.devices[i]))
		f.stateW = max(f.stateW, cells.Width(stateWord(w))+2)
		f.kvW = max(f.kvW, cells.Width(kvNumber(w)))
		f.seqW = max(f.seqW, cells.Width(seqText(w)))
		f.modelW = max(f.modelW, cells.Width(w.Model))
		f.hostW = max(f.hostW, cells.Width(f.hosts[i]))
		f.versionW = max(f.versionW, cells.Width(f.versions[i]))
	}
	f.leaseAt = make(map[cluster.InstanceID]int, len(s.Leases))
	for i := range s.Leases {
		f.leaseAt[s.Leases[i].ID] = i
		f.ownerW = max(f.ownerW, cells.Width(s.Leases[i].Owner))
	}
	for i := range s.Events {
		f.eventW = max(f.eventW, cells.Width(s.Events[i].Worker))
	}
	switch {
	case s.Topology != nil && s.Topology.Model.Name != "":
		f.model = s.Topology.Model.Name
	case len(models) == 1 && n > 0:
		f.model = s.Workers[0].Model
	}
	return f
}

// worker finds a worker by name.
func (m *model) worker(name string) (*cluster.Worker, int) {
	i, ok := m.known.byName[name]
	if !ok || i >= len(m.snap.Workers) {
		return nil, -1
	}
	return &m.snap.Workers[i], i
}
