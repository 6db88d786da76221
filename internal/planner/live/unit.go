package live

import (
	"cmp"
	"slices"

	"github.com/dynctl/dynctl/internal/cluster"
	"github.com/dynctl/dynctl/internal/planner"
)

// unit is what one planner is for: a pool and its model. Requests name models, so that one planner counts those of a
// model, and all workers that serve it.
type unit struct {
	pool  string // its name; the URL of the first of attached servers whose model nobody else serves
	model string // empty: all models, where nothing is declared
	// beside are other pools that serve the model: attached servers, and pools whose workers this planner counts
	// and does not change.
	beside []string
	// by is the pool whose planner plans for the model of this one, where it is another.
	by string
}

// plansFor says that a unit is planned by another one.
func (u unit) plansFor() string {
	if u.by == u.pool {
		return ""
	}
	return cluster.PoolWords(u.by) + " has the same model, and its planner counts the workers of both"
}

// units lists what is planned, the main pool first: each pool, and each model that only attached servers have.
func units(d *Declared) []unit {
	if d == nil {
		return []unit{{}}
	}
	t := d.whole
	var out []unit
	first := map[string]int{} // of the units, by model
	for _, pool := range t.PoolNames() {
		view := t.In(pool)
		m := view.Model.Name
		i, taken := first[m]
		if _, attached := t.AttachedAt(pool); attached && taken {
			out[i].beside = append(out[i].beside, pool)
			continue
		}
		if pool == "" && m == "" && view.Workers() == 0 && len(t.PoolNames()) > 1 {
			continue // other pools need no main one
		}
		u := unit{pool: pool, model: m, by: pool}
		if taken {
			u.by = out[i].pool
			out[i].beside = append(out[i].beside, pool)
		} else {
			first[m] = len(out)
		}
		out = append(out, u)
	}
	return out
}

// of returns what a unit sees of the cluster.
func (v View) of(u unit) View {
	v.Pool = u.pool
	status, all := v.Status, v.Assignments
	v.Status, v.Assignments = map[string]cluster.WorkerStatus{}, map[string]cluster.Assignment{}
	for name, a := range all {
		if !a.Role.HoldsKV() || a.Pool != u.pool && !slices.Contains(u.beside, a.Pool) {
			v.Shared = v.Shared || a.Role == cluster.RolePrefill && !a.Engine.External()
			continue
		}
		v.Assignments[name] = a
		if st, there := status[name]; there {
			v.Status[name] = st
		}
	}
	v.Declared = v.Declared.in(u.pool)
	return v
}

// own reports whether a worker is of the pool itself.
func (v View) own(a cluster.Assignment) bool { return a.Role.HoldsKV() && a.Pool == v.Pool }

// attached reports whether a worker is capacity that nobody starts or stops for this pool.
func (v View) attached(a cluster.Assignment) bool { return !v.own(a) || a.Engine.Server.Attached() }

// beside returns the workers of other pools that an observation counts.
func (v View) beside(o planner.Observation) (p planner.Plan) {
	for _, role := range planner.Roles {
		for _, w := range o.Role(role).Workers {
			if w.State == planner.WorkerReady && !v.own(v.Assignments[w.Name]) {
				p = p.With(role, p.Workers(role)+1)
			}
		}
	}
	return p
}

// plus and minus count workers beside those of a plan.
func plus(p, q planner.Plan) planner.Plan {
	p.Prefill, p.Decode = p.Prefill+q.Prefill, p.Decode+q.Decode
	return p
}

func minus(p, q planner.Plan) planner.Plan {
	p.Prefill, p.Decode = max(p.Prefill-q.Prefill, 0), max(p.Decode-q.Decode, 0)
	return p
}

// startable reports whether a worker of a role may be started: the pool with one more is one that can be declared.
func (d *Declared) startable(role cluster.Role) bool {
	if d == nil {
		return true
	}
	if _, attached := d.whole.AttachedAt(d.pool); attached {
		return false
	}
	t := d.Topology
	if _, e := t.Specs(role); e.Server.Attached() {
		return false
	}
	n, _ := t.Of(role)
	*n++
	t.Decode = max(t.Decode, 1)
	return *n > cluster.MaxWorkersPerRole || t.Validate() == nil
}

// flips reports whether a worker can take the other role without a restart: an engine of our own, with the same
// options for both roles.
func (d *Declared) flips() bool {
	if d == nil {
		return true
	}
	pm, pe := d.Specs(cluster.RolePrefill)
	dm, de := d.Specs(cluster.RoleDecode)
	return pm == dm && pe == de && !pe.External()
}

// fit returns the settings of a pool: those of the cluster, with what the pool overrides, and what its workers can
// do.
func (u unit) fit(cfg planner.Config, d *Declared) planner.Config {
	if u.by != u.pool {
		cfg.Mode = planner.ModeOff
	}
	if d == nil {
		return cfg
	}
	own := d.Planner
	if own.Mode == cluster.PlannerOff {
		cfg.Mode = planner.ModeOff
	}
	cfg.Target.TTFT, cfg.Target.ITL = cmp.Or(own.TTFT, cfg.Target.TTFT), cmp.Or(own.ITL, cfg.Target.ITL)
	cfg.Prefill.Min, cfg.Prefill.Max = cmp.Or(own.PrefillMin, cfg.Prefill.Min), cmp.Or(own.PrefillMax, cfg.Prefill.Max)
	cfg.Decode.Min, cfg.Decode.Max = cmp.Or(own.DecodeMin, cfg.Decode.Min), cmp.Or(own.DecodeMax, cfg.Decode.Max)
	cfg.Prefill.Fixed, cfg.Decode.Fixed = !d.startable(cluster.RolePrefill), !d.startable(cluster.RoleDecode)
	switch {
	case len(u.beside) == 0:
	case d.Decode > 0: // prefill workers and attached servers of other engines exchange nothing
		cfg.Decode.Own = 1
	default:
		cfg.Prefill.Fixed = true
	}
	if cfg.Prefill.Fixed { // where no prefill worker can be, decode workers compute all prompts
		cfg.Aggregate = true
	}
	cfg.KeepRoles = cfg.KeepRoles || !d.flips()
	return cfg
}

// external returns the engine of the first worker if all have servers of their own; empty if some have not.
func (v View) external() (backend string) {
	for _, name := range sortedNames(v.Assignments) {
		e := v.Assignments[name].Engine
		if !e.External() {
			return ""
		}
		backend = cmp.Or(backend, e.Backend)
	}
	return backend
}
