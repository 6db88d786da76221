package drain

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// plannedOrder is an order that --dry-run would give, as -o json prints it.
type plannedOrder struct {
	Worker    string        `json:"worker"` // empty for a node
	Node      string        `json:"node,omitempty"`
	State     cluster.State `json:"state"`
	Sequences int           `json:"sequences"` // images count as such
	Plan      string        `json:"plan"`
	Error     string        `json:"error,omitempty"`
}

// planOrders says what an order would do, and orders nothing. plan says it of a worker.
func planOrders(ctx context.Context, s *session.Session, verb string, targets []fleet.Target, plan func(cluster.Worker, cluster.Assignment) string) error {
	c, v, err := s.Look(ctx, "cannot "+verb+" "+fleet.List(targets))
	if err != nil {
		return err
	}
	fleet.Resolve(v, targets)
	known := map[string]cluster.Worker{}
	for _, w := range c.Workers(ctx, v) {
		known[w.Name] = w
	}
	planned := []plannedOrder{}
	a := output.Answer{}
	var errs []error
	for _, t := range targets {
		o, err := planOrder(s, verb, t, known, v, plan)
		if err != nil {
			if o.Error = err.Error(); len(targets) > 1 {
				s.Out.Report(err)
			}
		} else {
			a.Names, a.Text = append(a.Names, t.String()), a.Text+o.Plan+"\n"
		}
		planned, errs = append(planned, o), append(errs, err)
	}
	a.Data = planned
	if len(a.Names) > 0 || !s.Out.Prose() {
		if err := s.Out.Answer(a); err != nil {
			return err
		}
	}
	return exit.Several(errs)
}

// planOrder says what would be ordered about a worker, or a node.
func planOrder(s *session.Session, verb string, t fleet.Target, known map[string]cluster.Worker, v client.View, plan func(cluster.Worker, cluster.Assignment) string) (plannedOrder, error) {
	action := "cannot " + verb + " " + t.String()
	if t.Node {
		o := plannedOrder{Node: t.Name}
		node, err := fleet.Node(s, action, t.Name, v)
		if err == nil {
			o.State, o.Sequences, o.Plan = planNode(verb == "drain", node, known, v)
		}
		return o, err
	}
	o := plannedOrder{Worker: t.Name}
	a, err := fleet.Worker(s, action, t.Name, v)
	if err == nil {
		w := known[t.Name]
		o.State, o.Sequences, o.Plan = w.State, fleet.OpenSequences(w), plan(w, a)
	}
	return o, err
}

// planNode says what draining a node would do, or resuming it.
func planNode(drain bool, node cluster.Node, known map[string]cluster.Worker, v client.View) (cluster.State, int, string) {
	var there []string
	work := fleet.Work{}
	for name, as := range v.Assignments {
		if as.Node == node.ID {
			there = append(there, name)
			work.Add(as.Role, fleet.OpenSequences(known[name]))
		}
	}
	sequences := work.Sum()
	slices.SortFunc(there, cluster.CompareNames)
	state := cluster.StateReady
	_, drained := v.Cordons[node.ID]
	if drained {
		if state = cluster.StateDraining; len(there) == 0 {
			state = cluster.StateDrained
		}
	}
	switch {
	case drain == drained:
		return state, sequences, fmt.Sprintf("would leave %s as it is: %s", node.Name, state)
	case !drain:
		return state, sequences, node.Name + " would take workers again"
	case len(there) == 0:
		return state, 0, fmt.Sprintf("would drain %s: no workers there", node.Name)
	}
	return state, sequences, fmt.Sprintf("would drain %s: %s (%s) would leave, %s to finish or hand over",
		node.Name, human.Plural(len(there), "worker"), strings.Join(there, ", "), work.String())
}

// planDrain says what a drain would do to a worker.
func planDrain(w cluster.Worker, a cluster.Assignment) string {
	switch {
	case a.Desire == cluster.DesireRemove:
		return w.Name + " is being removed already"
	case a.SleepLevel() > 0:
		return fmt.Sprintf("would end %s: %s", w.Name, w.State)
	case a.Desire == cluster.DesireDrain:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	}
	end := "finish or hand over"
	if !w.Role.HoldsKV() {
		end = "finish"
	}
	return fmt.Sprintf("would drain %s: %s, %s to %s", w.Name, w.State, human.Plural(fleet.OpenSequences(w), w.Role.Unit()), end)
}

// planResume says what a resume would do to a worker.
func planResume(w cluster.Worker, a cluster.Assignment) string {
	switch {
	case a.Desire == cluster.DesireRemove:
		return w.Name + " is being removed: raise the scale instead"
	case w.State == cluster.StateSleeping:
		return fmt.Sprintf("would wake the server of %s", w.Name)
	case a.Desire == cluster.DesireRun:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	case w.State == cluster.StateDraining:
		return fmt.Sprintf("would take the drain of %s back: it goes on serving", w.Name)
	}
	return fmt.Sprintf("would start %s again: %s", w.Name, w.State)
}
