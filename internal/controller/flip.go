package controller

import (
	"fmt"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
)

// flip turns surplus workers of one role into missing workers of another. They keep their
// weights and KV pools, which new workers would have to load and allocate. The worker
// that the topology names goes first, wherever it is. Others follow only where their node
// prefers the new role. Encode workers are left out; see apart. Workers stay in their pool.
func (p *planner) flip(pool []group) {
	for _, to := range pool {
		for _, from := range pool {
			if !from.role.HoldsKV() || !to.role.HoldsKV() {
				continue
			}
			for p.surplus(from) > 0 && p.surplus(to) < 0 && !p.flipFailed(to) {
				it := p.convertible(from, to)
				if it == nil {
					break
				}
				p.become(it, p.flipped(it, to.role))
				it.why = fmt.Sprintf("role flip: %s has one more than wanted, %s one less", from.role, to.role)
				named := p.named(it, to.role)
				if named {
					it.why = fmt.Sprintf("role flip from %s to %s, as ordered", from.role, to.role)
				}
				p.edit(it, func(a *cluster.Assignment) { a.RoleOrdered = named })
			}
		}
	}
}

// apart returns, for roles of a pool that have too many workers while others lack some, and for those,
// why the workers leave and come rather than take the other role.
func (p *planner) apart(pool []group) map[cluster.Role]string {
	why := map[cluster.Role]string{}
	for _, from := range pool {
		for _, to := range pool {
			if from.role.HoldsKV() != to.role.HoldsKV() && p.surplus(from) > 0 && p.surplus(to) < 0 {
				text := fmt.Sprintf("%s workers cannot become %s workers, which have only the vision tower", from.role, to.role)
				if !from.role.HoldsKV() {
					text = fmt.Sprintf("%s workers have only the vision tower and cannot become %s workers", from.role, to.role)
				}
				why[from.role], why[to.role] = text, text
			}
		}
	}
	return why
}

// surplus returns how many more workers of a group there are than wanted.
func (p *planner) surplus(g group) int { return p.size(g) - p.wants(g).count }

// convertible chooses a worker of one role to take another role. It returns nil if none
// can.
func (p *planner) convertible(from, to group) *item {
	var best *item
	for _, it := range slices.Backward(slices.Collect(p.staying(from))) { // in the order of a scale down
		if it.Node == "" || it.Replaces != "" || p.successor(it) != nil {
			continue
		}
		if p.named(it, to.role) {
			return it
		}
		if best == nil && it.Desire == cluster.DesireRun && !it.Replace && it.serving() && p.takes(it, to.role) {
			best = it
		}
	}
	return best
}

// flipFailed reports whether a worker of the pool failed to take the role. No other worker is
// tried then.
func (p *planner) flipFailed(to group) bool {
	return slices.ContainsFunc(p.work, func(it *item) bool {
		if it.Refused.Why == "" || it.Pool != to.pool || it.Role == to.role {
			return false
		}
		f := p.flipped(it, to.role)
		f.Restarts, f.Starts = it.Refused.Form.Restarts, it.Refused.Form.Starts
		return it.refuses(f)
	})
}

// flipped returns the form of a worker after a flip. A pending restart stays pending.
func (p *planner) flipped(it *item, to cluster.Role) cluster.Form {
	f := p.wanted(it, to)
	f.Restarts = it.Restarts
	return f
}

// named reports whether an operator chose this worker for the role.
func (p *planner) named(it *item, to cluster.Role) bool {
	return p.Topology.Flip == cluster.Flip{Worker: it.Name, Role: to, Generation: p.Topology.Generation}
}

// takes reports whether a worker's device suits a role: its node is not drained and
// prefers the role, and the engine runs on the device.
func (p *planner) takes(it *item, role cluster.Role) bool {
	h, d := p.where(it)
	return d != nil && !h.cordoned && h.Prefers(role) && p.wants(group{it.Pool, role}).engine.RunsOn(d.ID)
}
