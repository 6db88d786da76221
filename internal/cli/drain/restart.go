package drain

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/human"
	"github.com/dynctl/dynctl/internal/cli/output"
	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/cli/settle"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// RestartOptions restart workers without losing requests.
type RestartOptions struct {
	command.Waiting

	Session *session.Session
	Targets []fleet.Target // workers
	Rolling bool           // all workers
	Limits  cluster.Rollout
}

// RestartCommand makes dynctl restart.
func RestartCommand(a *command.App) *cobra.Command {
	o := &RestartOptions{}
	cmd := a.Command(command.Verb{
		Use: "restart {<worker>... | --rolling}", Short: "Restart workers without losing a request", Group: command.GroupWorkers, Changes: true,
		Long: `A worker hands over what it has, gives everything back and starts again under its name.
With --rolling all workers do, first one of each role and then as many at a time as
rollout.max_unavailable says, or --max-unavailable for this time. One worker of each role,
and one of several on a node, serves at any time. The only one of its role gets a successor
first, which stays in its place; with --max-unavailable 0 each one does, at most --max-surge
at a time. Requests go on at other workers. ctrl-c stops watching only.`,
		Examples: []string{
			"dynctl restart --rolling",
			"dynctl restart worker-3",
			"dynctl restart --rolling --max-unavailable 10% --timeout 30m",
		},
		Args: command.Names("worker", true), Complete: complete.Workers(a),
		See: []string{"dynctl drain", "dynctl ps"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Targets = s, fleet.Targets(args)
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.Rolling, "rolling", false, "restart all workers, some of each role at a time")
	fs.StringVar(&o.Limits.MaxUnavailable, "max-unavailable", "", "with --rolling, workers of a role that may stop at a time, by number or share, like 4 or 25%; by default rollout.max_unavailable")
	fs.StringVar(&o.Limits.MaxSurge, "max-surge", "", "with --rolling, successors of a role at a time where workers get one; by default rollout.max_surge")
	o.AddFlags(fs, 10*time.Minute, "how long to wait", "the order is given")
	return cmd
}

// restartResult is the outcome as -o json prints it.
type restartResult struct {
	Workers    []string `json:"workers"`
	DurationMS *int64   `json:"duration_ms"`
}

// Run restarts the workers and waits until they serve.
func (o *RestartOptions) Run(ctx context.Context) error {
	switch {
	case o.Rolling && len(o.Targets) > 0:
		return &exit.UsageError{Text: "--rolling restarts all workers: name none"}
	case !o.Rolling && len(o.Targets) == 0:
		return &exit.UsageError{Text: "name workers, or --rolling for all of them"}
	case !o.Rolling && o.Limits != (cluster.Rollout{}):
		return &exit.UsageError{Text: "--max-unavailable and --max-surge are for --rolling: workers that are named restart one after the other"}
	}
	for flag, text := range map[string]string{"--max-unavailable": o.Limits.MaxUnavailable, "--max-surge": o.Limits.MaxSurge} {
		if err := cluster.CheckRollout(text); err != nil {
			return &exit.UsageError{Text: flag + ": " + err.Error()}
		}
	}
	what := fleet.List(o.Targets)
	if o.Rolling {
		what = "all workers"
	}
	action := "cannot restart " + what
	c, w, err := o.Session.Watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	fleet.Resolve(w.View(), o.Targets)
	begin := o.Session.Out.Now()
	if o.Rolling {
		err = o.all(ctx, c, w)
	} else {
		err = o.some(ctx, c, w)
	}
	if err != nil {
		return err
	}
	res := restartResult{Workers: fleet.Names(o.Targets)}
	text := what + " restart.\n"
	if o.Rolling {
		res.Workers = []string{}
		for _, wk := range w.View().Workers() {
			res.Workers = append(res.Workers, wk.Name)
		}
	}
	if !o.NoWait {
		took := o.Session.Out.Now().Sub(begin)
		ms := took.Milliseconds()
		res.DurationMS = &ms
		text = fmt.Sprintf("%s restarted in %s.\n", what, human.Duration(took))
	}
	if err := o.Session.Out.Answer(output.Answer{Data: res, Names: res.Workers, Text: text}); err != nil || !o.NoWait {
		return err
	}
	return exit.Silent{Code: exit.Accepted}
}

// some restarts workers by name, one after the other.
func (o *RestartOptions) some(ctx context.Context, c *client.Cluster, w *client.Watch) error {
	names := fleet.Names(o.Targets)
	for _, name := range names { // all of them, before anything is changed
		if _, err := fleet.Worker(o.Session, "cannot restart "+name, name, w.View()); err != nil {
			return err
		}
	}
	for _, name := range names {
		fleet.LastServing(o.Session, name, w.View())
		generation, err := c.Restart(ctx, name)
		if err != nil {
			return &exit.Failure{Action: "cannot restart " + name, Err: err}
		}
		if o.NoWait {
			continue
		}
		var last cluster.Worker
		done := func(v client.View) (bool, error) {
			last = v.Worker(name)
			if a, ok := v.Assignments[name]; !ok || a.Desire != cluster.DesireRun {
				return false, &exit.Failure{Action: name + " did not restart", Err: errors.New("it was drained or removed meanwhile")}
			} else if a.Refused.Why != "" && a.Generation > generation {
				return false, &exit.Failure{Action: name + " did not restart", Err: errors.New(a.Refused.Why), Facts: []string{"it still serves, unchanged"}, Tries: []string{"dynctl logs " + name}}
			}
			return last.State.Serving() && last.Generation >= generation, nil
		}
		rows := func(led *settle.Ledger, v client.View, over bool) []progress.Row {
			r := led.Worker(last, v.Nodes, over, o.Session.Out.Now())
			if last.Drain != nil && last.State == cluster.StateDraining {
				r.Detail = fleet.DrainText(last)
			}
			return []progress.Row{r}
		}
		if err := o.wait(ctx, w, name, done, rows, func() string { return name + " is " + human.State(last) }); err != nil {
			return err
		}
	}
	return nil
}

// all declares a restart of all workers and waits until it is through.
func (o *RestartOptions) all(ctx context.Context, c *client.Cluster, w *client.Watch) error {
	const action = "cannot restart all workers"
	topo, err := c.RestartAll(ctx, o.Limits)
	if err != nil {
		return &exit.Failure{Action: action, Err: err}
	}
	if o.NoWait {
		return nil
	}
	g, known, before := settle.Goal{Topo: topo}, map[string]cluster.Worker{}, settle.Restarts(w.View())
	var s settle.Standing
	done := func(v client.View) (bool, error) {
		if t := v.Topology; t != nil && t.Restarts > topo.Restarts {
			return false, &exit.Failure{Action: "cannot go on restarting", Err: errors.New("another restart was ordered meanwhile"), Tries: []string{"dynctl ps"}}
		} else if t != nil && t.Generation > topo.Generation { // scaled meanwhile, say
			g.Topo = *t
		}
		s = g.Judge(v)
		if _, f := s.Impossible(before); f != nil {
			return false, f
		}
		return v.Topology != nil && v.Topology.Generation >= topo.Generation && s.Settled(), nil
	}
	rows := func(led *settle.Ledger, v client.View, _ bool) []progress.Row {
		return s.Rows(led, v.Nodes, known, o.Session.Out.Now())
	}
	return o.wait(ctx, w, c.Name, done, rows, func() string {
		return s.WaitsFor()
	})
}

// wait watches until done, and shows rows meanwhile.
func (o *RestartOptions) wait(ctx context.Context, w *client.Watch, subject string,
	done func(client.View) (bool, error), rows func(*settle.Ledger, client.View, bool) []progress.Row, standing func() string,
) error {
	led, before := settle.NewLedger(o.Session.Out.Now()), settle.Restarts(w.View())
	watching := settle.Watching{
		Out: o.Session.Out, Progress: o.Progress, Timeout: o.Timeout,
		Stopped: exit.Stopped{Text: "stopped watching: " + subject + " goes on restarting", Tries: []string{"dynctl ps"}},
		Late: func() *exit.Failure {
			return &exit.Failure{
				Action: fmt.Sprintf("%s has not restarted after %s", subject, human.Duration(o.Timeout)), Err: errors.New(standing()),
				Facts: []string{"the work goes on"}, Tries: []string{"dynctl ps"},
			}
		},
	}
	return watching.Until(ctx, w, func(v client.View) (progress.Screen, bool, error) {
		over, err := done(v)
		s := progress.Screen{Operation: "restart", Subject: subject, Title: subject + "  restarting", Rows: rows(led, v, over), Footer: settle.Footer}
		for _, wk := range v.Workers() {
			if err == nil && !over && wk.State == cluster.StateFailed && wk.Restarts-before[wk.Name] >= 2 {
				err = fleet.StartFailure(wk)
			}
		}
		return s, over, err
	})
}
