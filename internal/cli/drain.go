package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cluster"
)

// drainCommand takes workers out of service without losing requests.
type drainCommand struct {
	deadline time.Duration
	yes      bool
	noWait   bool
	mode     string
}

func (f *factory) drain() *cobra.Command {
	o := &drainCommand{}
	cmd := f.command(verb{
		use: "drain <worker>...", short: "Let workers finish, and say when they are safe to stop", group: groupWorkers, changes: true,
		long: `A draining worker takes no new requests, finishes or hands over what it has and then
gives its memory and lease back. It stays drained until it is resumed. At the deadline
the command ends with exit code 4 and the worker goes on draining. Several workers are
drained one after the other. ctrl-c stops watching only.`,
		examples: []string{
			"dynctl drain worker-7",
			"dynctl drain worker-3 worker-4 --deadline 10m",
			"dynctl drain worker-7 --deadline 0 --yes   # now; others continue its requests",
		},
		args: names("worker", false), complete: f.completeWorkers,
		see: []string{"dynctl resume", "dynctl scale"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	durationVar(fs, &o.deadline, "deadline", 5*time.Minute, "how long to wait for each worker; 0 cuts off what runs")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the order is given, with exit code 8")
	fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask before requests are cut off")
	progressVar(fs, &o.mode)
	grouped(fs, "Waiting", "deadline", "no-wait", "yes", "progress")
	return cmd
}

// drainResult is the outcome for one worker, as -o json prints it.
type drainResult struct {
	Worker     string                 `json:"worker"`
	State      cluster.State          `json:"state"`
	Safe       bool                   `json:"safe"`
	DurationMS *int64                 `json:"duration_ms"`
	Sequences  *int                   `json:"sequences"`
	Finished   *int                   `json:"finished"`
	Moved      *int                   `json:"moved"`
	Cancelled  *int                   `json:"cancelled"`
	Open       []cluster.OpenSequence `json:"open"`
	Error      string                 `json:"error,omitempty"`

	sentence string
}

func (o *drainCommand) run(ctx context.Context, inv *invocation, args []string) error {
	action := "cannot drain " + strings.Join(args, ", ")
	c, err := inv.connect(ctx, action)
	if err != nil {
		return err
	}
	w, err := c.Watch(ctx)
	if err != nil {
		return &failure{action: action, err: err}
	}
	defer w.Close()
	if o.deadline == 0 {
		if err := inv.confirm(o.yes, action, "Cut off the requests of "+o.stakes(args, c.Workers(ctx, w.View()))+"? Other workers continue them."); err != nil {
			return err
		}
	}
	results := []drainResult{}
	var errs []error
	for _, name := range args {
		d := &drainer{inv: inv, c: c, watch: w, name: name, limit: o.deadline, noWait: o.noWait, mode: o.mode}
		r, err := d.run(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.Worker, r.Error = name, err.Error()
		}
		results = append(results, r)
		errs = append(errs, err)
		if err != nil && len(args) > 1 {
			inv.report(inv.cmd, err)
		} else if r.sentence != "" && inv.prose() {
			inv.say(r.sentence)
		}
	}
	return o.finish(inv, results, errs)
}

// stakes names workers with what they run.
func (o *drainCommand) stakes(args []string, workers []cluster.Worker) string {
	var parts []string
	for _, name := range args {
		n := 0
		for _, w := range workers {
			if w.Name == name {
				n = w.Stats.Running + w.Stats.Waiting + w.Stats.RemoteWait
			}
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", name, plural(n, "sequence")))
	}
	return strings.Join(parts, ", ")
}

// finish prints the answer in the forms for programs and chooses the exit code.
func (o *drainCommand) finish(inv *invocation, results []drainResult, errs []error) error {
	a := answer{data: results}
	for i, r := range results {
		if errs[i] == nil {
			a.names = append(a.names, r.Worker)
		}
	}
	if !inv.prose() {
		if err := inv.answer(a); err != nil {
			return err
		}
	}
	if err := several(errs); err != nil {
		return err
	}
	if o.noWait {
		return silent{exitAccepted}
	}
	return nil
}

// several sums up the errors of a command with several names, which were reported
// one by one.
func several(errs []error) error {
	failed, code := 0, exitOK
	for _, err := range errs {
		if err == nil {
			continue
		}
		failed++
		if c := codeOf(err); code == exitOK {
			code = c
		} else if c != code {
			code = exitFailed
		}
	}
	switch {
	case failed == 0:
		return nil
	case len(errs) == 1:
		return errs[0]
	case failed < len(errs):
		return silent{exitPartly}
	}
	return silent{code}
}

// errNotDrained is returned when a drain did not end by its deadline.
var errNotDrained = errors.New("the deadline passed")
