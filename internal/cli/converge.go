package cli

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// goal is a topology that is waited for.
type goal struct {
	topo cluster.Topology
	// trust says whether what workers of a node say counts; nil trusts all. What a
	// killed process left in the store looks alive until its lease expires.
	trust func(nodeID string) bool
}

// standing is how far a cluster is from a goal.
type standing struct {
	want, ready int
	workers     []workerStanding // that shall serve, by name
	leaving     []cluster.Worker
	parked      []string // drained on somebody's order
	short       map[cluster.Role]int
	surplus     int
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

// judge compares a view with the goal.
func (g goal) judge(v client.View) standing {
	s := standing{short: map[cluster.Role]int{}}
	assigned, out := map[cluster.Role]int{}, map[cluster.Role]int{} // out: parked
	ready := map[cluster.Role]int{}
	for _, w := range v.Workers() {
		a, known := v.Assignments[w.Name]
		switch {
		case !known, a.Desire == cluster.DesireRemove: // what it said last goes with it
			s.leaving = append(s.leaving, w)
		case a.Desire == cluster.DesireDrain:
			s.parked = append(s.parked, w.Name)
			out[a.Role]++
		default:
			ws := workerStanding{Worker: w, unplaced: a.Node == "" && a.Unplaced != ""}
			model, engine := g.topo.Specs(a.Role)
			ws.ready = w.State.Serving() && w.Generation == a.Generation && w.InstanceID != 0 &&
				a.Model == model && a.Engine == engine && a.Restarts >= g.topo.Restarts && (g.trust == nil || g.trust(a.Node))
			ws.refused = v.Refused(a)
			ws.squeezed = w.NoMemory && w.FitsAlone
			assigned[a.Role]++
			if ws.ready {
				ready[a.Role]++
			}
			s.workers = append(s.workers, ws)
		}
	}
	for _, r := range cluster.Roles {
		want := max(g.topo.Count(r)-out[r], 0)
		s.want += want
		s.ready += min(ready[r], want)
		s.short[r] = max(want-ready[r], 0)
		s.surplus += max(assigned[r]-want, 0)
	}
	return s
}

// serving reports whether every wanted worker serves.
func (s standing) serving() bool {
	for _, n := range s.short {
		if n > 0 {
			return false
		}
	}
	return true
}

// settled reports whether, beyond that, those that shall go are gone.
func (s standing) settled() bool {
	return s.serving() && len(s.leaving) == 0 && s.surplus == 0
}

// missing says in words which workers are waited for.
func (s standing) missing() []string {
	var out []string
	for _, r := range cluster.Roles {
		if n := s.short[r]; n > 0 {
			out = append(out, plural(n, string(r)+" worker"))
		}
	}
	return out
}

// impossible is the error about a worker that has failed twice since the wait began: its
// agent goes on trying, but a third attempt will hardly do better. Or about one that could
// not change, and goes on as it was.
func (s standing) impossible(before map[string]int) (cluster.Worker, *failure) {
	for _, w := range s.workers {
		if w.refused != "" {
			return w.Worker, &failure{action: w.Name + " could not change", err: errors.New(w.refused), facts: s.goOn(), tries: []string{"dynctl logs " + w.Name}}
		}
	}
	for _, w := range s.workers {
		if w.State != cluster.StateFailed || w.Restarts-before[w.Name] < 2 || w.squeezed {
			continue
		}
		return w.Worker, &failure{
			action: w.Name + " did not start", err: errors.New(w.Reason), tries: []string{"dynctl logs " + w.Name},
			facts: append(s.goOn(), fmt.Sprintf("it failed %s; its agent goes on trying", plural(w.Restarts, "time"))),
		}
	}
	return cluster.Worker{}, nil
}

// goOn says which workers serve as they did before the order.
func (s standing) goOn() (facts []string) {
	var names []string
	for _, w := range s.workers {
		if w.State.Serving() && !w.ready {
			names = append(names, w.Name)
		}
	}
	switch {
	case len(names) == 1:
		facts = []string{names[0] + " serves on as it was"}
	case len(names) > 1:
		facts = []string{nameList(names) + " serve on as they were"}
	}
	return facts
}

// homeless names a worker that no node can take, and why.
func (s standing) homeless() (who, reason string) {
	for _, w := range s.workers {
		if w.unplaced {
			return w.Name, w.Reason
		}
	}
	return "", ""
}

// follows reports whether a worker is the successor of another one.
func (s standing) follows(name string) bool {
	return slices.ContainsFunc(s.workers, func(w workerStanding) bool { return w.Name == name && w.Replaces != "" })
}

// restarts remembers how often workers had failed before.
func restarts(v client.View) map[string]int {
	out := map[string]int{}
	for name, st := range v.Status {
		out[name] = st.Restarts
	}
	return out
}

// rows shows the workers in the order in which they appeared; those that left stay
// as removed.
func (s standing) rows(l *ledger, nodes []cluster.Node, known map[string]cluster.Worker, now time.Time) []progress.Row {
	rows := map[string]progress.Row{}
	for _, w := range s.workers {
		known[w.Name] = w.Worker
		rows[w.Name] = l.worker(w.Worker, nodes, w.ready, now)
	}
	for _, w := range s.leaving {
		known[w.Name] = w
		rows[w.Name] = l.leaving(w, nodes, false, now)
	}
	for _, name := range s.parked {
		w := known[name]
		w.Name = name
		rows[name] = progress.Row{Item: name, State: progress.Done, Word: "drained", Cells: []string{name, string(w.Role), "", "drained"}, Detail: "on somebody's order", Line: name + " is drained"}
		l.note(name, true, now)
	}
	var out []progress.Row
	for _, name := range slices.Clone(l.order) {
		if r, ok := rows[name]; ok {
			out = append(out, r)
		} else if w, ok := known[name]; ok {
			out = append(out, l.leaving(w, nodes, true, now))
		}
	}
	return out
}
