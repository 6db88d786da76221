package controller

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// rebalance moves one worker to a better place, once everything else is done. That brings
// workers back to a node that was lost and returned.
func (p *planner) rebalance() {
	for _, it := range p.work {
		settled := it.Desire == cluster.DesireDrain || it.Desire == cluster.DesireRun && it.serving() && p.orderOf(it).kind == fine
		if !it.deleted && (it.Replaces != "" || !settled) {
			return
		}
	}
	for _, it := range p.work {
		if it.deleted || it.Desire != cluster.DesireRun {
			continue
		}
		if why := p.betterPlace(it); why != "" {
			p.begin(it, why)
			return
		}
	}
}

// betterPlace says why a serving worker belongs elsewhere: on a node that prefers its
// role, or on a device with a clearly lower load. The answer does not change when its
// successor is placed there.
func (p *planner) betterPlace(it *item) string {
	here, old := p.where(it)
	if here == nil || it.Desire != cluster.DesireRun {
		return ""
	}
	s := p.successor(it)
	there := p.choose(it, true, it, s).best
	switch {
	case there == nil || there == old:
		return ""
	case it.Engine.Server.Attached() && old != nil && old.bare():
		if node := p.wants(groupOf(it)).node; node != "" && here.Name != node {
			return "it belongs to " + node
		}
		return ""
	case old == nil || !it.Engine.RunsOn(old.ID):
		return it.Device + " is not asked for any longer"
	case there.host.Prefers(it.Role) != here.Prefers(it.Role):
		if there.host.Prefers(it.Role) && !it.RoleOrdered {
			return fmt.Sprintf("%s prefers %s workers, %s does not", there.host.Name, it.Role, here.Name)
		}
		return ""
	case there.Kind() != old.Kind() || p.packed(): // packed nodes are meant to be full
		return ""
	}
	// The worker does not move if its new device would be no less loaded than the old
	// one.
	now, then := old.workers, there.workers+1
	if s != nil && !s.deleted {
		_, d := p.where(s)
		if d == old { // its successor does not count where it runs itself
			now--
		}
		if d == there {
			then--
		}
	}
	if share(then, there.Device) < share(now, old.Device) {
		return fmt.Sprintf("%s %s has less to do than %s %s", there.host.Name, there.ID, here.Name, old.ID)
	}
	return ""
}

// packed reports whether the workers of some group are packed.
func (p *planner) packed() bool {
	return slices.ContainsFunc(p.all, func(g group) bool { return p.wants(g).placement == cluster.PlacementPack })
}
