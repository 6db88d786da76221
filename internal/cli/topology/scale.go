package topology

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/declare"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// ScaleOptions changes how many workers there are.
type ScaleOptions struct {
	command.Waiting

	Session *session.Session

	Pool                    string
	Prefill, Decode, Encode int
	DryRun                  bool
}

// ScaleCommand makes dynctl scale.
func ScaleCommand(a *command.App) *cobra.Command {
	o := &ScaleOptions{}
	cmd := a.Command(command.Verb{
		Use: "scale", Short: "Change the numbers of workers", Group: command.GroupWorkers, Changes: true,
		Long: `Roles without a flag keep their number. Surplus workers drain before they go; the command
returns when all wanted workers serve and all others are gone. Attached servers are not
counted: dynctl attach and dynctl detach.`,
		Examples: []string{
			"dynctl scale --decode 4",
			"dynctl scale --prefill 2 --decode 6 --encode 2 --timeout 10m",
			"dynctl scale --pool small --prefill 0   # decode workers of that pool do both",
		},
		See: []string{"dynctl up", "dynctl drain"},
		Options: func(s *session.Session, _ []string) command.Runner {
			o.Session = s
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Count(fs, &o.Prefill, "prefill", 0, "prefill workers (default: as many as now)")
	command.Count(fs, &o.Decode, "decode", 0, "decode workers (default: as many as now)")
	command.Count(fs, &o.Encode, "encode", 0, "encode workers (default: as many as now)")
	fs.StringVar(&o.Pool, "pool", "", "pool of the topology whose workers they are (default: the main one)")
	_ = cmd.RegisterFlagCompletionFunc("pool", complete.Pools(a)) // fails for unknown flags only
	o.AddFlags(fs, 5*time.Minute, "how long to wait", "the change is declared")
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would change, and change nothing")
	fs.Lookup("prefill").DefValue, fs.Lookup("decode").DefValue, fs.Lookup("encode").DefValue = "", "", ""
	command.Grouped(fs, "Placement", "prefill", "decode", "encode", "pool")
	command.Grouped(fs, "Waiting", "dry-run")
	return cmd
}

// scaleResult is the outcome as -o json prints it.
type scaleResult struct {
	Cluster    string `json:"cluster"`
	Pool       string `json:"pool,omitempty"`
	Prefill    int    `json:"prefill"`
	Decode     int    `json:"decode"`
	Encode     int    `json:"encode"`
	Generation int64  `json:"generation"`
	Converged  bool   `json:"converged"`
	DurationMS *int64 `json:"duration_ms"`
}

// Run declares the numbers and waits until workers are as declared.
func (o *ScaleOptions) Run(ctx context.Context) error {
	fs := o.Session.Flags
	workers := cluster.Counts{}
	for role, n := range map[cluster.Role]int{cluster.RolePrefill: o.Prefill, cluster.RoleDecode: o.Decode, cluster.RoleEncode: o.Encode} {
		if fs.Changed(string(role)) {
			workers[role] = n
		}
	}
	if len(workers) == 0 {
		return &exit.UsageError{Text: "name what to change: --prefill, --decode, --encode"}
	}
	const action = "cannot scale"
	c, err := o.Session.Connect(ctx, action)
	if err != nil {
		return err
	}
	before, err := c.Topology(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if before == nil || o.Pool == "" && before.Model.Name == "" {
		return &exit.Failure{Action: action, Err: fmt.Errorf("nothing was ever declared in cluster %s", c.Name), Tries: []string{"dynctl up"}}
	}
	next := *before
	switch err := client.Scaled(&next, o.Pool, workers); {
	case errors.Is(err, client.ErrNoPool):
		return &exit.Failure{Action: action, Err: err, Facts: []string{"pools: " + human.OrDash(strings.Join(slices.Sorted(maps.Keys(before.Pools)), ", "))}, Tries: []string{"dynctl get topology -o yaml"}}
	case err != nil:
		return &exit.UsageError{Text: "--" + err.Error()}
	}
	if err := c.CheckSight(ctx, *before, next); err != nil {
		return &exit.Failure{Action: action, Err: err, Tries: []string{"dynctl up --encode " + strconv.Itoa(next.Encode) + " --model DIRECTORY"}}
	}
	if o.DryRun {
		o.Session.Out.Say(fmt.Sprintf("would change %s from %s to %s", c.Name, human.Shape(*before), human.Shape(next)))
		return nil
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	defer w.Close()
	begin := o.Session.Out.Now()
	topo, err := c.Scale(ctx, o.Pool, workers, declare.Reason(o.Session, ""))
	switch {
	case err != nil:
		return &exit.Failure{Action: action, Err: err}
	case o.NoWait:
		if err := o.answer(c, topo, false, begin); err != nil {
			return err
		}
		return exit.Silent{Code: exit.Accepted}
	}
	wait := settle.Wait{Out: o.Session.Out, Operation: "scale", Doing: "scaling", Timeout: o.Timeout, Progress: o.Progress}
	if err := wait.Run(ctx, c, w, topo); err != nil {
		return err
	}
	return o.answer(c, topo, true, begin)
}

func (o *ScaleOptions) answer(c *client.Cluster, t cluster.Topology, converged bool, begin time.Time) error {
	took := o.Session.Out.Now().Sub(begin)
	of := t.In(o.Pool)
	r := scaleResult{Cluster: c.Name, Pool: o.Pool, Prefill: of.Prefill, Decode: of.Decode, Encode: of.Encode, Generation: t.Generation, Converged: converged}
	text := fmt.Sprintf("%s changes to %s.\n", c.Name, human.Shape(t))
	if converged {
		ms := took.Milliseconds()
		r.DurationMS = &ms
		text = fmt.Sprintf("%s has %s after %s.\n", c.Name, human.Shape(t), human.Duration(took))
	}
	return o.Session.Out.Answer(output.Answer{Data: r, Text: text})
}
