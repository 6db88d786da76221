package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// scaleCommand changes how many workers there are.
type scaleCommand struct {
	prefill, decode int
	timeout         time.Duration
	noWait          bool
	dryRun          bool
	mode            string
}

func (f *factory) scale() *cobra.Command {
	o := &scaleCommand{}
	cmd := f.command(verb{
		use: "scale", short: "Change the number of prefill and decode workers", group: groupWorkers, changes: true,
		long: `What is not given stays as it is. Surplus workers drain before they go; the command
returns when all wanted workers serve and all others are gone.`,
		examples: []string{
			"dynctl scale --decode 4",
			"dynctl scale --prefill 2 --decode 6 --timeout 10m",
			"dynctl scale --prefill 0       # decode workers prefill for themselves",
		},
		see: []string{"dynctl up", "dynctl drain"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	countVar(fs, &o.prefill, "prefill", 0, "prefill workers (default: as many as now)")
	countVar(fs, &o.decode, "decode", 0, "decode workers (default: as many as now)")
	durationVar(fs, &o.timeout, "timeout", 5*time.Minute, "how long to wait")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the change is declared, with exit code 8")
	fs.BoolVar(&o.dryRun, "dry-run", false, "print what would change, and change nothing")
	progressVar(fs, &o.mode)
	fs.Lookup("prefill").DefValue, fs.Lookup("decode").DefValue = "", ""
	grouped(fs, "Placement", "prefill", "decode")
	grouped(fs, "Waiting", "timeout", "no-wait", "dry-run", "progress")
	return cmd
}

// scaleResult is the outcome as -o json prints it.
type scaleResult struct {
	Cluster    string `json:"cluster"`
	Prefill    int    `json:"prefill"`
	Decode     int    `json:"decode"`
	Generation int64  `json:"generation"`
	Converged  bool   `json:"converged"`
	DurationMS *int64 `json:"duration_ms"`
}

func (o *scaleCommand) run(ctx context.Context, inv *invocation, _ []string) error {
	fs := inv.cmd.Flags()
	if !fs.Changed("prefill") && !fs.Changed("decode") {
		return &usageError{text: "name what to change: --prefill, --decode or both"}
	}
	const action = "cannot scale"
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	before, err := c.Topology(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	if before == nil || before.Model.Name == "" {
		return &failure{action: action, err: fmt.Errorf("nothing was ever declared in cluster %s", c.Name), tries: []string{"dynctl up"}}
	}
	change := func(t *cluster.Topology, _ bool) error {
		if fs.Changed("prefill") {
			t.Prefill = o.prefill
		}
		if fs.Changed("decode") {
			t.Decode = o.decode
		}
		if err := t.Validate(); err != nil {
			return &usageError{text: "--" + err.Error()}
		}
		return nil
	}
	if o.dryRun {
		next := *before
		if err := change(&next, true); err != nil {
			return err
		}
		inv.say(fmt.Sprintf("would change %s from %s to %s", c.Name, shape(before.Prefill, before.Decode), shape(next.Prefill, next.Decode)))
		return nil
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	defer w.Close()
	begin := inv.env.Now()
	topo, err := c.Declare(ctx, func(t *cluster.Topology, exists bool) error {
		t.Reason = inv.reason("")
		return change(t, exists)
	})
	var usage *usageError
	switch {
	case errors.As(err, &usage):
		return err
	case err != nil:
		return &failure{action: action, err: err}
	case o.noWait:
		if err := o.answer(inv, c, topo, false, begin); err != nil {
			return err
		}
		return silent{exitAccepted}
	}
	wait := settling{operation: "scale", doing: "scaling", timeout: o.timeout, mode: o.mode}
	if err := wait.run(ctx, inv, c, w, topo); err != nil {
		return err
	}
	return o.answer(inv, c, topo, true, begin)
}

func (o *scaleCommand) answer(inv *invocation, c *client.Cluster, t cluster.Topology, converged bool, begin time.Time) error {
	took := inv.env.Now().Sub(begin)
	r := scaleResult{Cluster: c.Name, Prefill: t.Prefill, Decode: t.Decode, Generation: t.Generation, Converged: converged}
	text := fmt.Sprintf("%s changes to %s.\n", c.Name, shape(t.Prefill, t.Decode))
	if converged {
		ms := took.Milliseconds()
		r.DurationMS = &ms
		text = fmt.Sprintf("%s has %s after %s.\n", c.Name, shape(t.Prefill, t.Decode), duration(took))
	}
	return inv.answer(answer{data: r, text: text})
}
