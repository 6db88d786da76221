package planner

import "github.com/dynctl/dynctl/internal/cluster"

// Plan is how many workers a cluster has, and which prompts leave decode workers.
type Plan struct {
	Prefill int `json:"prefill"` // 0: aggregated, decode workers compute all prompts
	Decode  int `json:"decode"`
	// MaxLocalPrefill is disagg.max_local_prefill_tokens: decode workers compute prompts with
	// at most so many uncached tokens themselves.
	MaxLocalPrefill int `json:"max_local_prefill_tokens"`
}

// Aggregated reports whether decode workers compute all prompts.
func (p Plan) Aggregated() bool { return p.Prefill == 0 }

// Workers returns the workers of one role.
func (p Plan) Workers(role cluster.Role) int {
	if role == cluster.RolePrefill {
		return p.Prefill
	}
	return p.Decode
}

// With returns the plan with another number of workers of one role.
func (p Plan) With(role cluster.Role, workers int) Plan {
	if role == cluster.RolePrefill {
		p.Prefill = workers
	} else {
		p.Decode = workers
	}
	return p
}

// sameWorkers reports whether two plans have the same workers.
func sameWorkers(a, b Plan) bool { return a.Prefill == b.Prefill && a.Decode == b.Decode }

// String writes xPyD, as topologies are called.
func (p Plan) String() string { return cluster.PlanName(p.Prefill, p.Decode) }

// Roles are those that the planner scales.
var Roles = []cluster.Role{cluster.RolePrefill, cluster.RoleDecode}

// ActionKind is a way from one plan to another.
type ActionKind string

// Kinds of actions.
const (
	ActionStart ActionKind = "start" // a worker loads a model on a free device
	ActionFlip  ActionKind = "flip"  // a worker changes its role and keeps its weights
	ActionDrain ActionKind = "drain" // a worker hands over what it has and stops
)

// Action is one kind of change, for a number of workers.
type Action struct {
	Kind    ActionKind   `json:"kind"`
	Role    cluster.Role `json:"role"` // of the worker afterwards; of a drained one, before
	Workers int          `json:"workers"`
}

// Actions returns what leads from one plan to another: role flips as far as they go, then
// starts or drains. Workers flip only where they may, and both roles need the same number of devices.
func (c Config) Actions(from, to Plan) []Action {
	var out []Action
	delta := map[cluster.Role]int{}
	for _, r := range Roles {
		delta[r] = to.Workers(r) - from.Workers(r)
	}
	if !c.KeepRoles && c.Prefill.DevicesPerWorker == c.Decode.DevicesPerWorker {
		for i, r := range Roles {
			other := Roles[1-i]
			if n := min(delta[r], -delta[other]); n > 0 {
				out = append(out, Action{ActionFlip, r, n})
				delta[r] -= n
				delta[other] += n
			}
		}
	}
	for _, r := range Roles {
		if n := delta[r]; n > 0 {
			out = append(out, Action{ActionStart, r, n})
		} else if n < 0 {
			out = append(out, Action{ActionDrain, r, -n})
		}
	}
	return out
}

// count returns how many workers actions of a kind are about.
func count(actions []Action, kind ActionKind) int {
	n := 0
	for _, a := range actions {
		if a.Kind == kind {
			n += a.Workers
		}
	}
	return n
}
