package settle

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Goal is a topology that is waited for.
type Goal struct {
	Topo cluster.Topology
	// Trust says whether what workers of a node say counts; nil trusts all. What a
	// killed process left in the store looks alive until its lease expires.
	Trust func(nodeID string) bool
	// Pools are the only ones that count; nil means all.
	Pools []string
}

// Standing is the progress of a cluster towards a goal.
type Standing struct {
	Want, Ready int
	Workers     []workerStanding // that shall serve, by name
	Leaving     []cluster.Worker
	parked      []string // drained on somebody's order
	short       map[group]int
	surplus     int
}

// group is the workers of a role in a pool.
type group struct {
	pool string
	role cluster.Role
}

type workerStanding struct {
	cluster.Worker
	ready    bool
	unplaced bool
	// refused says why the worker goes on as it was.
	refused string
	// squeezed is set while a worker finds no room beside the one that it is to follow, in
	// whose place there would be.
	squeezed bool
}

// Judge compares a view with the goal.
func (g Goal) Judge(v client.View) Standing {
	s := Standing{short: map[group]int{}}
	assigned, out := map[group]int{}, map[group]int{} // out: parked
	ready := map[group]int{}
	for _, w := range v.Workers() {
		a, known := v.Assignments[w.Name]
		of := group{a.Pool, a.Role}
		if g.Pools != nil && (!known || !slices.Contains(g.Pools, a.Pool)) {
			continue
		}
		switch {
		case !known, a.Desire == cluster.DesireRemove: // what it said last goes with it
			s.Leaving = append(s.Leaving, w)
		case a.Desire == cluster.DesireDrain:
			s.parked = append(s.parked, w.Name)
			out[of]++
		default:
			ws := workerStanding{Worker: w, unplaced: a.Node == "" && a.Unplaced != ""}
			model, engine := g.Topo.In(a.Pool).Specs(a.Role)
			ws.ready = w.State.Serving() && w.Generation == a.Generation && w.InstanceID != 0 &&
				a.Model == model && a.Engine == engine && a.Restarts >= g.Topo.Restarts && (g.Trust == nil || g.Trust(a.Node))
			ws.refused = v.Refused(a)
			ws.squeezed = w.NoMemory && w.FitsAlone
			assigned[of]++
			if ws.ready {
				ready[of]++
			}
			s.Workers = append(s.Workers, ws)
		}
	}
	pools := g.Pools
	if pools == nil {
		pools = g.Topo.PoolNames()
	}
	for _, pool := range pools {
		t := g.Topo.In(pool)
		for _, r := range cluster.Roles {
			of := group{pool, r}
			want := max(t.Count(r)-out[of], 0)
			s.Want += want
			s.Ready += min(ready[of], want)
			s.short[of] = max(want-ready[of], 0)
			s.surplus += max(assigned[of]-want, 0)
			delete(assigned, of)
		}
	}
	for _, n := range assigned { // of pools that are gone
		s.surplus += n
	}
	return s
}

// Serving reports whether every wanted worker serves.
func (s Standing) Serving() bool {
	for _, n := range s.short {
		if n > 0 {
			return false
		}
	}
	return true
}

// Settled reports whether, beyond that, those that shall go are gone.
func (s Standing) Settled() bool {
	return s.Serving() && len(s.Leaving) == 0 && s.surplus == 0
}

// Missing says in words which workers are waited for.
func (s Standing) Missing() []string {
	var out []string
	for _, r := range cluster.Roles {
		n := 0
		for of, short := range s.short {
			if of.role == r {
				n += short
			}
		}
		if n > 0 {
			out = append(out, human.Plural(n, string(r)+" worker"))
		}
	}
	return out
}

// WaitsFor is a sentence about which workers are waited for, and which still leave.
func (s Standing) WaitsFor() string {
	missing := s.Missing()
	for _, w := range s.Leaving {
		missing = append(missing, w.Name+" to leave")
	}
	return "it waits for " + strings.Join(missing, ", ")
}

// Impossible is the error about a worker that has failed twice since the wait began: its
// agent goes on trying, but a third attempt will hardly do better. Or about one that could
// not change, and goes on as it was.
func (s Standing) Impossible(before map[string]int) (cluster.Worker, *exit.Failure) {
	for _, w := range s.Workers {
		if w.refused != "" {
			return w.Worker, &exit.Failure{Action: w.Name + " could not change", Err: errors.New(w.refused), Facts: s.GoOn(), Tries: []string{"dynctl logs " + w.Name}}
		}
	}
	for _, w := range s.Workers {
		if w.State != cluster.StateFailed || w.Restarts-before[w.Name] < 2 || w.squeezed {
			continue
		}
		return w.Worker, &exit.Failure{
			Action: w.Name + " did not start", Err: errors.New(w.Reason), Tries: []string{"dynctl logs " + w.Name},
			Facts: append(s.GoOn(), fmt.Sprintf("it failed %s; its agent goes on trying", human.Plural(w.Restarts, "time"))),
		}
	}
	return cluster.Worker{}, nil
}

// GoOn says which workers serve as they did before the order.
func (s Standing) GoOn() (facts []string) {
	var names []string
	for _, w := range s.Workers {
		if w.State.Serving() && !w.ready {
			names = append(names, w.Name)
		}
	}
	switch {
	case len(names) == 1:
		facts = []string{names[0] + " still serves, unchanged"}
	case len(names) > 1:
		facts = []string{human.Names(names) + " still serve, unchanged"}
	}
	return facts
}

// Reasons says what keeps workers from serving, as far as they tell.
func (s Standing) Reasons() (facts []string) {
	for _, w := range s.Workers {
		if !w.ready && w.Reason != "" {
			facts = append(facts, fmt.Sprintf("%s %s: %s", w.Name, w.State, w.Reason))
		}
	}
	return facts
}

// Homeless names a worker that no node can take, and why.
func (s Standing) Homeless() (who, reason string) {
	for _, w := range s.Workers {
		if w.unplaced {
			return w.Name, w.Reason
		}
	}
	return "", ""
}

// Follows reports whether a worker is the successor of another one.
func (s Standing) Follows(name string) bool {
	return slices.ContainsFunc(s.Workers, func(w workerStanding) bool { return w.Name == name && w.Replaces != "" })
}

// Restarts remembers how often workers had failed before.
func Restarts(v client.View) map[string]int {
	out := map[string]int{}
	for name, st := range v.Status {
		out[name] = st.Restarts
	}
	return out
}

// Rows shows the workers in the order in which they appeared; those that left stay
// as removed.
func (s Standing) Rows(l *Ledger, nodes []cluster.Node, known map[string]cluster.Worker, now time.Time) []progress.Row {
	rows := map[string]progress.Row{}
	for _, w := range s.Workers {
		known[w.Name] = w.Worker
		rows[w.Name] = l.Worker(w.Worker, nodes, w.ready, now)
	}
	for _, w := range s.Leaving {
		known[w.Name] = w
		rows[w.Name] = l.Leaving(w, nodes, false, now)
	}
	for _, name := range s.parked {
		w := known[name]
		w.Name = name
		rows[name] = progress.Row{Item: name, State: progress.Done, Word: "drained", Cells: []string{name, string(w.Role), "", "drained"}, Detail: "by order", Line: name + " is drained"}
		l.Note(name, true, now)
	}
	var out []progress.Row
	for _, name := range slices.Clone(l.Order) {
		if r, ok := rows[name]; ok {
			out = append(out, r)
		} else if w, ok := known[name]; ok {
			out = append(out, l.Leaving(w, nodes, true, now))
		}
	}
	return out
}
