package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/dynctl/dynctl/internal/cli/command"
	"github.com/dynctl/dynctl/internal/cli/complete"
	"github.com/dynctl/dynctl/internal/cli/exit"
	"github.com/dynctl/dynctl/internal/cli/fleet"
	"github.com/dynctl/dynctl/internal/cli/session"
	"github.com/dynctl/dynctl/internal/client"
	"github.com/dynctl/dynctl/internal/cluster"
)

// Options take workers and nodes out of service without losing requests.
type Options struct {
	Session  *session.Session
	Targets  []fleet.Target
	Deadline time.Duration // 0 cuts off what runs
	Force    bool          // cut off what still runs at the deadline
	Replace  bool          // a successor serves first, and stays
	Yes      bool
	NoWait   bool
	DryRun   bool
	Progress string
}

// Command makes dynctl drain.
func Command(a *command.App) *cobra.Command {
	o := &Options{}
	cmd := a.Command(command.Verb{
		Use: "drain {<worker> | node/<name>}...", Short: "Let workers finish, and say when they are safe to stop", Group: command.GroupWorkers, Changes: true,
		Long: `A draining worker takes no new requests, finishes or hands over what it has and then
gives its memory and lease back. It stays drained until it is resumed; with --replace it
leaves once a successor serves. The workers of a drained node get successors on other nodes,
one of each role at a time, and the node takes none until it is resumed. At the deadline
the command ends with exit code 4 and the drain goes on; with --force what runs then is
cut off, and other workers continue it. Several names are drained one after the other.
ctrl-c stops watching only.`,
		Examples: []string{
			"dynctl drain worker-7 --replace            # another one first, then this one",
			"dynctl drain node/host-2 --deadline 10m    # all workers of a node, for maintenance",
			"dynctl drain worker-7 --force --yes --deadline 30s",
		},
		Args: command.Names("worker", false), Complete: complete.Targets(a),
		See: []string{"dynctl resume", "dynctl restart", "dynctl sleep"},
		Options: func(s *session.Session, args []string) command.Runner {
			o.Session, o.Targets = s, fleet.Targets(args)
			return o
		},
	})
	fs := cmd.Flags()
	fs.SortFlags = false
	command.Duration(fs, &o.Deadline, "deadline", 5*time.Minute, "how long to wait for each; 0 cuts off what runs")
	fs.BoolVar(&o.Force, "force", false, "cut off what still runs at the deadline")
	fs.BoolVar(&o.Replace, "replace", false, "start another worker first, which stays in its place")
	fs.BoolVar(&o.NoWait, "no-wait", false, "return when the order is given, with exit code 8")
	fs.BoolVarP(&o.Yes, "yes", "y", false, "do not ask before requests are cut off")
	command.Progress(fs, &o.Progress)
	fs.BoolVar(&o.DryRun, "dry-run", false, "print what would be ordered, and order nothing")
	command.Grouped(fs, "Waiting", "deadline", "force", "no-wait", "yes", "progress", "dry-run")
	return cmd
}

// Result is the outcome for one worker, as -o json prints it.
type Result struct {
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
	CutOff              *int     `json:"cut_off"`
	// Successor is the worker that took the place; Node is set for a node, whose workers
	// that left are Workers.
	Successor string                 `json:"successor,omitempty"`
	Node      string                 `json:"node,omitempty"`
	Workers   []string               `json:"workers,omitempty"`
	Open      []cluster.OpenSequence `json:"open"`
	Error     string                 `json:"error,omitempty"`

	sentence string
}

func (r *Result) failed(err error) { r.Error = err.Error() }

func (r *Result) said() string { return r.sentence }

// Run gives the orders and waits for their end.
func (o *Options) Run(ctx context.Context) error {
	s := o.Session
	action := "cannot drain " + fleet.List(o.Targets)
	if o.DryRun {
		return planOrders(ctx, s, "drain", o.Targets, planDrain)
	}
	c, w, err := s.Watch(ctx, action)
	if err != nil {
		return err
	}
	defer w.Close()
	fleet.Resolve(w.View(), o.Targets)
	if o.Deadline == 0 || o.Force {
		when := ""
		if o.Deadline > 0 {
			when = " that still run after " + command.DurationText(o.Deadline)
		}
		if err := s.Out.Confirm(o.Yes, action, "Cut off the requests of "+stakes(o.Targets, w.View(), c.Workers(ctx, w.View()))+when+"? "+fate(o.Targets, w.View())); err != nil {
			return err
		}
	}
	return orders{s, o.Targets, o.NoWait}.run(ctx, func(ctx context.Context, t fleet.Target) (outcome, error) {
		order := drainOrder{session: s, c: c, watch: w, name: t.Name, limit: o.Deadline, force: o.Force || o.Deadline == 0, noWait: o.NoWait, mode: o.Progress}
		if t.Node {
			r, err := (&nodeDrainer{drainOrder: order}).run(ctx)
			return &r, err
		}
		r, err := (&drainer{drainOrder: order, replace: o.Replace}).run(ctx)
		r.Worker = t.Name
		return &r, err
	})
}

const (
	// forceLimit is the deadline of a forced drain that was given none.
	forceLimit = 30 * time.Second
	// lateness is the time after the deadline in which news still count: the worker's last
	// status may be on its way.
	lateness = 300 * time.Millisecond
)

// errNotDrained is returned when a drain did not end by its deadline.
var errNotDrained = errors.New("the deadline passed")

// drainOrder is an order to drain one worker or one node.
type drainOrder struct {
	session *session.Session
	c       *client.Cluster
	watch   *client.Watch
	name    string
	limit   time.Duration // 0: now
	force   bool          // cut off what runs then
	noWait  bool
	mode    string // of progress

	ordered  time.Time
	deadline time.Time // zero when forced
}

// begin notes when the order is given.
func (d *drainOrder) begin() {
	d.ordered = d.session.Out.Now()
	if d.limit > 0 {
		d.deadline = d.ordered.Add(d.limit)
	}
}

// overdue reports whether the order should have been carried out by now.
func (d *drainOrder) overdue(now time.Time) bool {
	if d.deadline.IsZero() {
		return now.Sub(d.ordered) > forceLimit
	}
	return now.After(d.deadline.Add(lateness))
}

// ended turns the error of a watch into that of the command: that it was interrupted, as
// text says, or what was wrong.
func (d *drainOrder) ended(ctx context.Context, t fleet.Target, text string, err error) error {
	if ctx.Err() != nil {
		return &exit.Stopped{Text: text, Tries: []string{"dynctl resume " + t.String() + "   to take it back"}, Err: err}
	}
	var f *exit.Failure
	if errors.As(err, &f) {
		return err
	}
	return &exit.Failure{Action: "cannot drain " + t.String(), Err: err}
}

// stakes names workers and nodes with what they run.
func stakes(targets []fleet.Target, v client.View, workers []cluster.Worker) string {
	var parts []string
	for _, t := range targets {
		work := fleet.Work{}
		for _, w := range workers {
			if concerns(t, v, w) {
				work.Add(w.Role, fleet.OpenSequences(w))
			}
		}
		parts = append(parts, fmt.Sprintf("%s (%s)", t, &work))
	}
	return strings.Join(parts, ", ")
}

// concerns reports whether a target is a worker, or its node.
func concerns(t fleet.Target, v client.View, w cluster.Worker) bool {
	return !t.Node && w.Name == t.Name || t.Node && t.Name == v.NodeName(w.Node)
}

// fate says what becomes of requests that are cut off with targets.
func fate(targets []fleet.Target, v client.View) string {
	encode := true // nobody else leaves
	for _, w := range v.Workers() {
		leaves := slices.ContainsFunc(targets, func(t fleet.Target) bool { return concerns(t, v, w) })
		encode = encode && (!leaves || !w.Role.HoldsKV())
	}
	if encode {
		return "Their images are encoded by another encode worker, or by the workers that compute their prompts."
	}
	for _, w := range v.Workers() {
		leaves := slices.ContainsFunc(targets, func(t fleet.Target) bool { return concerns(t, v, w) })
		if !leaves && w.Role == cluster.RoleDecode && w.State.Serving() && w.Desire == cluster.DesireRun {
			return "Other workers continue them."
		}
	}
	return "No other decode worker serves: they fail unless one does within " + cluster.TakeoverWait.String() + "."
}
