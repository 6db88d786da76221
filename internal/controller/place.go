package controller

import (
	"cmp"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// loads counts the workers that are placed.
type loads struct {
	device map[[2]string]int               // by node id and device id
	role   map[string]map[cluster.Role]int // by node id
	node   map[string]int                  // by node id
}

// load counts the workers that are placed, except those given.
func (p *planner) load(but ...*item) loads {
	l := loads{device: map[[2]string]int{}, role: map[string]map[cluster.Role]int{}, node: map[string]int{}}
	for _, it := range p.work {
		if !it.deleted && it.Node != "" && !slices.Contains(but, it) {
			l.add(it.Node, it.Device, it.Role)
		}
	}
	return l
}

func (l loads) add(node, device string, role cluster.Role) {
	l.device[[2]string{node, device}]++
	l.node[node]++
	if l.role[node] == nil {
		l.role[node] = map[cluster.Role]int{}
	}
	l.role[node][role]++
}

// place chooses a node and device for a worker, or says why there is none. In
// order: nodes that prefer the role; accelerators before CPUs unless the engine
// names a device; to pack, the node with the most workers; the device with the fewest
// workers for its size; the node with the fewest workers of the role; the node's name.
func place(a cluster.Assignment, how cluster.Placement, nodes []cluster.Node, l loads) (cluster.Node, cluster.Device, string) {
	if len(nodes) == 0 {
		return cluster.Node{}, cluster.Device{}, "no node is up"
	}
	type spot struct {
		node cluster.Node
		dev  cluster.Device
	}
	crowd := func(s spot) int {
		if how == cluster.PlacementPack {
			return -l.node[s.node.ID]
		}
		return 0
	}
	better := func(x, y spot) bool {
		size := func(s spot) float64 {
			return float64(l.device[[2]string{s.node.ID, s.dev.ID}]+1) / float64(max(s.dev.Cores, 1))
		}
		return cmp.Or(
			yesFirst(x.node.Prefers(a.Role), y.node.Prefers(a.Role)),
			yesFirst(x.dev.Kind() != "cpu", y.dev.Kind() != "cpu"),
			cmp.Compare(crowd(x), crowd(y)),
			cmp.Compare(size(x), size(y)),
			cmp.Compare(l.role[x.node.ID][a.Role], l.role[y.node.ID][a.Role]),
			cmp.Compare(x.node.Name, y.node.Name),
			cmp.Compare(x.dev.ID, y.dev.ID),
		) < 0
	}
	var best *spot
	for _, n := range nodes {
		for _, d := range n.Devices {
			s := spot{n, d}
			if a.Engine.RunsOn(d.ID) && (best == nil || better(s, *best)) {
				best = &s
			}
		}
	}
	if best == nil {
		return cluster.Node{}, cluster.Device{}, "no node has a device " + a.Engine.WantedDevices()
	}
	return best.node, best.dev, ""
}

func yesFirst(x, y bool) int {
	switch {
	case x == y:
		return 0
	case x:
		return -1
	}
	return 1
}
