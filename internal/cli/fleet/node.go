package fleet

import (
	"slices"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// NodeRow is a node with what its workers add up to.
type NodeRow struct {
	cluster.Node
	Workers []string `json:"workers"`
	// State is ready, degraded with alarms, draining or drained.
	State cluster.State `json:"state"`
}

// NodeRows adds up what workers of nodes do.
func NodeRows(v client.View, nodes []cluster.Node) []NodeRow {
	var rows []NodeRow
	for _, n := range nodes {
		r := NodeRow{Node: n, Workers: []string{}, State: cluster.StateReady}
		if len(n.Alarms) > 0 {
			r.State = cluster.StateDegraded
		}
		if _, cordoned := v.Cordons[n.ID]; cordoned {
			r.State = cluster.StateDrained
		}
		for _, w := range v.Workers() {
			if w.Node != n.ID {
				continue
			}
			r.Workers = append(r.Workers, w.Name)
			if r.State == cluster.StateDrained && !Safe(w.WorkerStatus) {
				r.State = cluster.StateDraining
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// EndpointsOf are the endpoints that are registered under a lease.
func EndpointsOf(v client.View, id cluster.InstanceID) []string {
	var out []string
	for _, inst := range v.Instances {
		if inst.InstanceID == id {
			out = append(out, inst.Component+"/"+inst.Endpoint)
		}
	}
	slices.Sort(out)
	return out
}
