package cli

import (
	"cmp"
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

// resumeCommand takes drains back.
type resumeCommand struct {
	timeout time.Duration
	noWait  bool
	mode    string
}

func (f *factory) resume() *cobra.Command {
	o := &resumeCommand{}
	cmd := f.command(verb{
		use: "resume {<worker> | node/<name>}...", short: "Take drains back, and start drained workers again", group: groupWorkers, changes: true,
		long: `A worker that still drains goes on where it is; a drained one starts again, and one that
waits for its successor stays. A drained node takes workers again: those that have not
left it stay, others come back when it has been there for a while. The command returns
when the workers serve.`,
		examples: []string{
			"dynctl resume worker-3 worker-4",
			"dynctl resume node/host-2",
			"dynctl resume worker-7 --no-wait",
		},
		args: names("worker", false), complete: f.completeDrainable,
		see: []string{"dynctl drain", "dynctl ps"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	durationVar(fs, &o.timeout, "timeout", 2*time.Minute, "how long to wait for each worker")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the order is given, with exit code 8")
	progressVar(fs, &o.mode)
	grouped(fs, "Waiting", "timeout", "no-wait", "progress")
	return cmd
}

// resumeResult is the outcome for one worker, as -o json prints it.
type resumeResult struct {
	Worker     string        `json:"worker,omitempty"`
	Node       string        `json:"node,omitempty"`
	State      cluster.State `json:"state,omitempty"`
	DurationMS *int64        `json:"duration_ms"`
	Error      string        `json:"error,omitempty"`

	sentence string
}

func (o *resumeCommand) run(ctx context.Context, inv *invocation, args []string) error {
	action := "cannot resume " + strings.Join(args, ", ")
	c, w, err := inv.watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	results := []resumeResult{}
	var errs []error
	for _, name := range args {
		var r resumeResult
		var err error
		if node, ok := strings.CutPrefix(name, nodePrefix); ok {
			r, err = o.node(ctx, inv, c, w.View(), node)
		} else {
			r, err = o.one(ctx, inv, c, w, name)
			r.Worker = name
		}
		if err != nil && ctx.Err() != nil {
			return err
		}
		if err != nil {
			r.Error = err.Error()
			if len(args) > 1 {
				inv.report(inv.cmd, err)
			}
		} else if r.sentence != "" && inv.prose() {
			inv.say(r.sentence)
		}
		results, errs = append(results, r), append(errs, err)
	}
	if !inv.prose() {
		a := answer{data: results}
		for i, r := range results {
			if errs[i] == nil {
				a.names = append(a.names, cmp.Or(r.Worker, nodePrefix+r.Node))
			}
		}
		if err := inv.answer(a); err != nil {
			return err
		}
	}
	if err := several(errs); err != nil || !o.noWait {
		return err
	}
	return silent{exitAccepted}
}

// node lets a node take workers again.
func (o *resumeCommand) node(ctx context.Context, inv *invocation, c *client.Cluster, v client.View, name string) (resumeResult, error) {
	action := "cannot resume " + nodePrefix + name
	n, err := inv.findNode(action, name, v)
	if err != nil {
		return resumeResult{Node: name}, err
	}
	if _, cordoned := v.Cordons[n.ID]; !cordoned {
		return resumeResult{Node: name, sentence: name + " takes workers already."}, nil
	}
	if err := c.Uncordon(ctx, n.ID); err != nil {
		return resumeResult{Node: name}, &failure{action: action, err: err}
	}
	return resumeResult{Node: name, sentence: name + " takes workers again."}, nil
}

// one resumes one worker and waits until it serves.
func (o *resumeCommand) one(ctx context.Context, inv *invocation, c *client.Cluster, w *client.Watch, name string) (resumeResult, error) {
	action := "cannot resume " + name
	v := w.View()
	a, ok := v.Assignments[name]
	if !ok {
		return resumeResult{}, inv.noWorker(action, name, v)
	}
	before := v.Status[name]
	if a.Desire == cluster.DesireRun && before.State.Serving() && !a.Replace {
		return resumeResult{State: before.State, sentence: name + " serves already."}, nil
	}
	begin := inv.env.Now()
	if err := c.Resume(ctx, name); err != nil {
		return resumeResult{}, &failure{action: action, err: err}
	}
	if o.noWait {
		return resumeResult{State: before.State, sentence: name + " resumes."}, nil
	}
	show := inv.progress(o.mode)
	defer show.Close()
	waiting, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	led := newLedger(begin)
	var last cluster.Worker
	obeyed := false
	err := w.Until(waiting, lookEvery, func(v client.View) (bool, error) {
		a, ok := v.Assignments[name]
		if !ok {
			return false, &failure{action: action, err: errors.New("it was removed")}
		}
		obeyed = obeyed || a.Desire == cluster.DesireRun
		if obeyed && a.Desire != cluster.DesireRun {
			return false, &failure{action: action, err: errors.New("somebody drained it again")}
		}
		for _, wk := range v.Workers() {
			if wk.Name == name {
				last = wk
			}
		}
		done := obeyed && !a.Replace && last.State.Serving() && last.Generation == a.Generation
		s := progress.Screen{
			Operation: "resume", Subject: name, Title: name + "  " + string(last.Role) + "  resuming",
			Rows: []progress.Row{led.worker(last, v.Nodes, done, inv.env.Now())}, Footer: "ctrl-c stops watching only.",
		}
		if done {
			s.Footer = ""
		}
		show.Show(s)
		if !done && obeyed && last.State == cluster.StateFailed && last.Restarts > before.Restarts {
			return false, startFailure(last)
		}
		return done, nil
	})
	took := inv.env.Now().Sub(begin)
	switch {
	case err == nil:
		ms := took.Milliseconds()
		return resumeResult{State: last.State, DurationMS: &ms, sentence: fmt.Sprintf("%s serves again after %s.", name, duration(took))}, nil
	case ctx.Err() != nil:
		return resumeResult{}, &interrupted{text: "stopped watching: " + name + " goes on starting", err: err}
	case waiting.Err() != nil:
		return resumeResult{State: last.State}, &failure{
			action: fmt.Sprintf("%s does not serve after %s", name, duration(took)), err: fmt.Errorf("it is %s", stateText(last)), code: exitDeadline,
			facts: []string{"it goes on starting"}, tries: []string{"dynctl logs " + name, "dynctl ps"},
		}
	}
	return resumeResult{State: last.State}, err
}

// stateText is a worker's state with its reason.
func stateText(w cluster.Worker) string {
	if w.Reason == "" {
		return string(w.State)
	}
	return string(w.State) + ": " + w.Reason
}

// startFailure is the error about a worker that fails when it starts.
func startFailure(w cluster.Worker) error {
	return &failure{
		action: w.Name + " did not start", err: errors.New(w.Reason),
		facts: []string{"its agent goes on trying"}, tries: []string{"dynctl logs " + w.Name},
	}
}
