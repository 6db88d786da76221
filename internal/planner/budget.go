package planner

import "github.com/dynctl/dynctl/internal/cluster"

// DevicesOf returns the devices that a plan needs.
func (c Config) DevicesOf(p Plan) int {
	return p.Prefill*c.Prefill.DevicesPerWorker + p.Decode*c.Decode.DevicesPerWorker
}

// Fits reports whether a plan keeps within the budgets and maxima.
func (c Config) Fits(p Plan) bool {
	return c.DevicesOf(p) <= c.Devices && p.Prefill <= c.most(cluster.RolePrefill) && p.Decode <= c.most(cluster.RoleDecode)
}

// most returns how many workers a role may have at the most, whatever the other one has.
// It divides and floors: a worker that fits partly does not fit.
func (c Config) most(role cluster.Role) int {
	r := c.Role(role)
	n := c.Devices / r.DevicesPerWorker
	if r.Devices > 0 {
		n = min(n, r.Devices/r.DevicesPerWorker)
	}
	if r.Max > 0 {
		n = min(n, r.Max)
	}
	return n
}

// keepsMinimum reports whether a plan has the workers that the configuration wants at least.
func (c Config) keepsMinimum(p Plan) bool {
	return p.Prefill >= c.Prefill.Min && p.Decode >= c.Decode.Min
}

// minimum raises p to the minima.
func (c Config) minimum(p Plan) Plan {
	p.Prefill, p.Decode = max(p.Prefill, c.Prefill.Min), max(p.Decode, c.Decode.Min)
	return p
}

// reduce takes workers away until p fits. It takes from the role that is further above its minimum
// in devices, so that what remains keeps the proportion roughly; minima hold as far as the budget does,
// and the last decode worker goes last: without it nothing is served.
func (c Config) reduce(p Plan) Plan {
	p.Prefill, p.Decode = min(p.Prefill, c.most(cluster.RolePrefill)), min(p.Decode, c.most(cluster.RoleDecode))
	for !c.Fits(p) {
		spareP := (p.Prefill - c.Prefill.Min) * c.Prefill.DevicesPerWorker
		spareD := (p.Decode - c.Decode.Min) * c.Decode.DevicesPerWorker
		last := p.Decode <= 1 && spareP > 0
		if p.Decode == 0 || p.Prefill > 0 && (last || spareP >= spareD) {
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
