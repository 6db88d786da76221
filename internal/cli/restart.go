package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/progress"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// restartCommand restarts workers without losing requests.
type restartCommand struct {
	rolling bool
	timeout time.Duration
	noWait  bool
	mode    string
}

func (f *factory) restart() *cobra.Command {
	o := &restartCommand{}
	cmd := f.command(verb{
		use: "restart {<worker>... | --rolling}", short: "Restart workers without losing a request", group: groupWorkers, changes: true,
		long: `A worker hands over what it has, gives everything back and starts again under its name.
With --rolling all workers do, one of each role at a time while the others serve; the only
one of its role gets a successor first, which stays in its place. Requests go on at other
workers. ctrl-c stops watching only.`,
		examples: []string{
			"dynctl restart --rolling",
			"dynctl restart worker-3",
			"dynctl restart --rolling --timeout 30m --no-wait",
		},
		args: names("worker", true), complete: f.completeWorkers,
		see: []string{"dynctl drain", "dynctl ps"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	fs.BoolVar(&o.rolling, "rolling", false, "restart all workers, one of each role at a time")
	durationVar(fs, &o.timeout, "timeout", 10*time.Minute, "how long to wait")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the order is given, with exit code 8")
	progressVar(fs, &o.mode)
	grouped(fs, "Waiting", "timeout", "no-wait", "progress")
	return cmd
}

// restartResult is the outcome as -o json prints it.
type restartResult struct {
	Workers    []string `json:"workers"`
	DurationMS *int64   `json:"duration_ms"`
}

func (o *restartCommand) run(ctx context.Context, inv *invocation, args []string) error {
	switch {
	case o.rolling && len(args) > 0:
		return &usageError{text: "--rolling restarts all workers: name none"}
	case !o.rolling && len(args) == 0:
		return &usageError{text: "name workers, or --rolling for all of them"}
	}
	what := strings.Join(args, ", ")
	if o.rolling {
		what = "all workers"
	}
	action := "cannot restart " + what
	c, w, err := inv.watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	begin := inv.env.Now()
	if o.rolling {
		err = o.all(ctx, inv, c, w)
	} else {
		err = o.some(ctx, inv, c, w, args)
	}
	if err != nil {
		return err
	}
	res := restartResult{Workers: args}
	text := what + " restart.\n"
	if o.rolling {
		res.Workers = []string{}
		for _, wk := range w.View().Workers() {
			res.Workers = append(res.Workers, wk.Name)
		}
	}
	if !o.noWait {
		took := inv.env.Now().Sub(begin)
		ms := took.Milliseconds()
		res.DurationMS = &ms
		text = fmt.Sprintf("%s restarted in %s.\n", what, duration(took))
	}
	if err := inv.answer(answer{data: res, names: res.Workers, text: text}); err != nil || !o.noWait {
		return err
	}
	return silent{exitAccepted}
}

// some restarts workers by name, one after the other.
func (o *restartCommand) some(ctx context.Context, inv *invocation, c *client.Cluster, w *client.Watch, names []string) error {
	for _, name := range names { // all of them, before anything is changed
		if v := w.View(); v.Assignments[name].Name == "" {
			return inv.noWorker("cannot restart "+name, name, v)
		}
	}
	for _, name := range names {
		inv.lastServing(name, w.View())
		generation, err := c.Restart(ctx, name)
		if err != nil {
			return &failure{action: "cannot restart " + name, err: err}
		}
		if o.noWait {
			continue
		}
		var last cluster.Worker
		done := func(v client.View) (bool, error) {
			last = v.Worker(name)
			if a, ok := v.Assignments[name]; !ok || a.Desire != cluster.DesireRun {
				return false, &failure{action: name + " did not restart", err: errors.New("somebody drained or removed it")}
			} else if a.Refused.Why != "" && a.Generation > generation {
				return false, &failure{action: name + " did not restart", err: errors.New(a.Refused.Why), facts: []string{"it serves on as it was"}, tries: []string{"dynctl logs " + name}}
			}
			return last.State.Serving() && last.Generation >= generation, nil
		}
		rows := func(led *ledger, v client.View, over bool) []progress.Row {
			r := led.worker(last, v.Nodes, over, inv.env.Now())
			if last.Drain != nil && last.State == cluster.StateDraining {
				r.Detail = drainText(last.Drain)
			}
			return []progress.Row{r}
		}
		if err := o.wait(ctx, inv, w, name, done, rows, func() string { return name + " is " + stateText(last) }); err != nil {
			return err
		}
	}
	return nil
}

// all declares a restart of all workers and waits until it is through.
func (o *restartCommand) all(ctx context.Context, inv *invocation, c *client.Cluster, w *client.Watch) error {
	const action = "cannot restart all workers"
	topo, err := c.Declare(ctx, func(t *cluster.Topology, _ bool) error {
		if t.Prefill+t.Decode == 0 {
			return errors.New("there are none")
		}
		t.Restarts++
		return nil
	})
	if err != nil {
		return &failure{action: action, err: err}
	}
	if o.noWait {
		return nil
	}
	g, known, before := goal{topo: topo}, map[string]cluster.Worker{}, restarts(w.View())
	var s standing
	done := func(v client.View) (bool, error) {
		if t := v.Topology; t != nil && t.Restarts > topo.Restarts {
			return false, &failure{action: "cannot go on restarting", err: errors.New("somebody began another restart"), tries: []string{"dynctl ps"}}
		} else if t != nil && t.Generation > topo.Generation { // scaled meanwhile, say
			g.topo = *t
		}
		s = g.judge(v)
		if _, f := s.impossible(before); f != nil {
			return false, f
		}
		return v.Topology != nil && v.Topology.Generation >= topo.Generation && s.settled(), nil
	}
	rows := func(led *ledger, v client.View, _ bool) []progress.Row {
		return s.rows(led, v.Nodes, known, inv.env.Now())
	}
	return o.wait(ctx, inv, w, c.Name, done, rows, func() string {
		missing := s.missing()
		for _, w := range s.leaving {
			missing = append(missing, w.Name+" to leave")
		}
		return "it waits for " + strings.Join(missing, ", ")
	})
}

// wait watches until done, and shows rows meanwhile.
func (o *restartCommand) wait(ctx context.Context, inv *invocation, w *client.Watch, subject string,
	done func(client.View) (bool, error), rows func(*ledger, client.View, bool) []progress.Row, standing func() string,
) error {
	show := inv.progress(o.mode)
	defer show.Close()
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	led, before := newLedger(inv.env.Now()), restarts(w.View())
	err := w.Until(waiting, lookEvery, func(v client.View) (bool, error) {
		over, err := done(v)
		s := progress.Screen{Operation: "restart", Subject: subject, Title: subject + "  restarting", Rows: rows(led, v, over), Footer: "ctrl-c stops watching only."}
		if over {
			s.Footer = ""
		}
		show.Show(s)
		for _, wk := range v.Workers() {
			if err == nil && !over && wk.State == cluster.StateFailed && wk.Restarts-before[wk.Name] >= 2 {
				err = startFailure(wk)
			}
		}
		return over, err
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return &interrupted{text: "stopped watching: " + subject + " goes on restarting", tries: []string{"dynctl ps"}, err: err}
	case waiting.Err() != nil:
		return &failure{
			action: fmt.Sprintf("%s has not restarted after %s", subject, duration(o.timeout)), err: errors.New(standing()), code: exitDeadline,
			facts: []string{"the work goes on"}, tries: []string{"dynctl ps"},
		}
	}
	return err
}
