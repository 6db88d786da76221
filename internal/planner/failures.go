package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cluster"
)

// mostDoublings bounds how often the time without starts doubles: to 16 times the time-out of an action.
const mostDoublings = 4

// failures remembers starts that took longer than they may. After each, its role starts no worker for as long
// as a start may take, twice as long after the next one, until one succeeds.
type failures struct {
	late  []string // workers that are late now
	known map[lateStart]bool
	roles map[cluster.Role]failure
}

type lateStart struct {
	role   cluster.Role
	worker string
	since  time.Time
}

type failure struct {
	times  int
	until  time.Time
	worker string
}

// learn takes in the actions of an observation.
func (f *failures) learn(o Observation, timeout time.Duration) {
	if f.roles == nil {
		f.roles = map[cluster.Role]failure{}
	}
	for _, done := range o.Finished {
		if done.Kind == ActionStart {
			delete(f.roles, done.Role)
		}
	}
	known, failed := map[lateStart]bool{}, map[cluster.Role]string{}
	f.late = nil
	for _, a := range o.Pending {
		if a.Kind != ActionStart || o.End.Sub(a.Since) <= timeout {
			continue
		}
		if a.Worker != "" {
			f.late = append(f.late, a.Worker)
		}
		key := lateStart{a.Role, a.Worker, a.Since}
		if known[key] = true; !f.known[key] {
			failed[a.Role] = a.Worker
		}
	}
	f.known = known
	for role, worker := range failed {
		times := f.roles[role].times
		f.roles[role] = failure{times + 1, o.End.Add(timeout << min(times, mostDoublings)), worker}
	}
}

// backOff takes out of a decision the starts of roles whose last one failed. A decision that also takes
// workers away is not made at all: it was made for the workers that it adds.
func (p *Planner) backOff(now time.Time, d *Decision) {
	for _, a := range p.cfg.Actions(d.Current, d.Proposal) {
		f := p.failures.roles[a.Role]
		if a.Kind != ActionStart || !now.Before(f.until) {
			continue
		}
		rest := d.Proposal.With(a.Role, d.Proposal.Workers(a.Role)-a.Workers)
		if slices.ContainsFunc(p.cfg.Actions(d.Current, rest), func(a Action) bool { return a.Kind != ActionStart }) {
			rest = d.Current
		}
		d.Proposal, d.Refusal = rest, RefusedBackOff
		d.Detail = fmt.Sprintf("No %s worker is started for %s", a.Role, f.until.Sub(now).Round(time.Second))
		if f.worker != "" {
			d.Detail += ": " + f.worker + " did not get ready in " + p.cfg.ActionTimeout.String()
		}
		if rest == d.Current {
			return
		}
	}
}

// present returns the plan of the workers that serve, or start and are not overdue, and takes note of how many of
// them are attached.
func (p *Planner) present(o Observation) Plan {
	current := o.current()
	attached := map[cluster.Role]int{cluster.RolePrefill: o.Prefill.attached(), cluster.RoleDecode: o.Decode.attached()}
	for _, a := range o.Pending {
		n := current.Workers(a.Role)
		if a.Kind != ActionStart || o.End.Sub(a.Since) <= p.cfg.ActionTimeout || n <= o.ready().Workers(a.Role) {
			continue
		}
		current = current.With(a.Role, n-1)
		if slices.ContainsFunc(o.Role(a.Role).Workers, func(w Worker) bool { return w.Name == a.Worker && w.Attached }) {
			attached[a.Role]--
		}
	}
	p.cfg.Prefill.attached = min(attached[cluster.RolePrefill], current.Prefill)
	p.cfg.Decode.attached = min(attached[cluster.RoleDecode], current.Decode)
	return current
}
