package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// drainCommand takes workers out of service without losing requests.
type drainCommand struct {
	deadline time.Duration
	force    bool
	replace  bool
	yes      bool
	noWait   bool
	mode     string
}

func (f *factory) drain() *cobra.Command {
	o := &drainCommand{}
	cmd := f.command(verb{
		use: "drain {<worker> | node/<name>}...", short: "Let workers finish, and say when they are safe to stop", group: groupWorkers, changes: true,
		long: `A draining worker takes no new requests, finishes or hands over what it has and then
gives its memory and lease back. It stays drained until it is resumed; with --replace it
goes once a successor serves. The workers of a drained node get successors on other nodes,
one of each role at a time, and the node takes none until it is resumed. At the deadline
the command ends with exit code 4 and the drain goes on; with --force what runs then is
cut off, and other workers continue it. Several names are drained one after the other.
ctrl-c stops watching only.`,
		examples: []string{
			"dynctl drain worker-7 --replace            # another one first, then this one",
			"dynctl drain node/host-2 --deadline 10m    # all workers of a node, for maintenance",
			"dynctl drain worker-7 --force --yes --deadline 30s",
		},
		args: names("worker", false), complete: f.completeDrainable,
		see: []string{"dynctl resume", "dynctl restart", "dynctl scale"},
		run: o.run,
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	durationVar(fs, &o.deadline, "deadline", 5*time.Minute, "how long to wait for each; 0 cuts off what runs")
	fs.BoolVar(&o.force, "force", false, "cut off what still runs at the deadline")
	fs.BoolVar(&o.replace, "replace", false, "start another worker first, which stays in its place")
	fs.BoolVar(&o.noWait, "no-wait", false, "return when the order is given, with exit code 8")
	fs.BoolVarP(&o.yes, "yes", "y", false, "do not ask before requests are cut off")
	progressVar(fs, &o.mode)
	grouped(fs, "Waiting", "deadline", "force", "no-wait", "yes", "progress")
	return cmd
}

// drainResult is the outcome for one worker, as -o json prints it.
type drainResult struct {
	Worker     string        `json:"worker,omitempty"`
	State      cluster.State `json:"state"`
	Safe       bool          `json:"safe"`
	DurationMS *int64        `json:"duration_ms"`
	// Routers were asked whether they send nothing more; see [cluster.DrainStatus].
	Routers             *int     `json:"routers"`
	RoutersAcknowledged *int     `json:"routers_acknowledged"`
	Unacknowledged      []string `json:"routers_unacknowledged,omitempty"` // names of their nodes
	Sequences           *int     `json:"sequences"`
	Finished            *int     `json:"finished"`
	Moved               *int     `json:"moved"`
	Cancelled           *int     `json:"cancelled"`
	// Successor is the worker that took the place; Node is set for a node, whose workers
	// that left are Workers.
	Successor string                 `json:"successor,omitempty"`
	Node      string                 `json:"node,omitempty"`
	Workers   []string               `json:"workers,omitempty"`
	Open      []cluster.OpenSequence `json:"open"`
	Error     string                 `json:"error,omitempty"`

	sentence string
}

func (o *drainCommand) run(ctx context.Context, inv *invocation, args []string) error {
	action := "cannot drain " + strings.Join(args, ", ")
	c, w, err := inv.watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	if o.deadline == 0 || o.force {
		when := ""
		if o.deadline > 0 {
			when = " that still run after " + durationFlag{&o.deadline}.String()
		}
		if err := inv.confirm(o.yes, action, "Cut off the requests of "+o.stakes(args, w.View(), c.Workers(ctx, w.View()))+when+"? Other workers continue them."); err != nil {
			return err
		}
	}
	results := []drainResult{}
	var errs []error
	for _, name := range args {
		r, err := o.one(ctx, inv, c, w, name)
		if err != nil {
			if ctx.Err() != nil {
				return err
			}
			r.Error = err.Error()
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

// one drains what one name means.
func (o *drainCommand) one(ctx context.Context, inv *invocation, c *client.Cluster, w *client.Watch, name string) (drainResult, error) {
	force := o.force || o.deadline == 0
	if node, ok := strings.CutPrefix(name, nodePrefix); ok {
		d := &nodeDrainer{inv: inv, c: c, watch: w, name: node, limit: o.deadline, force: force, noWait: o.noWait, mode: o.mode}
		return d.run(ctx)
	}
	d := &drainer{inv: inv, c: c, watch: w, name: name, limit: o.deadline, force: force, replace: o.replace, noWait: o.noWait, mode: o.mode}
	r, err := d.run(ctx)
	r.Worker = name
	return r, err
}

// stakes names workers and nodes with what they run.
func (o *drainCommand) stakes(args []string, v client.View, workers []cluster.Worker) string {
	var parts []string
	for _, name := range args {
		n := 0
		for _, w := range workers {
			if w.Name == name || name == nodePrefix+v.NodeName(w.Node) {
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
			a.names = append(a.names, cmp.Or(r.Worker, nodePrefix+r.Node))
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
