package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

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
	Worker    string        `json:"worker"`
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
		w := known[name]
		as, assigned := v.Assignments[name]
		if !assigned {
			err := inv.noWorker(action+name, name, v)
			if len(names) > 1 {
				inv.report(inv.cmd, err)
			}
			orders, errs = append(orders, plannedOrder{Worker: name, Error: err.Error()}), append(errs, err)
			continue
		}
		o := plannedOrder{Worker: name, State: w.State, Sequences: w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait, Plan: plan(w, as.Desire)}
		orders, errs = append(orders, o), append(errs, nil)
		a.names, a.text = append(a.names, name), a.text+o.Plan+"\n"
	}
	a.data = orders
	if len(a.names) > 0 || !inv.prose() {
		if err := inv.answer(a); err != nil {
			return err
		}
	}
	return several(errs)
}

// planDrain says what a drain would do to a worker.
func planDrain(w cluster.Worker, desire cluster.Desire) string {
	n := w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait
	switch {
	case desire == cluster.DesireRemove:
		return w.Name + " is being removed already"
	case desire == cluster.DesireDrain:
		return fmt.Sprintf("would leave %s as it is: %s", w.Name, w.State)
	}
	return fmt.Sprintf("would drain %s: %s, %s to finish or hand over", w.Name, w.State, plural(n, "sequence"))
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
