package frontend

import (
	"cmp"
	"encoding/json"
	"maps"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/router"
)

const (
	requiredTaints  = "nvext.routing_constraints.required_taints"
	preferredTaints = "nvext.routing_constraints.preferred_taints"
	maxPreference   = 1000 // weights beyond 3 change nothing any more
)

// readConstraints reads a member of nvext.routing_constraints.
func (p *nvextParams) readConstraints(path, key string, raw json.RawMessage) *apiError {
	switch path {
	case requiredTaints:
		if unmarshalList(raw, &p.constraints.Required, cluster.MaxTaints) != nil {
			return wrongType(path, "a list of strings")
		}
		if err := cluster.CheckTaints(p.constraints.Required); err != nil {
			return wrongValue(path, "%v", err)
		}
		return nil
	case preferredTaints:
		p.constraints.Preferred = map[string]float64{}
		read := func(at, taint string, raw json.RawMessage) *apiError {
			var weight *float64
			if bad := number(&weight, -maxPreference, maxPreference)(at, raw); bad != nil || weight == nil {
				return bad
			}
			p.constraints.Preferred[taint] = *weight
			return nil
		}
		if bad := object(read)(path, raw); bad != nil {
			return bad
		}
		if err := cluster.CheckTaints(slices.Collect(maps.Keys(p.constraints.Preferred))); err != nil {
			return wrongValue(path, "%v", err)
		}
		return nil
	}
	return invalid(path, "Unknown parameter: '%s'.", path).withCode("unknown_parameter")
}

// candidate describes a worker to the router. only is the worker that the request names for
// the role, and failed says why this one has refused or lost the request.
func (g *generation) candidate(i *cluster.Instance, rt cluster.RuntimeConfig, only cluster.InstanceID, failed string) router.Candidate {
	c := router.Candidate{
		ID: i.InstanceID, Worker: i.Worker, Excluded: failed, Preference: g.constraints.Preference(rt.Taints), MaxBatchTokens: rt.MaxBatchTokens,
	}
	taint, lacks := g.constraints.Lacks(rt.Taints)
	switch {
	case only != 0 && only != i.InstanceID:
		c.Excluded = whyNotNamed
	case lacks:
		c.Excluded = cmp.Or(c.Excluded, "it lacks the taint "+taint)
	}
	return c
}

// canDecode reports whether at least one decode worker has all required taints.
func (m *servedModel) canDecode(c router.Constraints) bool {
	for _, rt := range m.workers {
		if _, lacks := c.Lacks(rt.Taints); !lacks {
			return true
		}
	}
	return len(c.Required) == 0
}
