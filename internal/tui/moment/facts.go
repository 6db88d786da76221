package moment

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// Facts are worked out once for each snapshot, so that drawing a frame costs
// only the rows it shows, also with a thousand workers.
type Facts struct {
	Devices         []string // of each worker: "gpu0 H200"
	Hosts, Versions []string // of each worker's node
	Nodes           []NodeFacts
	StateCount      map[cluster.State]int
	Accuracies      bool   // some frontend tells whether predicted blocks were found
	Leases          bool   // some worker's lease is known
	Model           string // of the topology, with the number of others, or the only one there is

	byName  map[string]int // worker name to row
	nodeAt  map[string]int // node id and name to row
	leaseAt map[cluster.InstanceID]int
	cacheAt map[cluster.InstanceID]int
}

func factsOf(s *cluster.Snapshot) Facts {
	n := len(s.Workers)
	f := Facts{
		Devices: make([]string, n), Hosts: make([]string, n), Versions: make([]string, n),
		byName: make(map[string]int, n), StateCount: map[cluster.State]int{},
	}
	f.Nodes, f.nodeAt = make([]NodeFacts, len(s.Nodes)), map[string]int{}
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
			f.Nodes[at].add(w)
		}
		f.Devices[i] = w.Place(node)
		f.Hosts[i] = w.Node
		if node != nil {
			f.Hosts[i], f.Versions[i] = node.Host, node.Version
		}
		f.byName[w.Name] = i
		f.StateCount[w.State]++
		f.Leases = f.Leases || w.Lease != nil
		models[w.Model] = true
	}
	f.leaseAt = make(map[cluster.InstanceID]int, len(s.Leases))
	for i := range s.Leases {
		f.leaseAt[s.Leases[i].ID] = i
	}
	if s.Caches != nil {
		f.cacheAt = make(map[cluster.InstanceID]int, len(s.Caches.Workers))
		for i, c := range s.Caches.Workers {
			f.cacheAt[c.InstanceID] = i
			f.Accuracies = f.Accuracies || c.Index != nil && c.Index.Recent != nil
		}
	}
	var declared []string
	if s.Topology != nil {
		declared = s.Topology.ModelNames()
	}
	switch {
	case len(declared) > 1:
		f.Model = fmt.Sprintf("%s +%d", declared[0], len(declared)-1)
	case len(declared) == 1:
		f.Model = declared[0]
	case len(models) == 1 && n > 0:
		f.Model = s.Workers[0].Model
	}
	return f
}
