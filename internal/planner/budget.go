package planner

import (
	"fmt"

	"github.com/dynctl/dynctl/internal/cluster"
)

// DevicesOf returns the devices that a plan needs: attached servers take none.
func (c Config) DevicesOf(p Plan) int {
	return c.own(p, cluster.RolePrefill)*c.Prefill.DevicesPerWorker + c.own(p, cluster.RoleDecode)*c.Decode.DevicesPerWorker
}

// own returns the workers of a plan that take devices.
func (c Config) own(p Plan, role cluster.Role) int {
	return max(p.Workers(role)-c.Role(role).attached, 0)
}

// room returns the devices that other pools leave.
func (c Config) room() int { return max(c.Devices-c.others, 0) }

// Fits reports whether a plan keeps within the budgets and maxima. A plan without devices always does.
func (c Config) Fits(p Plan) bool {
	return c.DevicesOf(p) <= c.room() && p.Prefill <= c.most(cluster.RolePrefill) && p.Decode <= c.most(cluster.RoleDecode)
}

// most returns how many workers a role may have at the most, whatever the other one has.
// It divides and floors: a worker that fits partly does not fit.
func (c Config) most(role cluster.Role) int {
	r := c.Role(role)
	if r.Fixed {
		return r.attached
	}
	n := c.room() / r.DevicesPerWorker
	if r.Devices > 0 {
		n = min(n, max(r.Devices-r.others, 0)/r.DevicesPerWorker)
	}
	n += r.attached
	if r.Max > 0 {
		n = min(n, max(r.Max, r.attached))
	}
	return n
}

// least returns how many workers a role has at the least: the configured minimum, and attached ones with Own beside.
func (c Config) least(role cluster.Role) int {
	r := c.Role(role)
	if r.Fixed {
		return r.attached
	}
	return max(r.Min, r.attached+r.Own)
}

// keepsMinimum reports whether a plan has the workers that there must be at least.
func (c Config) keepsMinimum(p Plan) bool {
	return p.Prefill >= c.least(cluster.RolePrefill) && p.Decode >= c.least(cluster.RoleDecode)
}

// minimum raises p to the minima.
func (c Config) minimum(p Plan) Plan {
	p.Prefill, p.Decode = max(p.Prefill, c.least(cluster.RolePrefill)), max(p.Decode, c.least(cluster.RoleDecode))
	return p
}

// reduce takes workers away until p fits. It takes from the role that is further above its minimum
// in devices, so that what remains keeps the proportion roughly; minima hold as far as the budget does,
// and the last decode worker goes last: without it nothing is served. Attached servers stay.
func (c Config) reduce(p Plan) Plan {
	p.Prefill, p.Decode = min(p.Prefill, c.most(cluster.RolePrefill)), min(p.Decode, c.most(cluster.RoleDecode))
	for !c.Fits(p) {
		spareP := (p.Prefill - c.least(cluster.RolePrefill)) * c.Prefill.DevicesPerWorker
		spareD := (p.Decode - c.least(cluster.RoleDecode)) * c.Decode.DevicesPerWorker
		last := p.Decode <= 1 && spareP > 0
		if c.own(p, cluster.RoleDecode) == 0 || c.own(p, cluster.RolePrefill) > 0 && (last || spareP >= spareD) {
			p.Prefill--
		} else {
			p.Decode--
		}
	}
	return p
}

// lessGrowth returns target with fewer new workers, until it fits or nothing grows.
func (c Config) lessGrowth(from, target Plan) Plan {
	for _, role := range Roles {
		for !c.Fits(target) && target.Workers(role) > from.Workers(role) {
			target = target.With(role, target.Workers(role)-1)
		}
	}
	return target
}

// explainBudget says why the budget leaves no more: other pools keep a part of it, or a role cannot grow.
func (p *Planner) explainBudget(d *Decision) {
	if p.cfg.others > 0 {
		d.reason(ReasonOtherPools, float64(p.cfg.others), "")
	}
	if d.Refusal != RefusedBudget && !d.BestEffort && d.Cause != CauseBudget || d.Detail != "" {
		return
	}
	d.Detail = p.cfg.holders
	for _, role := range Roles {
		if c := p.cfg.Role(role); c.Fixed && c.attached > 0 {
			d.Detail = fmt.Sprintf("The %s workers are attached servers, which nobody here starts", role)
		}
	}
}
