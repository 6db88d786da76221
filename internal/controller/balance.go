package controller

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// rebalance begins to move one worker to a better place, when everything else is done.
// That brings workers back to a node that was lost and returned.
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

// betterPlace says why a worker that serves belongs elsewhere: on a node that prefers
// its role, or on a device with clearly less to do. It is the same answer before and
// after a successor has been placed there.
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
	if old.Kind() != dev.Kind() || packed { // full nodes are meant to be full
		return ""
	}
	// One that stays the fuller of the two does not move for nothing.
	now := share(with.device[[2]string{here.ID, old.ID}]-p.counted(it), old)
	then := share(without.device[[2]string{node.ID, dev.ID}]+1, dev)
	if cmp.Compare(then, now) < 0 {
		return fmt.Sprintf("%s %s has less to do than %s %s", node.Name, dev.ID, here.Name, old.ID)
	}
	return ""
}

// counted is how many of the workers at the place of it are its successor, which is not
// to count there.
func (p *planner) counted(it *item) int {
	if s := p.successor(it); s != nil && s.Node == it.Node && s.Device == it.Device {
		return 1
	}
	return 0
}

// share is how many workers a device has for its size.
func share(workers int, d cluster.Device) float64 {
	return float64(workers) / float64(max(d.Cores, 1))
}
