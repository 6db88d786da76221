package controller

import (
	"fmt"
	"testing"

	"github.com/dynctl/dynctl/internal/cluster"
)

// fleet returns a view in which nothing is left to do: each of nodes x devices has one
// worker that serves, every fourth one for prefill, and room for one more.
func fleet(nodes, devices int) View {
	v := View{Topology: &cluster.Topology{Model: tiny}, Status: map[string]cluster.WorkerStatus{}}
	for n := range nodes {
		host := cluster.Node{ID: fmt.Sprintf("id-%04d", n), Name: fmt.Sprintf("node-%04d", n)}
		for d := range devices {
			host.Devices = append(host.Devices, cluster.Device{ID: fmt.Sprintf("gpu:%d", d), MemoryBytes: 80 << 30})
		}
		v.Nodes = append(v.Nodes, host)
	}
	for i := range nodes * devices {
		a := cluster.Assignment{
			Name: cluster.WorkerName(i + 1), Role: cluster.RoleDecode, Model: tiny, Desire: cluster.DesireRun, Generation: 1,
			Node: v.Nodes[i%nodes].ID, Device: v.Nodes[i%nodes].Devices[i/nodes].ID,
		}
		if i%4 == 0 {
			a.Role = cluster.RolePrefill
			v.Topology.Prefill++
		} else {
			v.Topology.Decode++
		}
		v.Assignments = append(v.Assignments, a)
		v.Status[a.Name] = cluster.WorkerStatus{
			Name: a.Name, State: cluster.StateReady, Generation: 1, MemoryBytes: 30 << 30, BlockBytes: 1 << 20,
			Stats: cluster.WorkerStats{BlockSize: 64},
		}
	}
	return v
}

// BenchmarkPlan times plans that change nothing, by nodes x devices, each with a worker.
func BenchmarkPlan(b *testing.B) {
	for _, f := range [][2]int{{128, 1}, {1000, 1}, {125, 8}} {
		b.Run(fmt.Sprintf("%dx%d", f[0], f[1]), func(b *testing.B) {
			v := fleet(f[0], f[1])
			b.ReportAllocs()
			for b.Loop() {
				if changes := Plan(v); len(changes) != 0 {
					b.Fatalf("%d changes, first %+v", len(changes), changes[0])
				}
			}
		})
	}
}

// BenchmarkPlanPlaces times plans that place every worker.
func BenchmarkPlanPlaces(b *testing.B) {
	for _, f := range [][2]int{{128, 1}, {1000, 1}, {125, 8}} {
		b.Run(fmt.Sprintf("%dx%d", f[0], f[1]), func(b *testing.B) {
			v := fleet(f[0], f[1])
			v.Assignments = nil
			b.ReportAllocs()
			for b.Loop() {
				if changes := Plan(v); len(changes) != f[0]*f[1] {
					b.Fatalf("%d changes", len(changes))
				}
			}
		})
	}
}
