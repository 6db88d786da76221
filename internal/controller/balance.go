package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// rebalance moves one worker to a better place, once everything else is done. That brings
// workers back to a node that was lost and returned.
func (p *planner) rebalance() {
	for _, it := range p.work {
		kind := p.causeOf(it).kind
		settled := it.Desire == cluster.DesireDrain || it.Desire == cluster.DesireRun && p.serving(it) && (kind == fine || kind == misplaced)
		if !it.deleted && (it.Replaces != "" || !settled) {
			return
		}
	}
	for _, it := range p.work {
		if it.deleted || it.Desire != cluster.DesireRun {
			continue
		}
		if c := p.causeOf(it); c.kind == misplaced {
			p.begin(it, c.text)
			return
		}
	}
}

// betterPlace says why a serving worker belongs elsewhere: on a node that prefers its
// role, or on a device with a clearly lower load. The answer does not change when its
// successor is placed there.
func (p *planner) betterPlace(it *item) string {
	here, ok := p.nodes[it.Node]
	if !ok || it.Desire != cluster.DesireRun {
		return ""
	}
	with := p.load()
	without := p.load(it, p.successor(it))
	var nodes []cluster.Node
	for _, n := range p.candidates(&item{Assignment: it.Assignment}) {
		if !p.Settling[n.ID] || n.ID == it.Node {
			nodes = append(nodes, n)
		}
	}
	a := it.Assignment
	a.Model, a.Engine = p.specs(it.Role)
	node, dev, why := place(a, p.placement(it.Role), nodes, without)
	if why != "" || node.ID == it.Node && dev.ID == it.Device {
		return ""
	}
	if !p.suits(it) {
		return it.Device + " is not asked for any longer"
	}
	if node.Prefers(it.Role) != here.Prefers(it.Role) {
		if node.Prefers(it.Role) && !it.RoleOrdered {
			return fmt.Sprintf("%s prefers %s workers, %s does not", node.Name, it.Role, here.Name)
		}
		return ""
	}
	var old cluster.Device
	for _, d := range here.Devices {
		if d.ID == it.Device {
			old = d
		}
	}
	packed := slices.ContainsFunc(cluster.Roles, func(r cluster.Role) bool { return p.placement(r) == cluster.PlacementPack })
	if old.Kind() != dev.Kind() || packed { // packed nodes are meant to be full
		return ""
	}
	// The worker does not move if its new device would be no less loaded than the old
	// one.
	now := share(with.device[[2]string{here.ID, old.ID}]-p.counted(it), old)
	then := share(without.device[[2]string{node.ID, dev.ID}]+1, dev)
	if cmp.Compare(then, now) < 0 {
		return fmt.Sprintf("%s %s has less to do than %s %s", node.Name, dev.ID, here.Name, old.ID)
	}
	return ""
}

// counted is 1 if the worker's successor is on the same device, where it must not count,
// and 0 otherwise.
func (p *planner) counted(it *item) int {
	if s := p.successor(it); s != nil && s.Node == it.Node && s.Device == it.Device {
		return 1
	}
	return 0
}

// share returns the number of workers of a device relative to its size.
func share(workers int, d cluster.Device) float64 {
	return float64(workers) / float64(max(d.Cores, 1))
}
