package simulation

import (
	"cmp"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
	autoscalers "github.com/dynctl/dynctl/internal/lab/planner"
	"github.com/dynctl/dynctl/internal/planner"
	"github.com/dynctl/dynctl/internal/profile"
	"github.com/dynctl/dynctl/internal/simulate"
)

// Evaluator returns the planner's evaluator for workers whose profiles are known. It takes the handover of a
// prompt that fills a step.
func Evaluator(p profile.Performance, target planner.Target, leastDelay bool) planner.Queueing {
	chunk := p.Decode.Limits.MaxBatchTokens
	return planner.Queueing{Performance: p, Target: target, Chunk: chunk, LeastDelay: leastDelay, Handover: profile.Seconds(p.Handover(float64(chunk)))}
}

// Autoscaler lets a policy decide how many workers a simulation has. It is a simulate.Controller.
type Autoscaler struct {
	Policy autoscalers.Policy
	Config planner.Config // whose LoadInterval is the simulation's Tick
	// MaxLocalPrefill is disagg.max_local_prefill_tokens of the simulation. Policies do not change it here.
	MaxLocalPrefill int

	// Held is the most devices that workers had at the end of a window, Breaches the number of windows
	// at whose end they had more than the budget.
	Held, Breaches int
	// Changes are the plans that differ from what was there.
	Changes []Change
}

// Change is a plan that a policy ordered.
type Change struct {
	At       time.Duration
	From, To planner.Plan
}

// Tick implements simulate.Controller.
func (a *Autoscaler) Tick(now time.Duration, o *simulate.Observation) []simulate.Action {
	held := 0
	for _, w := range o.Workers {
		held += a.Config.Role(w.Role).DevicesPerWorker
	}
	a.Held = max(a.Held, held)
	if held > a.Config.Devices {
		a.Breaches++
	}
	plan := a.Policy.Decide(clock(now), a.observation(o))
	from := planner.Plan{Prefill: o.Prefill, Decode: o.Decode, MaxLocalPrefill: plan.MaxLocalPrefill}
	if plan == from {
		return nil
	}
	a.Changes = append(a.Changes, Change{now, from, plan})
	return a.actions(from, plan, o)
}

func clock(t time.Duration) time.Time { return autoscalers.Clock(0).Add(t) }

// observation is what the planner knows of a real cluster, too.
func (a *Autoscaler) observation(o *simulate.Observation) planner.Observation {
	out := planner.Observation{
		Start: clock(o.From), End: clock(o.To), Arrived: len(o.Arrivals), MaxLocalPrefill: a.MaxLocalPrefill,
		Prefill: planner.RoleState{Queued: o.Queue.Prefill},
		Decode:  planner.RoleState{Queued: o.Queue.Frontend, OldestAge: o.Queue.Oldest},
	}
	for _, e := range o.Ends {
		out.Requests = append(out.Requests, planner.Request{Length: planner.Length{ISL: e.Input, Cached: e.Cached, OSL: e.Output}, TTFT: e.TTFT, ITL: e.ITL})
	}
	for _, c := range o.Changes {
		out.Finished = append(out.Finished, planner.Duration{Kind: kinds[c.Kind], Took: c.Took})
	}
	for _, w := range o.Workers {
		seen, role, action := worker(w)
		if action != "" {
			out.Pending = append(out.Pending, planner.Pending{Kind: action, Role: role, Since: clock(w.Ordered)})
		}
		state := &out.Decode
		if role == cluster.RolePrefill {
			state = &out.Prefill
		}
		state.Workers = append(state.Workers, seen)
	}
	return out
}

var kinds = map[simulate.ChangeKind]planner.ActionKind{
	simulate.Started: planner.ActionStart, simulate.Flipped: planner.ActionFlip, simulate.Drained: planner.ActionDrain,
}

// worker returns a worker as the planner sees it, in the role that it has or will have, and its
// unfinished action. One that changes its role starts in the new one from the order on.
func worker(w simulate.WorkerView) (planner.Worker, cluster.Role, planner.ActionKind) {
	out := planner.Worker{
		Name: w.Name, QueuedTokens: w.PrefillTokens, KVTokens: w.StepKV, Step: w.Step,
		PromptTokens: w.PromptTokens, PromptBusy: w.PromptBusy,
	}
	switch {
	case w.State == simulate.Ready:
		out.State = planner.WorkerReady
		return out, w.Role, ""
	case w.Flips && w.State == simulate.Draining:
		out.State = planner.WorkerStarting
		return out, other(w.Role), planner.ActionFlip
	case w.Flips:
		out.State = planner.WorkerStarting
		return out, w.Role, planner.ActionFlip
	case w.State == simulate.Starting:
		out.State = planner.WorkerStarting
		return out, w.Role, planner.ActionStart
	}
	out.State = planner.WorkerDraining
	return out, w.Role, planner.ActionDrain
}

func other(role cluster.Role) cluster.Role {
	if role == cluster.RolePrefill {
		return cluster.RoleDecode
	}
	return cluster.RolePrefill
}

// actions leads from one plan to another. Of the workers that change their role it names those with least to
// do. Where fewer serve than should change, the others start and drain.
func (a *Autoscaler) actions(from, to planner.Plan, o *simulate.Observation) []simulate.Action {
	var out []simulate.Action
	for _, act := range a.Config.Actions(from, to) {
		if act.Kind != planner.ActionFlip {
			continue
		}
		var ready []simulate.WorkerView
		for _, w := range o.Workers {
			if w.Role != act.Role && w.State == simulate.Ready {
				ready = append(ready, w)
			}
		}
		slices.SortStableFunc(ready, func(x, y simulate.WorkerView) int {
			return cmp.Or(cmp.Compare(x.Running+x.Waiting, y.Running+y.Waiting), cmp.Compare(x.StepKV, y.StepKV))
		})
		for _, w := range ready[:min(act.Workers, len(ready))] {
			out = append(out, simulate.Action{Role: act.Role, Flip: w.Name})
			from = from.With(act.Role, from.Workers(act.Role)+1).With(w.Role, from.Workers(w.Role)-1)
		}
	}
	for _, role := range planner.Roles {
		if to.Workers(role) != from.Workers(role) {
			out = append(out, simulate.Action{Role: role, Workers: to.Workers(role)})
		}
	}
	return out
}
