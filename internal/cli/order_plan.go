package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// planned gives a command that orders workers about a --dry-run, which says what it would
// order and orders nothing.
func (f *factory) planned(cmd *cobra.Command, plan func(w cluster.Worker, desire cluster.Desire) string) *cobra.Command {
	var dry bool
	cmd.Flags().BoolVar(&dry, "dry-run", false, "print what would be ordered, and order nothing")
	grouped(cmd.Flags(), "Waiting", "dry-run")
	order := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if !dry {
			return order(cmd, args)
		}
		inv, err := f.begin(cmd, false)
		if err != nil {
			return err
		}
		defer inv.close()
		return inv.planOrders(cmd.Context(), args, plan)
	}
	return cmd
}

// plannedOrder is what would be ordered, as -o json prints it.
type plannedOrder struct {
	Worker    string        `json:"worker"` // empty for a node
	Node      string        `json:"node,omitempty"`
	State     cluster.State `json:"state"`
	Sequences int           `json:"sequences"`
	Plan      string        `json:"plan"`
	Error     string        `json:"error,omitempty"`
}

func (inv *invocation) planOrders(ctx context.Context, names []string, plan func(cluster.Worker, cluster.Desire) string) error {
	action := "cannot " + inv.cmd.Name() + " "
	c, v, err := inv.look(ctx, action+strings.Join(names, ", "))
	if err != nil {
		return err
	}
	known := map[string]cluster.Worker{}
	for _, w := range c.Workers(ctx, v) {
		known[w.Name] = w
	}
	orders := []plannedOrder{}
	a := answer{}
	var errs []error
	for _, name := range names {
		o, err := inv.planOrder(action+name, name, known, v, plan)
		if err != nil {
			if o.Error = err.Error(); len(names) > 1 {
				inv.report(inv.cmd, err)
			}
		} else {
			a.names, a.text = append(a.names, name), a.text+o.Plan+"\n"
		}
		orders, errs = append(orders, o), append(errs, err)
	}
	a.data = orders
	if len(a.names) > 0 || !inv.prose() {
		if err := inv.answer(a); err != nil {
			return err
		}
	}
	return several(errs)
}

// planOrder says what would be ordered about a worker, or a node.
func (inv *invocation) planOrder(action, name string, known map[string]cluster.Worker, v client.View, plan func(cluster.Worker, cluster.Desire) string) (plannedOrder, error) {
	if host, ok := strings.CutPrefix(name, nodePrefix); ok {
		o := plannedOrder{Node: host}
		node, err := inv.findNode(action, host, v)
		if err == nil {
			o.State, o.Sequences, o.Plan = planNode(inv.cmd.Name() == "drain", node, known, v)
		}
		return o, err
	}
	w := known[name]
	as, assigned := v.Assignments[name]
	if !assigned {
		return plannedOrder{Worker: name}, inv.noWorker(action, name, v)
	}
	return plannedOrder{Worker: name, State: w.State, Sequences: openSequences(w), Plan: plan(w, as.Desire)}, nil
}

func openSequences(w cluster.Worker) int {
	return w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait
}

// planNode says what draining a node would do, or resuming it.
func planNode(drain bool, node cluster.Node, known map[string]cluster.Worker, v client.View) (cluster.State, int, string) {
	var there []string
	sequences := 0
	for name, as := range v.Assignments {
		if as.Node == node.ID {
			there, sequences = append(there, name), sequences+openSequences(known[name])
		}
	}
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
		node.Name, plural(len(there), "worker"), strings.Join(there, ", "), plural(sequences, "sequence"))
}

// planDrain says what a drain would do to a worker.
func planDrain(w cluster.Worker, desire cluster.Desire) string {
	switch {
	case desire == cluster.DesireRemove:
		return w.Name + " is being removed already"
	case desire == cluster.DesireDrain:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	}
	return fmt.Sprintf("would drain %s: %s, %s to finish or hand over", w.Name, w.State, plural(openSequences(w), "sequence"))
}

// planResume says what a resume would do to a worker.
func planResume(w cluster.Worker, desire cluster.Desire) string {
	switch {
	case desire == cluster.DesireRemove:
		return w.Name + " is being removed: raise the scale instead"
	case desire == cluster.DesireRun:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	case w.State == cluster.StateDraining:
		return fmt.Sprintf("would take the drain of %s back: it goes on serving", w.Name)
	}
	return fmt.Sprintf("would start %s again: %s", w.Name, w.State)
}
